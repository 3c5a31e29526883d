//! The members of a body, checked one by one; what is wrong with each is collected, so that a caller learns all of it at once.

use std::collections::BTreeMap;
use std::fmt::Display;

use rust_decimal::Decimal;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::strict_json::Kind;
use super::{FieldError, Problem};
use crate::domain::{Metadata, excerpt};
use crate::money::{Amount, Currency, MoneyError, Sum};

/// An amount as a person would write it, for messages when the currency is not known.
const AN_AMOUNT: &str = "12.50";

/// A member of a body as it was sent.
pub(super) enum Member {
    /// A number's own text. serde would make a binary float of it, and a message would then repeat what nobody has sent.
    Number(String),
    /// Any other JSON.
    Other(Value),
}

impl Default for Member {
    fn default() -> Self {
        Self::Other(Value::Null)
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sent = <&RawValue>::deserialize(deserializer)?.get();
        Ok(match serde_json::from_str(sent).map_err(Error::custom)? {
            Value::Number(_) => Self::Number(sent.to_owned()),
            other => Self::Other(other),
        })
    }
}

impl Member {
    fn is_null(&self) -> bool {
        matches!(self, Self::Other(Value::Null))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Number(_) => Kind::Number,
            Self::Other(value) => Kind::of(value),
        }
    }
}

/// Collects what is wrong. A getter returns `None` if it noted an error.
#[derive(Default)]
pub(super) struct Check {
    errors: Vec<FieldError>,
}

impl Check {
    fn wrong<T>(&mut self, field: &str, message: impl Display) -> Option<T> {
        self.errors.push(FieldError::new(field, &message));
        None
    }

    pub fn required<T, E: Display>(
        &mut self,
        field: &str,
        member: &Member,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if member.is_null() {
            return self.wrong(field, "is required");
        }
        self.optional(field, member, read)
    }

    /// `null` is the same as absent.
    pub fn optional<T, E: Display>(
        &mut self,
        field: &str,
        member: &Member,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match member {
            Member::Other(Value::Null) => None,
            Member::Other(Value::String(text)) => match read(text) {
                Ok(value) => Some(value),
                Err(error) => self.wrong(field, error),
            },
            other => self.wrong(field, format!("must be a string, not {}", other.kind())),
        }
    }

    /// `read` knows which currencies are accepted.
    pub fn currency(
        &mut self,
        member: &Member,
        read: impl FnOnce(&str) -> Result<Currency, MoneyError>,
    ) -> Option<Currency> {
        let read = |text: &str| {
            read(text).map_err(|error| match error {
                MoneyError::Currency => format!("{error}, not {:?}", excerpt(text)),
                other => other.to_string(),
            })
        };
        self.required("currency", member, read)
    }

    pub fn amount(&mut self, amount: &Member, currency: &Member) -> Option<Amount> {
        let currency = self.currency(currency, str::parse);
        if amount.is_null() {
            let example = example(currency);
            return self.wrong(
                "amount",
                format!("is required: a decimal string, for example \"{example}\""),
            );
        }
        let Some(currency) = currency else {
            self.money("amount", amount, None, Sum::parse_positive);
            return None;
        };
        self.money("amount", amount, Some(currency), |text| Amount::parse(text, currency))
    }

    pub fn money<T>(
        &mut self,
        field: &str,
        member: &Member,
        currency: Option<Currency>,
        read: impl Fn(&str) -> Result<T, MoneyError>,
    ) -> Option<T> {
        let read_text = |text: &str| read(text).map_err(|error| about_text(text, error, currency));
        match member {
            Member::Number(sent) => {
                let message = about_number(sent, currency, |text| read(text).map(drop));
                self.wrong(field, message)
            }
            Member::Other(Value::Null | Value::String(_)) => self.optional(field, member, read_text),
            other @ Member::Other(_) => {
                let (example, kind) = (example(currency), other.kind());
                self.wrong(
                    field,
                    format!("must be a decimal string, for example \"{example}\", not {kind}"),
                )
            }
        }
    }

    pub fn metadata(&mut self, member: &Member) -> Option<Metadata> {
        let members = match member {
            Member::Other(Value::Null) => return None,
            Member::Other(Value::Object(members)) => members,
            other => {
                return self.wrong(
                    "metadata",
                    format!("must be an object of strings, not {}", other.kind()),
                );
            }
        };
        // Before the members are looked at: a message on each of thousands would be longer than the body.
        if let Err(error) = Metadata::check_number(members.len()) {
            return self.wrong("metadata", error);
        }
        let mut texts = BTreeMap::new();
        for (key, value) in members {
            if let Value::String(text) = value {
                texts.insert(key.clone(), text.clone());
            } else {
                let field = format!("metadata.{}", excerpt(key));
                self.wrong::<()>(&field, format!("must be a string, not {}", Kind::of(value)));
            }
        }
        Metadata::new(texts).map_or_else(|error| self.wrong("metadata", error), Some)
    }

    pub fn into_problem(self) -> Problem {
        Problem::invalid(self.errors)
    }

    pub fn done(self) -> Result<(), Problem> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.into_problem())
        }
    }
}

/// An amount as a person would write it, for messages. They say that it is an example: whoever copies it pays it.
fn example(currency: Option<Currency>) -> &'static str {
    currency.map_or(AN_AMOUNT, Currency::example)
}

/// What a caller is told whose text is no amount.
fn about_text(text: &str, error: MoneyError, currency: Option<Currency>) -> String {
    match error {
        MoneyError::Notation(_) | MoneyError::TooPrecise(_) | MoneyError::TooPreciseForAny => {
            let (example, sent) = (example(currency), excerpt(text));
            format!("must be a decimal string, for example \"{example}\"; {sent:?} {error}")
        }
        other => other.to_string(),
    }
}

/// What a caller is told who has sent a number: the string to send if the number is an amount, else what else is wrong with it.
fn about_number(sent: &str, currency: Option<Currency>, read: impl Fn(&str) -> Result<(), MoneyError>) -> String {
    let text = exact(sent).map(|value| {
        currency
            .map_or(value.normalize(), |currency| currency.exact(value))
            .to_string()
    });
    let (example, sent) = (example(currency), excerpt(sent));
    let unusable = |wrong: &dyn Display| {
        format!("must be a decimal string, for example \"{example}\", not a JSON number; {sent} {wrong}")
    };
    match text.map(|text| read(&text).map(|()| text)) {
        Some(Ok(text)) => format!("must be a decimal string, not the JSON number {sent}: send \"{text}\""),
        Some(Err(error)) => unusable(&error),
        None => unusable(&"has more digits than an amount can have"),
    }
}

/// The value of a JSON number, to the last digit or not at all. (`Decimal::from_scientific` rounds.)
fn exact(number: &str) -> Option<Decimal> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let mantissa = Decimal::from_str_exact(mantissa).ok()?.normalize();
    let scale = i64::from(mantissa.scale()).checked_sub(exponent.parse().ok()?)?;
    if let Ok(scale) = u32::try_from(scale) {
        return Decimal::try_from_i128_with_scale(mantissa.mantissa(), scale).ok();
    }
    let zeros = u32::try_from(scale.checked_neg()?).ok()?;
    let digits = mantissa.mantissa().checked_mul(10_i128.checked_pow(zeros)?)?;
    Decimal::try_from_i128_with_scale(digits, 0).ok()
}
