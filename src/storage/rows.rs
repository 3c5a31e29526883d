//! From the types of SQL to those of the domain. What does not fit is a row that the constraints should have refused.
//!
//! **A trap.** What is called here (`Currency::from_str`, `Amount::new`, `Name::new`, …) also checks what callers send. If it is
//! narrowed, rows that were right when they were written become unreadable: reads answer 500, and a batch that locks one is
//! `Broken`. A rule for new things goes where they are made: `Currency::for_new_account` is one.

use std::error::Error;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use rust_decimal::Decimal;
use serde_json::Value;
use uuid::Uuid;

use crate::domain::{Description, Metadata, Name, Reference, UnknownName};
use crate::money::{Amount, Currency};

/// Where a page of a list begins: after the thing made at this time with this id. Both, because times can be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// When the last thing of the page before was made.
    pub created_at: DateTime<Utc>,
    /// Its id.
    pub id: Uuid,
}

/// "Comes after this position, newest first." The first condition looks redundant; it is the one an index can start from.
macro_rules! after {
    ($table:ident, $position:expr) => {
        $table::created_at.le($position.created_at).and(
            $table::created_at
                .lt($position.created_at)
                .or($table::id.lt($position.id)),
        )
    };
}
pub(super) use after;

/// A value in the database that the domain does not know.
pub fn unreadable(error: impl Into<Box<dyn Error + Send + Sync>>) -> diesel::result::Error {
    diesel::result::Error::DeserializationError(error.into())
}

/// Reads a name with the `parse` of an enum.
pub fn named<T>(name: &str, parse: fn(&str) -> Result<T, UnknownName>) -> QueryResult<T> {
    parse(name).map_err(|error| unreadable(format!("{name:?} {error}")))
}

pub fn currency(code: &str) -> QueryResult<Currency> {
    code.parse().map_err(unreadable)
}

pub fn amount(value: Decimal, currency: Currency) -> QueryResult<Amount> {
    Amount::new(value, currency).map_err(unreadable)
}

pub fn name(text: String) -> QueryResult<Name> {
    Name::new(text).map_err(unreadable)
}

pub fn reference(text: Option<String>) -> QueryResult<Option<Reference>> {
    text.map(Reference::new).transpose().map_err(unreadable)
}

pub fn description(text: Option<String>) -> QueryResult<Option<Description>> {
    text.map(Description::new).transpose().map_err(unreadable)
}

pub fn metadata(json: Option<Value>) -> QueryResult<Option<Metadata>> {
    let Some(json) = json else { return Ok(None) };
    let members = serde_json::from_value(json).map_err(unreadable)?;
    Metadata::new(members).map(Some).map_err(unreadable)
}

pub fn metadata_json(metadata: Option<&Metadata>) -> Option<Value> {
    let texts = metadata?.members().iter();
    Some(Value::Object(
        texts
            .map(|(key, text)| (key.clone(), Value::from(text.as_str())))
            .collect(),
    ))
}
