//! `/payments`

use actix_web::HttpResponse;

use super::envelope::{answer, read_answer};
use super::extract::{Get, Post};
use super::operation::{Body, Operation};
use crate::api::body::PayBody;
use crate::api::resource::{Page, PaymentJson, PaymentPage};
use crate::api::{Code, Problem};
use crate::domain::{AccountId, PaymentId, PaymentStatus};
use crate::idempotency::IdempotencyKey;
use crate::storage::payment_list::{self, PaymentFilter, Stretch};
use crate::storage::{Position, idempotency_keys, payments};

/// What the document says about them.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "createPayment",
        refuses: &[
            Code::InsufficientFunds,
            Code::NotFound,
            Code::AccountFrozen,
            Code::AccountClosed,
            Code::ValidationFailed,
            Code::SameAccount,
            Code::CurrencyMismatch,
            Code::BalanceOverflow,
        ],
        body: Body::Required,
        then: &["getPayment", "createRefund", "listRefunds"],
    },
    Operation::get("listPayments", &[]),
    Operation::get("getPayment", &[Code::NotFound]),
];

/// Charge a payer
///
/// Moves `amount` from payer to payee, at most once for each `Idempotency-Key`: send the same key again and you get the same answer again, byte for byte.
#[utoipa::path(
    post, path = "/payments", operation_id = "createPayment", tag = "payments", request_body = PayBody,
    responses((status = 201, description = "The payment, made now or by an earlier request under the same key", body = PaymentJson)),
)]
pub(super) async fn create(post: Post) -> Result<HttpResponse, Problem> {
    let command = post.body::<PayBody>()?.into_command()?;
    answer(post.service.engine.execute(post.request(command)).await)
}

/// Read a payment
#[utoipa::path(
    get, path = "/payments/{id}", operation_id = "getPayment", tag = "payments", params(("id" = Uuid, Path, description = "The payment")),
    responses((status = 200, description = "The payment", body = PaymentJson)),
)]
pub(super) async fn show(get: Get) -> Result<HttpResponse, Problem> {
    get.query(&[])?;
    let (tenant, id) = (get.tenant, PaymentId(get.id()?));
    let payment = get
        .service
        .read(tenant, move |connection| payments::find(connection, tenant, id))
        .await?;
    let payment = payment.ok_or_else(|| no_such_payment(id))?;
    Ok(read_answer(&PaymentJson::from(&payment)))
}

pub(super) fn no_such_payment(id: PaymentId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no payment {id}"))
}

/// List payments
///
/// Newest first. All conditions given must hold.
///
/// `account_id`, `reference`, `idempotency_key`, `created_from` and `created_to` are looked up, and so is whether anything was refunded. `status` beyond that, and what is
/// combined with `reference`, is looked for among at most 5000 payments for one page (of an `account_id` as many as payer and as payee): where little is to be found among
/// much, a page has fewer than `limit` payments, or none, and still a `next_cursor`. The list has ended when that is `null`.
///
/// A payment is in the list from its commit on, in milliseconds as a rule, after the `created_at` that it got with its locks: until then nothing says that an instant of the last moments
/// has all its payments. To poll by `created_from`, go back by a minute each time (ample under the default time-outs), and know payments by their ids.
#[utoipa::path(
    get, path = "/payments", operation_id = "listPayments", tag = "payments",
    params(
        ("account_id" = Option<Uuid>, Query, description = "Payer or payee"),
        ("status" = Option<String>, Query, pattern = "^(succeeded|partially_refunded|refunded)$", description = "`succeeded`, `partially_refunded` or `refunded`"),
        ("reference" = Option<String>, Query, pattern = "^[^\\u0000]*$", description = "The caller's own number"),
        ("idempotency_key" = Option<String>, Query, pattern = "^[^\\u0000]*$", description = "The key that made the payment, as long as it is remembered"),
        ("created_from" = Option<String>, Query, format = DateTime, description = "Made at this RFC 3339 instant or later"),
        ("created_to" = Option<String>, Query, format = DateTime, description = "Made before this RFC 3339 instant"),
    ),
    responses((status = 200, description = "A page of payments", body = PaymentPage)),
)]
pub(super) async fn list(get: Get) -> Result<HttpResponse, Problem> {
    let query = get.query(&[
        "account_id",
        "status",
        "reference",
        "idempotency_key",
        "created_from",
        "created_to",
        "limit",
        "cursor",
    ])?;
    let page = get.page::<Position>(&query)?;
    let mut filter = PaymentFilter {
        id: None,
        account: query.uuid("account_id")?.map(AccountId),
        status: query.value("status", PaymentStatus::parse)?,
        reference: query.text("reference").map(str::to_owned),
        created_from: query.instant("created_from")?,
        created_to: query.instant("created_to")?,
    };
    // What can't be a key has made nothing; it is not refused, since here it is only something to look for.
    let key = query
        .text("idempotency_key")
        .map(|text| IdempotencyKey::parse(text.as_bytes()).ok());
    let (tenant, after, limit) = (get.tenant, page.after, page.fetch());
    let found = move |connection: &mut _| {
        if let Some(key) = key {
            let made = key.map(|key| idempotency_keys::payment_made_by(connection, tenant, &key));
            let Some(id) = made.transpose()?.flatten() else {
                return Ok(Stretch::default());
            };
            filter.id = Some(PaymentId(id));
        }
        payment_list::list(connection, tenant, &filter, after, limit)
    };
    let found = get.service.read(tenant, found).await?;
    let (payments, next_cursor) = page.cut_stretch(found.payments, payment_list::place, found.looked_to);
    Ok(read_answer(&Page {
        data: payments.iter().map(PaymentJson::from).collect(),
        next_cursor,
    }))
}
