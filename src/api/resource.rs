//! The JSON of each thing, one struct each. An optional value that is absent is `null`, never left out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::openapi::schema::{Array, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use crate::domain::{self, AccountId, Description, Metadata, Reference};
use crate::money::Currency;

type MetadataJson<'a> = Option<&'a BTreeMap<String, String>>;

/// An account.
#[derive(Serialize, ToSchema)]
#[schema(as = Account)]
pub struct AccountJson<'a> {
    id: Uuid,
    /// What it is called.
    #[schema(example = "Alice")]
    name: &'a str,
    /// The caller's own number for it.
    #[schema(required, example = "customer-17")]
    reference: Option<&'a str>,
    /// ISO 4217.
    #[schema(example = "USD")]
    currency: &'a str,
    /// In major units, with exactly the currency's decimals.
    #[schema(example = "100.00")]
    balance: String,
    #[schema(example = "active", pattern = "^(active|frozen|closed)$")]
    status: &'static str,
    /// The caller's own data.
    #[schema(required, value_type = Option<BTreeMap<String, String>>, example = json!({"table": "4"}))]
    metadata: MetadataJson<'a>,
    created_at: DateTime<Utc>,
}

impl<'a> From<&'a domain::Account> for AccountJson<'a> {
    fn from(account: &'a domain::Account) -> Self {
        Self {
            id: account.id.0,
            name: account.name.as_str(),
            reference: account.reference.as_ref().map(Reference::as_str),
            currency: account.currency.code(),
            balance: account.balance.to_string(),
            status: account.status.as_str(),
            metadata: account.metadata.as_ref().map(Metadata::members),
            created_at: account.created_at,
        }
    }
}

/// A payment.
#[derive(Serialize, ToSchema)]
#[schema(as = Payment)]
pub struct PaymentJson<'a> {
    id: Uuid,
    payer_account_id: Uuid,
    payee_account_id: Uuid,
    /// In major units, with exactly the currency's decimals.
    #[schema(example = "12.50")]
    amount: String,
    #[schema(example = "USD")]
    currency: &'a str,
    /// How much went back since.
    #[schema(example = "0.00")]
    refunded_amount: String,
    #[schema(example = "succeeded", pattern = "^(succeeded|partially_refunded|refunded)$")]
    status: &'static str,
    #[schema(required, example = "Two coffees")]
    description: Option<&'a str>,
    #[schema(required, example = "order-4711")]
    reference: Option<&'a str>,
    #[schema(required, value_type = Option<BTreeMap<String, String>>, example = json!({"table": "4"}))]
    metadata: MetadataJson<'a>,
    created_at: DateTime<Utc>,
}

impl<'a> From<&'a domain::Payment> for PaymentJson<'a> {
    fn from(payment: &'a domain::Payment) -> Self {
        Self {
            id: payment.id.0,
            payer_account_id: payment.payer.0,
            payee_account_id: payment.payee.0,
            amount: payment.amount.value().to_string(),
            currency: payment.currency().code(),
            refunded_amount: payment.refunded.to_string(),
            status: payment.status().as_str(),
            description: payment.description.as_ref().map(Description::as_str),
            reference: payment.reference.as_ref().map(Reference::as_str),
            metadata: payment.metadata.as_ref().map(Metadata::members),
            created_at: payment.created_at,
        }
    }
}

/// A refund.
#[derive(Serialize, ToSchema)]
#[schema(as = Refund)]
pub struct RefundJson<'a> {
    id: Uuid,
    payment_id: Uuid,
    /// In major units, with exactly the currency's decimals.
    #[schema(example = "5.00")]
    amount: String,
    #[schema(example = "USD")]
    currency: &'a str,
    #[schema(required, example = "one was cold")]
    reason: Option<&'a str>,
    created_at: DateTime<Utc>,
}

impl<'a> From<&'a domain::Refund> for RefundJson<'a> {
    fn from(refund: &'a domain::Refund) -> Self {
        Self {
            id: refund.id.0,
            payment_id: refund.payment.0,
            amount: refund.amount.value().to_string(),
            currency: refund.amount.currency().code(),
            reason: refund.reason.as_ref().map(Description::as_str),
            created_at: refund.created_at,
        }
    }
}

/// A deposit or a withdrawal.
#[derive(Serialize, ToSchema)]
#[schema(as = Movement)]
pub struct MovementJson<'a> {
    id: Uuid,
    account_id: Uuid,
    /// In major units, with exactly the currency's decimals; always positive.
    #[schema(example = "100.00")]
    amount: String,
    #[schema(example = "USD")]
    currency: &'a str,
    #[schema(required, example = "opening balance")]
    description: Option<&'a str>,
    created_at: DateTime<Utc>,
}

impl<'a> MovementJson<'a> {
    /// A deposit: money that came to the account.
    #[must_use]
    pub fn deposit(transfer: &'a domain::Transfer) -> Self {
        Self::of(transfer, transfer.credit.account)
    }

    /// A withdrawal: money that left the account.
    #[must_use]
    pub fn withdrawal(transfer: &'a domain::Transfer) -> Self {
        Self::of(transfer, transfer.debit.account)
    }

    fn of(transfer: &'a domain::Transfer, account: AccountId) -> Self {
        Self {
            id: transfer.id,
            account_id: account.0,
            amount: transfer.amount.value().to_string(),
            currency: transfer.amount.currency().code(),
            description: transfer.description.as_ref().map(Description::as_str),
            created_at: transfer.created_at,
        }
    }
}

/// One line of an account's statement.
#[derive(Serialize, ToSchema)]
#[schema(as = Entry)]
pub struct EntryJson {
    /// The id of the transfer; the entry on the other account has the same.
    id: Uuid,
    account_id: Uuid,
    #[schema(example = "payment", pattern = "^(deposit|withdrawal|payment|refund)$")]
    kind: &'static str,
    /// Signed: negative when money left the account.
    #[schema(example = "-12.50")]
    amount: String,
    #[schema(example = "USD")]
    currency: &'static str,
    #[schema(example = "87.50")]
    balance_after: String,
    #[schema(required)]
    payment_id: Option<Uuid>,
    #[schema(required)]
    refund_id: Option<Uuid>,
    created_at: DateTime<Utc>,
}

impl From<&domain::Entry> for EntryJson {
    fn from(entry: &domain::Entry) -> Self {
        Self {
            id: entry.id,
            account_id: entry.account.0,
            kind: entry.kind.as_str(),
            amount: entry.amount.to_string(),
            currency: entry.currency.code(),
            balance_after: entry.balance_after.to_string(),
            payment_id: entry.payment.map(|id| id.0),
            refund_id: entry.refund.map(|id| id.0),
            created_at: entry.created_at,
        }
    }
}

/// What an account held at an instant.
#[derive(Serialize, ToSchema)]
#[schema(as = Balance)]
pub struct BalanceJson {
    account_id: Uuid,
    #[schema(example = "87.50")]
    balance: String,
    #[schema(example = "USD")]
    currency: &'static str,
    /// The instant that was asked for, or the time of the last entry.
    at: DateTime<Utc>,
}

impl BalanceJson {
    /// The balance of `account` as it was at `at`.
    #[must_use]
    pub fn new(
        account: domain::AccountId,
        balance: rust_decimal::Decimal,
        currency: Currency,
        at: DateTime<Utc>,
    ) -> Self {
        Self {
            account_id: account.0,
            balance: currency.exact(balance).to_string(),
            currency: currency.code(),
            at,
        }
    }
}

/// What is remembered of an idempotency key.
#[derive(Serialize, ToSchema)]
#[schema(as = IdempotencyRecord)]
pub struct RecordJson {
    /// The key, bare.
    #[schema(example = "order-4711-attempt")]
    pub key: String,
    /// SHA-256 of what the request meant, in hexadecimal.
    pub request_hash: String,
    /// Always `POST`.
    #[schema(example = "POST")]
    pub method: &'static str,
    /// What was posted to.
    #[schema(example = "/payments")]
    pub path: String,
    /// `completed`: the response is replayed; `expired`: the key answers 410.
    #[schema(example = "completed", pattern = "^(completed|expired)$")]
    pub status: &'static str,
    /// What was answered.
    pub response: RecordedResponseJson,
    /// Where what came of it can be read.
    #[schema(required, example = "/payments/019ad5f0-0000-7000-8000-000000000000")]
    pub resource: Option<String>,
    /// When the key was first used.
    pub created_at: DateTime<Utc>,
    /// Until when the response is replayed.
    pub expires_at: DateTime<Utc>,
}

/// A response as it was stored.
#[derive(Serialize, ToSchema)]
#[schema(as = RecordedResponse)]
pub struct RecordedResponseJson {
    /// HTTP status.
    #[schema(example = 201)]
    pub status: u16,
    /// The `Location` header.
    #[schema(required, example = "/payments/019ad5f0-0000-7000-8000-000000000000")]
    pub location: Option<String>,
    /// The body as JSON; `null` once it has been erased.
    #[schema(required, value_type = Option<Object>)]
    pub body: Option<Box<serde_json::value::RawValue>>,
}

/// One page of a list, newest first.
#[derive(Serialize)]
pub struct Page<T> {
    /// The things.
    pub data: Vec<T>,
    /// Sent as `cursor`, it gives the next page; `null` on the last.
    pub next_cursor: Option<String>,
}

/// A page of accounts.
pub type AccountPage<'a> = Page<AccountJson<'a>>;
/// A page of payments.
pub type PaymentPage<'a> = Page<PaymentJson<'a>>;
/// A page of refunds.
pub type RefundPage<'a> = Page<RefundJson<'a>>;
/// A page of an account's statement.
pub type EntryPage = Page<EntryJson>;

/// By hand, because the derived schema of a generic type is called `Page_Account` and repeats the account in full.
impl<T: ToSchema> ToSchema for Page<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Page", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into(), T::schema()));
        T::schemas(schemas);
    }
}

impl<T: ToSchema> PartialSchema for Page<T> {
    fn schema() -> RefOr<Schema> {
        let next_cursor = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .description(Some("Sent as `cursor`, it gives the next page; `null` on the last"));
        ObjectBuilder::new()
            .description(Some("One page of a list, newest first"))
            .property("data", Array::new(Ref::from_schema_name(T::name())))
            .property("next_cursor", next_cursor)
            .required("data")
            .required("next_cursor")
            .into()
    }
}
