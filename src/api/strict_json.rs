//! JSON that means one thing only.
//!
//! Most parsers let the last of two equal members win. Then two readers of one request may see two
//! different amounts, and a hash over it proves nothing. Here a duplicate member is an error at any depth, and so is U+0000,
//! which PostgreSQL can't store in a text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses a JSON object strictly; no bytes at all count as `{}`.
///
/// # Errors
/// A sentence that says what is wrong and where.
pub fn parse_object(bytes: &[u8]) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    match serde_json::from_slice::<Strict>(bytes) {
        Ok(Strict(object @ Value::Object(_))) => Ok(object),
        Ok(_) => Err("the body must be a JSON object".to_owned()),
        Err(error) => Err(format!("the body is not acceptable JSON: {error}")),
    }
}

struct Strict(Value);

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
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    #[expect(
        clippy::disallowed_types,
        reason = "serde hands a JSON number with a fraction over as f64; it ends as an error message"
    )]
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        no_nul(text).map(Value::from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, Strict>()? {
            no_nul(&name)?;
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the member {name:?} stands there twice")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
#[path = "strict_json_test.rs"]
mod tests;
