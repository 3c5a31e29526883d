//! Proves that a query string is read as what it says, or refused.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

use super::*;

const KNOWN: &[&str] = &["reference", "at", "account_id"];

fn query(name: &str, value: &str) -> Result<Query, Problem> {
    Query::parse(
        &format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)),
        KNOWN,
    )
}

/// Anything at all, and texts that are nearly query strings.
fn texts() -> impl Strategy<Value = String> {
    let parts = [
        "reference",
        "at",
        "=",
        "&",
        "%",
        "%0",
        "%00",
        "%ff",
        "%C3%A9",
        "+",
        "é",
        "a",
        ";",
    ];
    prop_oneof![
        any::<String>(),
        prop::collection::vec(prop::sample::select(parts.to_vec()), 0..12).prop_map(|parts| parts.concat()),
    ]
}

/// Anything at all, and texts that are nearly instants.
fn instants() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,12})?([Zz]|[-+ ][0-9]{2}:?[0-9]{2})?",
        "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T(0[0-9]|1[0-9]):[0-5][0-9]:[0-6][0-9](Z|\\+00:00|-23:59)",
    ]
}

proptest! {
    /// Without it some address takes a worker down, or U+0000 gets through to PostgreSQL.
    #[test]
    fn any_text_is_refused_or_read_without_the_null_character(text in texts()) {
        if let Ok(query) = Query::parse(&text, KNOWN) {
            prop_assert!(query.0.keys().all(|name| KNOWN.contains(&name.as_str())));
            prop_assert!(!query.0.values().any(|value| value.contains('\0')));
        }
    }

    /// X4. Without it a list is filtered by something else than what was asked for.
    #[test]
    fn what_was_encoded_is_what_is_read(value in any::<String>()) {
        let read = query("reference", &value).ok();
        let read = read.as_ref().and_then(|query| query.text("reference"));
        prop_assert_eq!(read, Some(value.as_str()).filter(|value| !value.contains('\0')));
    }

    /// Without it a balance is told for another instant, or one that PostgreSQL can't store is a 500.
    #[test]
    fn an_instant_is_rfc_3339_and_no_other(text in instants()) {
        let Ok(query) = query("at", &text) else { return Ok(()) };
        if let Ok(Some(instant)) = query.instant("at") {
            let meant = DateTime::parse_from_rfc3339(&text.replace(' ', "+"));
            prop_assert_eq!(Ok(instant), meant.map(|meant| meant.to_utc()));
            prop_assert!((-1..=10_000).contains(&chrono::Datelike::year(&instant)));
        }
    }

    /// Without it one id has two spellings, or a text that is none reaches PostgreSQL.
    #[test]
    fn an_id_has_one_form(id in any::<u128>(), text in "[-0-9a-fA-F{}]{0,40}") {
        let id = Uuid::from_u128(id);
        for spelled in [id.to_string(), id.to_string().to_uppercase()] {
            prop_assert_eq!(query("account_id", &spelled).unwrap().uuid("account_id").unwrap(), Some(id));
        }
        if let Ok(Some(read)) = query("account_id", &text).unwrap().uuid("account_id") {
            prop_assert_eq!(read.to_string(), text.to_lowercase());
        }
    }
}
