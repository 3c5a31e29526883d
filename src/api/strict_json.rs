//! JSON that means one thing only.
//!
//! Most parsers let the last of two equal members win. Then two readers of one request may see two
//! different amounts, and a hash over it proves nothing. Here a duplicate member is an error at any depth, and so is U+0000,
//! which PostgreSQL can't store in a text.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::domain::excerpt;

/// What some programs write in front of UTF-8. It means nothing: RFC 8259 lets a reader skip it.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// What kind of thing a JSON value is. `Display` is the word with its article.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// What kind of thing `value` is.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// The bytes of a JSON object that means one thing only, without a byte-order mark; no bytes at all count as `{}`. `expected` says in a message what a body
/// that is no object should have been.
///
/// # Errors
/// A sentence that says what is wrong and where.
pub fn checked_object<'a>(bytes: &'a [u8], expected: &str) -> Result<&'a [u8], String> {
    if bytes.is_empty() {
        return Ok(b"{}");
    }
    if let Some(encoding) = other_encoding(bytes) {
        return Err(format!("the body must be UTF-8, not {encoding}"));
    }
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(Strict(Kind::Object)) => Ok(bytes),
        Ok(Strict(other)) => Err(format!("the body must be {expected}, not {other}")),
        Err(error) => Err(format!("the body is not acceptable JSON: {error}")),
    }
}

/// The encoding of JSON that is not UTF-8, by its byte-order mark or by where the zero bytes of its first, ASCII, characters are.
fn other_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] | [0, 0, 0, _, ..] | [_, 0, 0, 0, ..] => Some("UTF-32"),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [0, _, ..] | [_, 0, _, ..] => Some("UTF-16"),
        _ => None,
    }
}

/// A value in which nothing can be read in two ways.
struct Strict(Kind);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

fn no_nul<E: Error>(text: &str) -> Result<&str, E> {
    if text.contains('\0') {
        Err(E::custom("the character U+0000 is not allowed"))
    } else {
        Ok(text)
    }
}

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Kind;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Kind, E> {
        Ok(Kind::Boolean)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Kind, E> {
        Ok(Kind::Number)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Kind, E> {
        Ok(Kind::Number)
    }

    #[expect(
        clippy::disallowed_types,
        reason = "serde hands a JSON number with a fraction over as f64; nobody looks at it"
    )]
    fn visit_f64<E: Error>(self, _: f64) -> Result<Kind, E> {
        Ok(Kind::Number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Kind, E> {
        no_nul(text).map(|_| Kind::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        while let Some(Strict(_)) = items.next_element()? {}
        Ok(Kind::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Kind, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, Strict(_))) = members.next_entry::<String, Strict>()? {
            no_nul(&name)?;
            if let Some(name) = names.replace(name) {
                let name = excerpt(&name);
                return Err(A::Error::custom(format!("the member {name:?} is given twice")));
            }
        }
        Ok(Kind::Object)
    }
}

#[cfg(test)]
#[path = "strict_json_test.rs"]
mod tests;
