//! Proves the table of error codes: complete, without doubles, as the contract lists it, and the JSON that comes of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use utoipa::PartialSchema;

use super::*;

/// The codes of the contract, by status. A caller's error handling is built on these names.
const CONTRACT: [(u16, &[&str]); 16] = [
    (
        400,
        &[
            "malformed_request",
            "idempotency_key_missing",
            "idempotency_key_invalid",
            "unknown_parameter",
        ],
    ),
    (401, &["unauthenticated"]),
    (402, &["insufficient_funds"]),
    (403, &["forbidden"]),
    (404, &["not_found"]),
    (405, &["method_not_allowed"]),
    (408, &["request_timeout"]),
    (
        409,
        &[
            "idempotency_key_in_use",
            "account_frozen",
            "account_closed",
            "account_not_empty",
        ],
    ),
    (410, &["idempotency_key_expired"]),
    (412, &["refunded_amount_changed"]),
    (413, &["body_too_large"]),
    (415, &["unsupported_media_type"]),
    (
        422,
        &[
            "validation_failed",
            "idempotency_key_reused",
            "same_account",
            "currency_mismatch",
            "refund_exceeds_remaining",
            "balance_overflow",
        ],
    ),
    (429, &["rate_limited"]),
    (500, &["internal_error"]),
    (503, &["overloaded", "unavailable"]),
];

fn json_of(problem: &Problem) -> Value {
    serde_json::to_value(problem.for_request(Uuid::from_u128(7))).unwrap()
}

/// Without it a code is renamed, moved to another status or added, and only the callers notice.
#[test]
fn the_table_is_the_contract() {
    let promised: BTreeMap<_, _> = CONTRACT
        .iter()
        .flat_map(|(status, codes)| codes.iter().map(|code| (*code, *status)))
        .collect();
    let table: BTreeMap<_, _> = Code::ALL
        .iter()
        .map(|code| (code.row().code, code.row().status))
        .collect();
    assert_eq!(table, promised);
}

/// Without it documents, `OpenAPI` and tests, which go through `ALL`, miss the code that was added last.
#[test]
fn all_has_each_variant_exactly_once() {
    let schema = serde_json::to_value(Code::schema()).unwrap();
    let variants: BTreeSet<_> = schema["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let all: BTreeSet<_> = Code::ALL.iter().map(|code| code.row().code).collect();
    assert_eq!(all.len(), Code::ALL.len(), "two rows have one name");
    assert_eq!(all, variants);
}

/// Without it the `code` in a body, the one in its `type`, and the one that is read back from the database are different things.
#[test]
fn a_code_has_one_name_everywhere() {
    for &code in Code::ALL {
        let name = code.row().code;
        let json = json_of(&Problem::new(code, "detail"));
        assert_eq!(json["code"], name);
        assert_eq!(json["type"], format!("urn:payonce:problem:{name}"));
        assert_eq!(serde_json::from_value::<Code>(json!(name)).unwrap(), code);
        assert_eq!(Code::of_body(json.to_string().as_bytes()), Some(code));
    }
    assert_eq!(Code::of_body(br#"{"code":"ok"}"#), None);
    assert_eq!(Code::of_body(b""), None);
}

/// Without it a client repeats for ever what can never succeed, or gives up on what would have.
#[test]
fn only_what_may_pass_by_itself_is_retryable() {
    for &code in Code::ALL {
        let row = code.row();
        assert!((400..600).contains(&row.status), "{row:?}");
        let may_pass = matches!(row.status, 408 | 429 | 500..) || code == Code::IdempotencyKeyInUse;
        assert_eq!(row.retryable, may_pass, "{row:?}");
    }
}

/// Without it a caller is advised to keep a limit that is not ours, or is shown the name of a constant.
#[test]
fn advice_names_the_limits_that_hold() {
    assert_eq!(BODY_MAX_KIB * 1024, BODY_MAX);
    assert_eq!(Code::BodyTooLarge.advice(), "Send at most 64 KiB.");
    let largest = "No account holds more than 999999999999999.9999.";
    assert_eq!(Code::BalanceOverflow.advice(), largest);
    assert!(Code::ALL.iter().all(|code| !code.advice().contains(['{', '}'])));
}

/// Without it clients that are told to come back do so all at once and at once.
#[test]
fn who_is_told_to_come_back_is_told_when() {
    for &code in Code::ALL {
        let told = Problem::new(code, "detail").retry_after().is_some();
        let later = code.row().retryable && code != Code::InternalError;
        assert_eq!(told, later, "{code:?}");
    }
    assert_eq!(
        Problem::new(Code::RateLimited, "").with_retry_after(9).retry_after(),
        Some(9)
    );
}

/// Without it the members of RFC 9457 are missing, or say something else than the status line.
#[test]
fn a_problem_has_the_members_of_the_rfc_and_no_empty_ones() {
    let problem = Problem::new(Code::InsufficientFunds, "this very case");
    assert_eq!(
        json_of(&problem),
        json!({
            "type": "urn:payonce:problem:insufficient_funds",
            "title": "Insufficient funds",
            "status": 402,
            "detail": "this very case",
            "instance": Uuid::from_u128(7),
            "code": "insufficient_funds",
            "retryable": false,
        })
    );
    assert_eq!((problem.status(), problem.code()), (402, Code::InsufficientFunds));
}

/// Without it a program has to read the detail's English to learn what it needs for its next step.
#[test]
fn what_a_program_needs_is_a_member_of_its_own() {
    let errors = vec![
        FieldError::new("amount", &"is required"),
        FieldError::new("name", &"is required"),
    ];
    let json = json_of(&Problem::invalid(errors));
    assert_eq!(json["errors"][1], json!({"field": "name", "message": "is required"}));
    assert_eq!(json["detail"], "amount is required; name is required");

    let amount = Decimal::new(4000, 2);
    let problem = Problem::new(Code::RefundExceedsRemaining, "").with_refundable_amount(amount);
    assert_eq!(json_of(&problem)["refundable_amount"], "40.00");
    let problem = Problem::new(Code::RefundedAmountChanged, "").with_refunded_amount(amount);
    assert_eq!(json_of(&problem)["refunded_amount"], "40.00");
}

/// I28. Without it nobody can tell whether the first request made something: `null` says that it did not.
#[test]
fn an_expired_key_names_what_came_of_it_or_null() {
    let expired = |path| json_of(&Problem::new(Code::IdempotencyKeyExpired, "").with_resource(path));
    assert_eq!(expired(Some("/payments/1".to_owned()))["resource"], "/payments/1");
    assert_eq!(expired(None).get("resource"), Some(&Value::Null));
    assert_eq!(json_of(&Problem::new(Code::NotFound, "")).get("resource"), None);
}
