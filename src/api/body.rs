//! Request bodies: from JSON to a [`Command`], or a problem that names every wrong field at once.
//!
//! Each struct takes its members as any JSON ([`Member`]), so that a wrong type is a message about that field and not a
//! parser's complaint; what serde refuses here can only be a member that nobody knows.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};
use uuid::Uuid;

use super::check::{Check, Member};
use super::{Code, Problem, strict_json};
use crate::domain::text::{METADATA_KEY_MAX, METADATA_MAX, METADATA_VALUE_MAX};
use crate::domain::{
    AccountId, Command, Description, Movement, Name, OpenAccount, Parties, Pay, PaymentId, Reference, RefundPayment,
    beginning, excerpt,
};
use crate::money::{Currency, Sum};

/// Most bytes of a body.
pub const BODY_MAX: usize = 64 * 1024;

/// Most characters of serde's sentence on an unknown member: it repeats the name, however long that is.
const UNKNOWN_MEMBER_MAX: usize = 500;

/// A body, and what a caller is told who has sent no object.
pub trait Body: DeserializeOwned {
    /// What it must be.
    const EXPECTED: &'static str = "a JSON object";
}

/// Reads a body into one of the structs below.
///
/// # Errors
/// `malformed_request` or `unknown_parameter`.
pub fn read<B: Body>(bytes: &[u8]) -> Result<B, Problem> {
    let object =
        strict_json::checked_object(bytes, B::EXPECTED).map_err(|error| Problem::new(Code::MalformedRequest, error))?;
    serde_json::from_slice(object).map_err(|error| {
        let sentence = error.to_string();
        let sentence = beginning(&sentence, UNKNOWN_MEMBER_MAX);
        Problem::new(Code::UnknownParameter, format!("body: {sentence}"))
    })
}

/// Reads a UUID as it stands in paths and bodies.
///
/// # Errors
/// A sentence that says what is right.
pub fn read_uuid(text: &str) -> Result<Uuid, String> {
    // Uuid also reads braces, URNs and bare digits: one spelling is enough for everybody.
    Uuid::try_parse(text).ok().filter(|_| text.len() == 36).ok_or_else(|| {
        let sent = excerpt(text);
        format!("must be a UUID, for example \"019ad5f0-0000-7000-8000-000000000000\", not {sent:?}")
    })
}

/// Body of `POST /accounts`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAccount, example = json!({"currency": "USD", "name": "Alice"}))]
pub struct OpenAccountBody {
    /// ISO 4217, in circulation; never changes.
    #[serde(default)]
    #[schema(required, value_type = String, example = "USD", pattern = "^[A-Z]{3}$")]
    currency: Member,
    /// 1 to 255 characters.
    #[serde(default)]
    #[schema(required, value_type = String, min_length = 1, max_length = 255, example = "Alice", pattern = "^[^\\u0000]*$")]
    name: Member,
    /// The caller's own number, 1 to 255 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255, pattern = "^[^\\u0000]*$")]
    reference: Member,
    /// The caller's own data.
    #[serde(default)]
    #[schema(schema_with = metadata_schema)]
    metadata: Member,
}

impl Body for OpenAccountBody {}

impl OpenAccountBody {
    /// The valid command.
    ///
    /// # Errors
    /// `validation_failed`.
    pub fn into_command(self) -> Result<Command, Problem> {
        let mut check = Check::default();
        let currency = check.currency(&self.currency, Currency::for_new_account);
        let name = check.required("name", &self.name, |text| Name::new(text.to_owned()));
        let reference = check.optional("reference", &self.reference, |text| Reference::new(text.to_owned()));
        let metadata = check.metadata(&self.metadata);
        let (Some(currency), Some(name)) = (currency, name) else {
            return Err(check.into_problem());
        };
        check.done()?;
        Ok(Command::OpenAccount(OpenAccount {
            currency,
            name,
            reference,
            metadata,
        }))
    }
}

/// Body of `POST /accounts/{id}/deposits` and `POST /accounts/{id}/withdrawals`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MoveMoney, example = json!({"amount": "100.00", "currency": "USD"}))]
pub struct MovementBody {
    /// In major units, as a decimal string.
    #[serde(default)]
    #[schema(required, value_type = String, example = "100.00", pattern = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$")]
    amount: Member,
    /// ISO 4217, the account's.
    #[serde(default)]
    #[schema(required, value_type = String, example = "USD", pattern = "^[A-Z]{3}$")]
    currency: Member,
    /// Up to 500 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500, pattern = "^[^\\u0000]*$")]
    description: Member,
}

impl Body for MovementBody {}

impl MovementBody {
    /// The valid movement on `account`.
    ///
    /// # Errors
    /// `validation_failed`.
    pub fn into_movement(self, account: AccountId) -> Result<Movement, Problem> {
        let mut check = Check::default();
        let amount = check.amount(&self.amount, &self.currency);
        let description = check.optional("description", &self.description, |text| {
            Description::new(text.to_owned())
        });
        let Some(amount) = amount else {
            return Err(check.into_problem());
        };
        check.done()?;
        Ok(Movement {
            account,
            amount,
            description,
        })
    }
}

/// Body of `POST /payments`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Pay, example = json!({
    "payer_account_id": "019ad5f0-0000-7000-8000-000000000001", "payee_account_id": "019ad5f0-0000-7000-8000-000000000002",
    "amount": "12.50", "currency": "USD", "description": "Two coffees", "reference": "order-4711",
}))]
pub struct PayBody {
    /// Whose money it is.
    #[serde(default)]
    #[schema(required, value_type = String, format = Uuid)]
    payer_account_id: Member,
    /// Whose it will be.
    #[serde(default)]
    #[schema(required, value_type = String, format = Uuid)]
    payee_account_id: Member,
    /// In major units, as a decimal string.
    #[serde(default)]
    #[schema(required, value_type = String, example = "12.50", pattern = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$")]
    amount: Member,
    /// ISO 4217, that of both accounts.
    #[serde(default)]
    #[schema(required, value_type = String, example = "USD", pattern = "^[A-Z]{3}$")]
    currency: Member,
    /// Up to 500 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500, pattern = "^[^\\u0000]*$")]
    description: Member,
    /// The caller's own number, 1 to 255 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255, pattern = "^[^\\u0000]*$")]
    reference: Member,
    /// The caller's own data.
    #[serde(default)]
    #[schema(schema_with = metadata_schema)]
    metadata: Member,
}

impl Body for PayBody {}

impl PayBody {
    /// The valid command.
    ///
    /// # Errors
    /// `validation_failed` or `same_account`.
    pub fn into_command(self) -> Result<Command, Problem> {
        let mut check = Check::default();
        let payer = check.required("payer_account_id", &self.payer_account_id, read_uuid);
        let payee = check.required("payee_account_id", &self.payee_account_id, read_uuid);
        let amount = check.amount(&self.amount, &self.currency);
        let description = check.optional("description", &self.description, |text| {
            Description::new(text.to_owned())
        });
        let reference = check.optional("reference", &self.reference, |text| Reference::new(text.to_owned()));
        let metadata = check.metadata(&self.metadata);
        let (Some(payer), Some(payee), Some(amount)) = (payer, payee, amount) else {
            return Err(check.into_problem());
        };
        check.done()?;
        let parties = Parties::new(AccountId(payer), AccountId(payee))
            .map_err(|same| Problem::new(Code::SameAccount, format!("account {} would pay itself", same.0)))?;
        Ok(Command::Pay(Pay {
            parties,
            amount,
            description,
            reference,
            metadata,
        }))
    }
}

/// Body of `POST /payments/{id}/refunds`; it may be empty.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RefundPayment, example = json!({"amount": "5.00", "reason": "one was cold"}))]
pub struct RefundBody {
    /// In the payment's currency; without it all that remains is refunded.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "5.00", pattern = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$")]
    amount: Member,
    /// Up to 500 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Member,
    /// Refuse with 412 unless exactly this much was refunded before.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "0.00", pattern = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$")]
    expected_refunded_amount: Member,
}

impl Body for RefundBody {
    const EXPECTED: &'static str = "a JSON object (`{}` or no body at all refunds what remains)";
}

impl RefundBody {
    /// The valid command on `payment`.
    ///
    /// # Errors
    /// `validation_failed`.
    pub fn into_command(self, payment: PaymentId) -> Result<Command, Problem> {
        let mut check = Check::default();
        let amount = check.money("amount", &self.amount, None, Sum::parse_positive);
        let reason = check.optional("reason", &self.reason, |text| Description::new(text.to_owned()));
        let expected_refunded = check.money(
            "expected_refunded_amount",
            &self.expected_refunded_amount,
            None,
            Sum::parse,
        );
        check.done()?;
        Ok(Command::Refund(RefundPayment {
            payment,
            amount,
            reason,
            expected_refunded,
        }))
    }
}

/// The body of a `POST` that has nothing to say: empty, or `{}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoBody {}

impl Body for NoBody {
    const EXPECTED: &'static str = "`{}` or absent";
}

/// Metadata as the document describes it.
fn metadata_schema() -> Object {
    let text = || {
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .pattern(Some("^[^\\u0000]*$"))
    };
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some(format!(
            "Up to {METADATA_MAX} texts of up to {METADATA_VALUE_MAX} characters, keys of 1 to {METADATA_KEY_MAX}."
        )))
        .property_names(Some(
            text().min_length(Some(1)).max_length(Some(METADATA_KEY_MAX)).build(),
        ))
        .additional_properties(Some(text().max_length(Some(METADATA_VALUE_MAX))))
        .max_properties(Some(METADATA_MAX))
        .examples([json!({"table": "4"})])
        .build()
}

#[cfg(test)]
#[path = "body_test.rs"]
mod tests;

#[cfg(test)]
#[path = "body_property_test.rs"]
mod properties;
