//! Request bodies: from JSON to a [`Command`], or a problem that names every wrong field at once.
//!
//! Each struct takes its members as raw JSON, so that a wrong type is a message about that field and not a parser's
//! complaint; what serde refuses here can only be a member that nobody knows.

use std::collections::BTreeMap;
use std::fmt::Display;

use rust_decimal::Decimal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};
use uuid::Uuid;

use super::{Code, FieldError, Problem, strict_json};
use crate::domain::{
    AccountId, Command, Description, Metadata, Movement, Name, OpenAccount, Pay, PaymentId, Reference, RefundPayment,
};
use crate::money::{Amount, Currency, MoneyError, Sum};

/// An amount as a person would write it, for messages when the currency is not known.
const AN_AMOUNT: &str = "12.50";

/// Reads a body into one of the structs below.
///
/// # Errors
/// `malformed_request` or `unknown_parameter`.
pub fn read<B: DeserializeOwned>(bytes: &[u8]) -> Result<B, Problem> {
    let object = strict_json::parse_object(bytes).map_err(|error| Problem::new(Code::MalformedRequest, error))?;
    serde_json::from_value(object).map_err(|error| Problem::new(Code::UnknownParameter, format!("body: {error}")))
}

/// Reads a UUID as it stands in paths and bodies.
///
/// # Errors
/// A sentence that says what is right.
pub fn read_uuid(text: &str) -> Result<Uuid, &'static str> {
    // Uuid also reads braces, URNs and bare digits: one spelling is enough for everybody.
    Uuid::try_parse(text)
        .ok()
        .filter(|_| text.len() == 36)
        .ok_or("must be a UUID such as \"019ad5f0-0000-7000-8000-000000000000\"")
}

/// Body of `POST /accounts`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAccount, example = json!({"currency": "USD", "name": "Alice"}))]
pub struct OpenAccountBody {
    /// ISO 4217; never changes.
    #[serde(default)]
    #[schema(required, value_type = String, example = "USD", pattern = "^[A-Z]{3}$")]
    currency: Value,
    /// 1 to 255 characters.
    #[serde(default)]
    #[schema(required, value_type = String, min_length = 1, max_length = 255, example = "Alice", pattern = "^[^\\u0000]*$")]
    name: Value,
    /// The caller's own number, 1 to 255 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255, pattern = "^[^\\u0000]*$")]
    reference: Value,
    /// Up to 50 texts of up to 500 characters, keys of 1 to 40.
    #[serde(default)]
    #[schema(schema_with = metadata_schema)]
    metadata: Value,
}

impl OpenAccountBody {
    /// The valid command.
    ///
    /// # Errors
    /// `validation_failed`.
    pub fn into_command(self) -> Result<Command, Problem> {
        let mut check = Check::default();
        let currency = check.required("currency", &self.currency, str::parse::<Currency>);
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
    amount: Value,
    /// ISO 4217, the account's.
    #[serde(default)]
    #[schema(required, value_type = String, example = "USD", pattern = "^[A-Z]{3}$")]
    currency: Value,
    /// Up to 500 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500, pattern = "^[^\\u0000]*$")]
    description: Value,
}

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
    payer_account_id: Value,
    /// Whose it will be.
    #[serde(default)]
    #[schema(required, value_type = String, format = Uuid)]
    payee_account_id: Value,
    /// In major units, as a decimal string.
    #[serde(default)]
    #[schema(required, value_type = String, example = "12.50", pattern = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$")]
    amount: Value,
    /// ISO 4217, that of both accounts.
    #[serde(default)]
    #[schema(required, value_type = String, example = "USD", pattern = "^[A-Z]{3}$")]
    currency: Value,
    /// Up to 500 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500, pattern = "^[^\\u0000]*$")]
    description: Value,
    /// The caller's own number, 1 to 255 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255, pattern = "^[^\\u0000]*$")]
    reference: Value,
    /// Up to 50 texts of up to 500 characters, keys of 1 to 40.
    #[serde(default)]
    #[schema(schema_with = metadata_schema)]
    metadata: Value,
}

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
        let mut pay = Pay::new(AccountId(payer), AccountId(payee), amount)
            .map_err(|same| Problem::new(Code::SameAccount, format!("account {} would pay itself", same.0)))?;
        pay.description = description;
        pay.reference = reference;
        pay.metadata = metadata;
        Ok(Command::Pay(pay))
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
    amount: Value,
    /// Up to 500 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Value,
    /// Refuse with 412 unless exactly this much was refunded before.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "0.00", pattern = r"^(0|[1-9][0-9]{0,14})(\.[0-9]{1,4})?$")]
    expected_refunded_amount: Value,
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

/// Metadata as the document describes it.
fn metadata_schema() -> Object {
    let text = || {
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .pattern(Some("^[^\\u0000]*$"))
    };
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some("Up to 50 texts of up to 500 characters, keys of 1 to 40."))
        .property_names(Some(text().min_length(Some(1)).max_length(Some(40)).build()))
        .additional_properties(Some(text().max_length(Some(500))))
        .max_properties(Some(50))
        .examples([json!({"table": "4"})])
        .build()
}

/// Collects what is wrong, so that a caller learns all of it at once. A getter returns `None` if it noted an error.
#[derive(Default)]
struct Check {
    errors: Vec<FieldError>,
}

impl Check {
    fn wrong<T>(&mut self, field: &str, message: impl Display) -> Option<T> {
        self.errors.push(FieldError::new(field, &message));
        None
    }

    fn required<T, E: Display>(
        &mut self,
        field: &str,
        value: &Value,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if value.is_null() {
            return self.wrong(field, "is required");
        }
        self.optional(field, value, read)
    }

    /// `null` is the same as absent.
    fn optional<T, E: Display>(
        &mut self,
        field: &str,
        value: &Value,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match value {
            Value::Null => None,
            Value::String(text) => match read(text) {
                Ok(value) => Some(value),
                Err(error) => self.wrong(field, error),
            },
            other => self.wrong(field, format!("must be a string, not {}", kind(other))),
        }
    }

    fn amount(&mut self, amount: &Value, currency: &Value) -> Option<Amount> {
        let currency = self.required("currency", currency, str::parse::<Currency>);
        if amount.is_null() {
            let example = example(currency);
            return self.wrong("amount", format!("is required: a decimal string such as \"{example}\""));
        }
        let Some(currency) = currency else {
            self.money("amount", amount, None, Sum::parse_positive);
            return None;
        };
        self.money("amount", amount, Some(currency), |text| Amount::parse(text, currency))
    }

    fn money<T>(
        &mut self,
        field: &str,
        value: &Value,
        currency: Option<Currency>,
        read: impl Fn(&str) -> Result<T, MoneyError>,
    ) -> Option<T> {
        let example = example(currency);
        match value {
            Value::Number(number) => {
                let meant = as_string(&number.to_string(), currency).filter(|text| read(text).is_ok());
                let meant = meant.as_deref().unwrap_or(example);
                self.wrong(
                    field,
                    format!("must be a decimal string, not a JSON number: send \"{meant}\""),
                )
            }
            Value::Null | Value::String(_) => self.optional(field, value, read),
            other => self.wrong(
                field,
                format!("must be a decimal string such as \"{example}\", not {}", kind(other)),
            ),
        }
    }

    fn metadata(&mut self, value: &Value) -> Option<Metadata> {
        let members = match value {
            Value::Null => return None,
            Value::Object(members) => members,
            other => return self.wrong("metadata", format!("must be an object of strings, not {}", kind(other))),
        };
        let mut texts = BTreeMap::new();
        for (key, value) in members {
            match value {
                Value::String(text) => {
                    texts.insert(key.clone(), text.clone());
                }
                other => {
                    self.wrong::<()>(
                        &format!("metadata.{key}"),
                        format!("must be a string, not {}", kind(other)),
                    );
                }
            }
        }
        Metadata::new(texts).map_or_else(|error| self.wrong("metadata", error), Some)
    }

    fn into_problem(self) -> Problem {
        Problem::invalid(self.errors)
    }

    fn done(self) -> Result<(), Problem> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.into_problem())
        }
    }
}

/// An amount as a person would write it, for messages.
fn example(currency: Option<Currency>) -> &'static str {
    currency.map_or(AN_AMOUNT, Currency::example)
}

/// The string that a caller who sent a number probably meant.
fn as_string(number: &str, currency: Option<Currency>) -> Option<String> {
    let value = Decimal::from_str_exact(number)
        .or_else(|_| Decimal::from_scientific(number))
        .ok()?;
    let value = currency.map_or(value.normalize(), |currency| currency.exact(value));
    Some(value.to_string())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
#[path = "body_test.rs"]
mod tests;

#[cfg(test)]
#[path = "body_property_test.rs"]
mod properties;
