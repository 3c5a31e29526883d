//! Proves that what is kept by operation is kept for every operation, and that what the document repeats is what is checked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::domain::text::{DESCRIPTION_MAX, NAME_MAX};
use crate::money::MAX;

/// Without it a new operation is documented as one that never refuses anything, or a client generator leaves out its body.
#[test]
fn each_operation_is_listed_once_beside_its_handler() {
    let document = openapi();
    let items = document.paths.paths.values();
    let operations: Vec<_> = items.flat_map(|item| [&item.get, &item.post]).flatten().collect();
    let has_body: BTreeMap<&str, bool> = operations
        .iter()
        .map(|it| (it.operation_id.as_deref().unwrap(), it.request_body.is_some()))
        .collect();
    let listed: BTreeMap<&str, bool> = all_operations().map(|own| (own.id, own.body != Body::None)).collect();
    assert_eq!(listed, has_body);
    assert_eq!(all_operations().count(), operations.len(), "one is listed twice");
}

/// Without it a link of the document leads nowhere.
#[test]
fn each_operation_that_comes_next_exists() {
    for next in all_operations().flat_map(|own| own.then) {
        assert!(operation_called(Some(next)).is_some(), "{next}");
    }
}

/// The document as JSON.
fn json_document() -> Value {
    serde_json::to_value(openapi()).unwrap()
}

/// Each member of each body, with its schema.
fn members() -> Vec<(String, Value)> {
    let document = json_document();
    let paths = document["paths"].as_object().unwrap().values();
    let bodies = paths.filter_map(|item| {
        let schema = &item["post"]["requestBody"]["content"]["application/json"]["schema"];
        document.pointer(schema["$ref"].as_str()?.strip_prefix('#')?)
    });
    let of_body = |body: &Value| body["properties"].as_object().unwrap().clone();
    bodies.flat_map(of_body).collect()
}

/// Attributes take only literals, so the document repeats the limits that are checked. Without it a client believes that it may
/// send what is refused, or may not send what would be taken.
#[test]
fn a_text_is_documented_with_the_limits_that_are_checked() {
    let mut limited = BTreeSet::new();
    for (member, schema) in members() {
        let (least, most, said) = match member.as_str() {
            "name" | "reference" => (json!(1), json!(NAME_MAX), format!("1 to {NAME_MAX} characters")),
            "description" | "reason" => (
                Value::Null,
                json!(DESCRIPTION_MAX),
                format!("Up to {DESCRIPTION_MAX} characters"),
            ),
            _ => {
                assert_eq!(
                    schema.get("maxLength"),
                    None,
                    "{member}: a limit that this test does not know"
                );
                continue;
            }
        };
        let documented = [&schema["minLength"], &schema["maxLength"]];
        assert_eq!(documented, [&least, &most], "{member}");
        let description = schema["description"].as_str().unwrap();
        assert!(description.contains(&said), "{member}: {description}");
        limited.insert(member);
    }
    assert_eq!(limited.len(), 4, "{limited:?}");
}

/// The same of amounts: as many digits as the largest has, and as many decimals as any currency.
#[test]
fn an_amount_is_documented_with_the_digits_that_are_checked() {
    let largest = MAX.to_string();
    let (whole, decimals) = largest.split_once('.').unwrap();
    let (after_the_first, decimals) = (whole.len() - 1, decimals.len());
    let pattern = format!(r"^(0|[1-9][0-9]{{0,{after_the_first}}})(\.[0-9]{{1,{decimals}}})?$");
    let all = members();
    let amounts: Vec<_> = all.iter().filter(|(member, _)| member.ends_with("amount")).collect();
    assert_eq!(amounts.len(), 5, "two movements, a payment, and twice in a refund");
    for (member, schema) in amounts {
        assert_eq!(schema["pattern"], pattern, "{member}");
    }
}

/// The same of a key that stands in a path.
#[test]
fn a_key_is_documented_with_the_length_that_is_checked() {
    let document = json_document();
    let key = &document["paths"]["/idempotency-keys/{key}"]["get"]["parameters"][0];
    assert_eq!(key["name"], "key");
    assert_eq!(key["schema"]["minLength"], 1);
    assert_eq!(key["schema"]["maxLength"], KEY_MAX);
}
