//! What can be asked.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::ask::Ask;
use crate::model::money;

/// Something to ask for: what is posted, and something else that might be posted under the same key.
#[derive(Clone)]
pub struct Question {
    pub ask: Ask,
    pub other: Ask,
}

impl Question {
    /// Of a body with a free text; the text does not matter, but another one is another request.
    pub fn new(path: &str, mut body: Map<String, Value>, text: &str) -> Self {
        let mut with = |value: &str| {
            body.insert(text.to_owned(), json!(value));
            Ask {
                path: path.to_owned(),
                body: json!(body).to_string(),
            }
        };
        Self {
            ask: with("one thing"),
            other: with("another thing"),
        }
    }

    /// Without a body; something else is then another route.
    pub fn bare(account: Uuid, verb: &str, other_verb: &str) -> Self {
        let ask = |verb| Ask {
            path: format!("/accounts/{account}/{verb}"),
            body: String::new(),
        };
        Self {
            ask: ask(verb),
            other: ask(other_verb),
        }
    }

    pub fn payment(from: Uuid, to: Uuid, cents: i64) -> Self {
        let body = members([
            ("payer_account_id", json!(from)),
            ("payee_account_id", json!(to)),
            ("amount", json!(money(cents))),
            ("currency", json!("USD")),
        ]);
        Self::new("/payments", body, "description")
    }
}

/// A body.
pub fn members<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
