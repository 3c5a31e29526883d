//! A name is the same in the program, in the database and in the contract: the three lists of each enum are one.

use std::collections::BTreeSet;

use payonce::domain::{AccountKind, AccountStatus, PaymentStatus, TransferKind};
use payonce::idempotency::ResourceKind;
use payonce::storage::api_keys::Scope;
use serde_json::Value;

use crate::support::TestDatabase;

type Names = BTreeSet<String>;

/// The names of all variants of an enum, each of which reads its own.
macro_rules! names {
    ($type:ident) => {{
        let names = $type::ALL.iter().map(|it| {
            assert_eq!($type::parse(it.as_str()), Ok(*it));
            it.as_str().to_owned()
        });
        names.collect::<Names>()
    }};
}

/// The texts that a CHECK constraint of a column compares it with.
fn checked(database: &TestDatabase, table: &str, column: &str) -> Names {
    let definition = database.word(&format!(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = '{table}_{column}_check'"
    ));
    let quoted = definition.split('\'').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

/// What a `pattern` of the document such as `^(a|b)$` permits.
fn permitted(document: &Value, pointer: &str) -> Names {
    let pattern = document.pointer(pointer).and_then(Value::as_str);
    let pattern = pattern.unwrap_or_else(|| panic!("nothing at {pointer}"));
    let names = pattern.strip_prefix("^(").and_then(|rest| rest.strip_suffix(")$"));
    let names = names.unwrap_or_else(|| panic!("{pointer}: {pattern} lists no names"));
    names.split('|').map(str::to_owned).collect()
}

/// Without this a variant is added, and the first row that has it breaks a constraint: the request is answered 500, for ever.
#[test]
fn the_database_permits_just_the_names_that_the_program_writes() {
    let database = TestDatabase::new();
    for (table, column, names) in [
        ("accounts", "kind", names!(AccountKind)),
        ("accounts", "status", names!(AccountStatus)),
        ("transfers", "kind", names!(TransferKind)),
        ("idempotency_keys", "resource_kind", names!(ResourceKind)),
        ("api_keys", "scopes", names!(Scope)),
    ] {
        assert_eq!(checked(&database, table, column), names, "{table}.{column}");
    }
}

/// Without this a client that was made from the document refuses an answer which it does not know.
#[test]
fn the_document_lists_just_the_names_that_the_program_answers() {
    let document = payonce::http::openapi::json().expect("the document");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let schema = |name: &str, member: &str| format!("/components/schemas/{name}/properties/{member}/pattern");
    for (pointer, names) in [
        (schema("Account", "status"), names!(AccountStatus)),
        (schema("Payment", "status"), names!(PaymentStatus)),
        (schema("Entry", "kind"), names!(TransferKind)),
    ] {
        assert_eq!(permitted(&document, &pointer), names, "{pointer}");
    }
    let parameters = document["paths"]["/payments"]["get"]["parameters"].as_array();
    let mut parameters = parameters.expect("parameters").iter();
    let status = parameters.find(|it| it["name"] == "status").expect("a filter");
    assert_eq!(permitted(status, "/schema/pattern"), names!(PaymentStatus));
    for name in names!(PaymentStatus) {
        let description = status["description"].as_str().expect("a description");
        assert!(description.contains(&format!("`{name}`")), "{description}");
    }
}
