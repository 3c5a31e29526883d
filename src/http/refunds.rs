//! `/payments/{id}/refunds`, `/refunds/{id}`

use actix_web::HttpResponse;

use super::envelope::{answer, read_answer};
use super::extract::{Get, Post};
use super::operation::{Body, Operation};
use super::payments::no_such_payment;
use crate::api::body::RefundBody;
use crate::api::resource::{Page, RefundJson, RefundPage};
use crate::api::{Code, Problem};
use crate::domain::{PaymentId, Refund, RefundId};
use crate::storage::{Position, payments, refunds};

/// What the document says about them.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "createRefund",
        refuses: &[
            Code::InsufficientFunds,
            Code::NotFound,
            Code::AccountFrozen,
            Code::AccountClosed,
            Code::RefundedAmountChanged,
            Code::ValidationFailed,
            Code::RefundExceedsRemaining,
            Code::BalanceOverflow,
        ],
        // Without one all that remains is refunded.
        body: Body::Optional,
        then: &["getRefund"],
    },
    Operation::get("listRefunds", &[Code::NotFound]),
    Operation::get("getRefund", &[Code::NotFound]),
];

/// Refund a payment
///
/// Gives back `amount`, or all that remains. Partial and repeated refunds are allowed, never more than was paid.
#[utoipa::path(
    post, path = "/payments/{id}/refunds", operation_id = "createRefund", tag = "refunds", request_body = RefundBody,
    params(("id" = Uuid, Path, description = "The payment")),
    responses((status = 201, description = "The refund, made now or by an earlier request under the same key", body = RefundJson)),
)]
pub(super) async fn create(post: Post) -> Result<HttpResponse, Problem> {
    let payment = PaymentId(post.id()?);
    let command = post.body::<RefundBody>()?.into_command(payment)?;
    answer(post.service.engine.execute(post.request(command)).await)
}

/// Read a refund
#[utoipa::path(
    get, path = "/refunds/{id}", operation_id = "getRefund", tag = "refunds", params(("id" = Uuid, Path, description = "The refund")),
    responses((status = 200, description = "The refund", body = RefundJson)),
)]
pub(super) async fn show(get: Get) -> Result<HttpResponse, Problem> {
    get.query(&[])?;
    let (tenant, id) = (get.tenant, RefundId(get.id()?));
    let refund = get
        .service
        .read(tenant, move |connection| refunds::find(connection, tenant, id))
        .await?;
    let refund = refund.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no refund {id}")))?;
    Ok(read_answer(&RefundJson::from(&refund)))
}

/// List the refunds of a payment
///
/// Newest first.
#[utoipa::path(
    get, path = "/payments/{id}/refunds", operation_id = "listRefunds", tag = "refunds", params(("id" = Uuid, Path, description = "The payment")),
    responses((status = 200, description = "A page of refunds", body = RefundPage)),
)]
pub(super) async fn list(get: Get) -> Result<HttpResponse, Problem> {
    let page = get.page::<Position>(&get.query(&["limit", "cursor"])?)?;
    let (tenant, id) = (get.tenant, PaymentId(get.id()?));
    let (after, limit) = (page.after, page.fetch());
    let found = move |connection: &mut _| {
        let Some(_) = payments::find(connection, tenant, id)? else {
            return Ok(None);
        };
        refunds::list(connection, tenant, id, after, limit).map(Some)
    };
    let refunds = get
        .service
        .read(tenant, found)
        .await?
        .ok_or_else(|| no_such_payment(id))?;
    let place = |refund: &Refund| Position {
        created_at: refund.created_at,
        id: refund.id.0,
    };
    let (refunds, next_cursor) = page.cut(refunds, place);
    Ok(read_answer(&Page {
        data: refunds.iter().map(RefundJson::from).collect(),
        next_cursor,
    }))
}
