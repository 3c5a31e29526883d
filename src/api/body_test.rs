//! Proves that a body becomes a command only if each of its members is right, and that a caller learns at once what is not.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::idempotency::RequestHash;

const ALICE: &str = "0199a5f0-aaaa-7000-8000-00000000000a";
const BOB: &str = "0199a5f0-bbbb-7000-8000-00000000000b";

fn account() -> AccountId {
    AccountId(Uuid::from_u128(1))
}

fn open(body: &Value) -> Result<Command, Problem> {
    read::<OpenAccountBody>(body.to_string().as_bytes())?.into_command()
}

fn deposit(body: &Value) -> Result<Command, Problem> {
    read::<MovementBody>(body.to_string().as_bytes())?
        .into_movement(account())
        .map(Command::Deposit)
}

fn pay_text(body: &str) -> Result<Command, Problem> {
    read::<PayBody>(body.as_bytes())?.into_command()
}

fn pay(body: &Value) -> Result<Command, Problem> {
    pay_text(&body.to_string())
}

fn refund_text(body: &str) -> Result<Command, Problem> {
    read::<RefundBody>(body.as_bytes())?.into_command(PaymentId(Uuid::from_u128(2)))
}

fn refund(body: &Value) -> Result<Command, Problem> {
    refund_text(&body.to_string())
}

/// A good body of `POST /payments`, but for these members.
fn payment_with(members: Value) -> Value {
    let mut body = json!({"payer_account_id": ALICE, "payee_account_id": BOB, "amount": "12.50", "currency": "USD"});
    merge(&mut body, members);
    body
}

fn account_with(members: Value) -> Value {
    let mut body = json!({"currency": "USD", "name": "Alice"});
    merge(&mut body, members);
    body
}

fn merge(body: &mut Value, members: Value) {
    let Value::Object(members) = members else {
        panic!("not an object")
    };
    body.as_object_mut().unwrap().extend(members);
}

/// The fields that a 422 names, each with its message.
fn wrong(decided: Result<Command, Problem>) -> BTreeMap<String, String> {
    let problem = decided.unwrap_err();
    assert_eq!(problem.code(), Code::ValidationFailed, "{problem}");
    let json = serde_json::to_value(problem.for_request(Uuid::nil())).unwrap();
    let text = |error: &Value, member: &str| error[member].as_str().unwrap().to_owned();
    let errors = json["errors"].as_array().unwrap().iter();
    let named: Vec<_> = errors
        .map(|error| (text(error, "field"), text(error, "message")))
        .collect();
    for (field, message) in &named {
        assert!(
            problem.to_string().contains(&format!("{field} {message}")),
            "the detail says it too: {problem}"
        );
    }
    named.into_iter().collect()
}

fn fields(decided: Result<Command, Problem>) -> Vec<String> {
    wrong(decided).into_keys().collect()
}

fn code(decided: Result<Command, Problem>) -> Code {
    decided.unwrap_err().code()
}

/// Without it a caller mends a request field by field, one round trip each.
#[test]
fn all_wrong_fields_are_named_at_once() {
    let all = json!({"currency": "usd", "name": "", "reference": "", "metadata": {"a": 1, "b": null, "c": "fine"}});
    assert_eq!(
        fields(open(&all)),
        ["currency", "metadata.a", "metadata.b", "name", "reference"]
    );
    let all = json!({"amount": "1,00", "currency": "XXX", "description": 7});
    assert_eq!(fields(deposit(&all)), ["amount", "currency", "description"]);
    let all = json!({
        "payer_account_id": "alice", "payee_account_id": 7, "amount": true, "currency": [],
        "description": {}, "reference": "", "metadata": "none",
    });
    let names = [
        "amount",
        "currency",
        "description",
        "metadata",
        "payee_account_id",
        "payer_account_id",
        "reference",
    ];
    assert_eq!(fields(pay(&all)), names);
    let all = json!({"amount": "0", "reason": 1, "expected_refunded_amount": "-1"});
    assert_eq!(fields(refund(&all)), ["amount", "expected_refunded_amount", "reason"]);
}

/// Without it a field that is wrong besides a good amount is dropped in silence.
#[test]
fn one_wrong_optional_field_is_enough() {
    for (member, value) in [
        ("description", json!(1)),
        ("reference", json!("")),
        ("metadata", json!({"a": []})),
    ] {
        assert_eq!(wrong(pay(&payment_with(json!({member: value})))).len(), 1, "{member}");
    }
    assert_eq!(fields(open(&account_with(json!({"metadata": []})))), ["metadata"]);
    assert_eq!(
        fields(deposit(&json!({"amount": "1", "currency": "USD", "description": []}))),
        ["description"]
    );
}

/// Without it an empty body is an incomprehensible error, or worse, a command.
#[test]
fn what_is_required_is_asked_for() {
    assert_eq!(
        fields(pay_text("")),
        ["amount", "currency", "payee_account_id", "payer_account_id"]
    );
    assert_eq!(fields(open(&json!({}))), ["currency", "name"]);
    assert_eq!(fields(deposit(&json!({"currency": "JPY"}))), ["amount"]);
    assert!(wrong(open(&json!({}))).values().all(|message| message == "is required"));
}

/// R18. Without it a misspelt `amount` refunds everything, and a newer client's field is ignored by an older service.
#[test]
fn an_unknown_member_is_refused_by_name() {
    let refused = [
        refund(&json!({"currency": "EUR"})),
        refund(&json!({"Amount": "1.00"})),
        pay(&payment_with(json!({"capture": true}))),
        open(&account_with(json!({"balance": "100.00"}))),
        deposit(&json!({"amount": "1", "currency": "USD", "reference": "r"})),
    ];
    for (decided, name) in refused
        .into_iter()
        .zip(["currency", "Amount", "capture", "balance", "reference"])
    {
        let problem = decided.unwrap_err();
        assert_eq!(problem.code(), Code::UnknownParameter);
        assert!(problem.to_string().contains(&format!("`{name}`")), "{problem}");
    }
    let problem = read::<NoBody>(br#"{"why":"not"}"#).map(|_| ()).unwrap_err();
    assert_eq!(problem.code(), Code::UnknownParameter);
    assert!(read::<NoBody>(b"").is_ok() && read::<NoBody>(b"{}").is_ok());
}

/// Without it an unknown member is read before a duplicate, and two requests that mean different things come through.
#[test]
fn a_body_that_is_no_strict_json_object_is_malformed() {
    for body in [
        "[]",
        "{",
        r#"{"amount":"1","amount":"2"}"#,
        r#"{"x":1,"x":1}"#,
        r#"{"reason":"\u0000"}"#,
    ] {
        assert_eq!(code(refund_text(body)), Code::MalformedRequest, "{body}");
    }
}

/// The string that a message tells a caller to send, if it does.
fn advised(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(": send \"")?;
    rest.strip_suffix('"')
}

fn about_amount(amount: &str, currency: &str) -> String {
    let body = format!(r#"{{"amount":{amount},"currency":"{currency}"}}"#);
    let decided = read::<MovementBody>(body.as_bytes()).unwrap().into_movement(account());
    wrong(decided.map(Command::Deposit)).remove("amount").unwrap()
}

/// A6. Without it a caller who sends floats learns only that he is wrong, or is told to send what is refused next.
#[test]
fn a_number_is_answered_with_the_string_to_send() {
    for (number, currency, string) in [
        ("99.8", "USD", "99.80"),
        ("5", "USD", "5.00"),
        ("1e3", "USD", "1000.00"),
        ("1.25E+1", "USD", "12.50"),
        ("1250e-2", "USD", "12.50"),
        ("500", "JPY", "500"),
        ("500.0", "JPY", "500"),
        ("1.2", "KWD", "1.200"),
        // More digits than a binary float has: it is the text that counts.
        ("100000000000000.01", "USD", "100000000000000.01"),
    ] {
        let message = about_amount(number, currency);
        assert_eq!(advised(&message), Some(string), "{number} {currency}");
    }
    let wrong = wrong(refund(&json!({"amount": 5.25, "expected_refunded_amount": 0})));
    assert_eq!(advised(&wrong["amount"]), Some("5.25"));
    assert_eq!(advised(&wrong["expected_refunded_amount"]), Some("0"));
}

/// A6. Without it a caller is told to send an amount that is not the one he means: the example, say, or a rounded one.
#[test]
fn a_number_that_is_no_amount_is_answered_with_what_is_wrong_and_never_with_what_to_send() {
    let too_long = "12.50000000000000000000000000000000000000001";
    for (number, currency, wrong, example) in [
        ("12.505", "USD", "has more decimals than USD", "12.50"),
        ("0.30000000000000004", "USD", "has more decimals than USD", "12.50"),
        ("500.5", "JPY", "has more decimals than JPY", "500"),
        ("0", "USD", "must be greater than zero", "12.50"),
        ("-5", "USD", "must be greater than zero", "12.50"),
        ("1e20", "USD", "must not be greater", "12.50"),
        ("1e-300", "USD", "has more digits", "12.50"),
        ("1e300", "USD", "has more digits", "12.50"),
        ("99999999999999999999999999999999999", "KWD", "has more digits", "1.234"),
        (
            "1.250000000000000000000000000000001e1",
            "USD",
            "has more digits",
            "12.50",
        ),
    ] {
        let message = about_amount(number, currency);
        assert_eq!(advised(&message), None, "{message}");
        assert!(message.contains(&format!("{number} {wrong}")), "{message}");
        assert!(message.contains(&format!("for example \"{example}\"")), "{message}");
    }
    let message = about_amount(too_long, "USD");
    assert!(
        message.contains("12.5000000000000000000000000000000000000… has more digits"),
        "{message}"
    );
}

/// A6. Without it a wrong type is a riddle.
#[test]
fn what_is_no_string_at_all_is_answered_with_the_right_form() {
    for (value, currency, form) in [
        (json!(true), "USD", "\"12.50\""),
        (json!({}), "JPY", "\"500\""),
        (json!(["1.00"]), "KWD", "\"1.234\""),
        (Value::Null, "CLF", "\"1.2345\""),
        (json!("1e3"), "USD", "\"12.50\""),
        (json!("NaN"), "USD", "\"12.50\""),
        (json!(" 1.00"), "USD", "\"12.50\""),
        (json!("1,000.00"), "USD", "\"12.50\""),
        (json!("٣"), "USD", "\"12.50\""),
        (json!("500.5"), "JPY", "\"500\""),
    ] {
        let wrong = wrong(deposit(&json!({"amount": value, "currency": currency})));
        assert!(wrong["amount"].contains(form), "{value}: {wrong:?}");
    }
}

/// Without it the message that refuses an amount shows one that is refused as well.
#[test]
fn the_example_in_a_message_is_itself_accepted() {
    for code in ["USD", "JPY", "KWD", "CLF"] {
        let message = about_amount("\"1.23456\"", code);
        let (_, rest) = message.split_once("for example \"").unwrap();
        let (example, _) = rest.split_once('"').unwrap();
        let accepted = deposit(&json!({"amount": example, "currency": code}));
        assert!(accepted.is_ok(), "{message}");
    }
}

/// Without it the limits that the documents promise are off by one, or count bytes.
#[test]
fn texts_may_be_as_long_as_promised() {
    let text = |length| json!("é".repeat(length));
    for length in [1, 255] {
        assert!(open(&account_with(json!({"name": text(length), "reference": text(length)}))).is_ok());
        assert!(pay(&payment_with(json!({"reference": text(length)}))).is_ok());
    }
    for length in [0, 256] {
        let both = json!({"name": text(length), "reference": text(length)});
        assert_eq!(fields(open(&account_with(both))), ["name", "reference"]);
        assert_eq!(
            fields(pay(&payment_with(json!({"reference": text(length)})))),
            ["reference"]
        );
    }
    for (length, good) in [(0, true), (500, true), (501, false)] {
        let description = json!({"amount": "1", "currency": "USD", "description": text(length)});
        assert_eq!(deposit(&description).is_ok(), good, "{length}");
        assert_eq!(
            pay(&payment_with(json!({"description": text(length)}))).is_ok(),
            good,
            "{length}"
        );
        assert_eq!(refund(&json!({"reason": text(length)})).is_ok(), good, "{length}");
    }
}

/// The same for metadata.
#[test]
fn metadata_may_be_as_large_as_promised() {
    let metadata = |members: usize, key: usize, value: usize| {
        let members: BTreeMap<_, _> = (0..members)
            .map(|number| (format!("{number:é>key$}"), "é".repeat(value)))
            .collect();
        json!({"metadata": members})
    };
    for (members, key, value, good) in [
        (0, 1, 0, true),
        (50, 40, 500, true),
        (51, 40, 1, false),
        (1, 41, 1, false),
        (1, 40, 501, false),
    ] {
        let metadata = metadata(members, key, value);
        assert_eq!(
            open(&account_with(metadata.clone())).is_ok(),
            good,
            "{members} {key} {value}"
        );
        assert_eq!(pay(&payment_with(metadata)).is_ok(), good, "{members} {key} {value}");
    }
    assert_eq!(
        fields(open(&account_with(json!({"metadata": {"": "no key"}})))),
        ["metadata"]
    );
}

/// Without it a client whose serializer writes absent values as `null` is refused, or its retry without them is another request.
#[test]
fn null_is_the_same_as_absent() {
    let nulls = json!({"description": null, "reference": null, "metadata": null});
    assert_eq!(
        pay(&payment_with(nulls)).unwrap(),
        pay(&payment_with(json!({}))).unwrap()
    );
    let nulls = json!({"amount": null, "reason": null, "expected_refunded_amount": null});
    assert_eq!(refund(&nulls).unwrap(), refund(&json!({})).unwrap());
    let nulls = json!({"reference": null, "metadata": null});
    assert_eq!(
        open(&account_with(nulls)).unwrap(),
        open(&account_with(json!({}))).unwrap()
    );
}

/// Without it "give all of it back" can't be said without knowing how much that is.
#[test]
fn an_empty_refund_body_asks_for_all_that_remains() {
    let Command::Refund(asked) = refund_text("").unwrap() else {
        panic!("not a refund")
    };
    assert_eq!(
        (asked.amount, asked.expected_refunded, &asked.reason),
        (None, None, &None)
    );
    assert_eq!(refund_text("{}").unwrap(), Command::Refund(asked));
}

/// R2, R13. Without it a refund of nothing is stored as one, or the first refund can't say that it expects to be the first.
#[test]
fn a_refund_is_of_something_but_may_expect_nothing_before() {
    for amount in ["-1.00", "0.00", "-0"] {
        assert_eq!(fields(refund(&json!({"amount": amount}))), ["amount"], "{amount}");
    }
    assert!(refund(&json!({"expected_refunded_amount": "0.00"})).is_ok());
    assert_eq!(
        fields(refund(&json!({"expected_refunded_amount": "-0"}))),
        ["expected_refunded_amount"]
    );
}

/// C15. Without it an account pays itself, once its id is written in capitals.
#[test]
fn payer_and_payee_differ_whatever_the_case_of_their_letters() {
    for payee in [ALICE.to_owned(), ALICE.to_uppercase()] {
        assert_eq!(
            code(pay(&payment_with(json!({"payee_account_id": payee})))),
            Code::SameAccount
        );
    }
    let broken = payment_with(json!({"payee_account_id": ALICE, "amount": "0"}));
    assert_eq!(fields(pay(&broken)), ["amount"], "what is wrong by itself comes first");
}

/// Without it one account has several spellings, in bodies, paths and logs.
#[test]
fn an_id_has_one_form() {
    for text in [
        "0199a5f0aaaa70008000000000000000",
        "{0199a5f0-aaaa-7000-8000-00000000000a}",
        "urn:uuid:0199a5f0-aaaa-7000-8000-00000000000a",
        " 0199a5f0-aaaa-7000-8000-00000000000",
        "0199a5f0-aaaa-7000-8000-00000000000g",
        "",
    ] {
        assert!(read_uuid(text).is_err(), "{text}");
        assert_eq!(
            fields(pay(&payment_with(json!({"payer_account_id": text})))),
            ["payer_account_id"]
        );
    }
    assert_eq!(read_uuid(&ALICE.to_uppercase()), read_uuid(ALICE));
}

/// Without it a retry through another JSON library is taken for another request.
#[test]
fn white_space_order_of_members_and_escapes_do_not_change_the_hash() {
    let first = format!(
        r#"{{"payer_account_id":"{ALICE}","payee_account_id":"{BOB}","amount":"12.50","currency":"USD","metadata":{{"a":"é","b":"2"}}}}"#
    );
    let again = format!(
        r#" {{ "metadata": {{"b": "2", "a": "\u00e9"}}, "reference": null, "currency": "USD",
            "amount": "12.5", "payee_account_id": "{BOB}", "payer_account_id": "{}" }} "#,
        ALICE.to_uppercase()
    );
    assert_eq!(
        RequestHash::of(&pay_text(&first).unwrap()),
        RequestHash::of(&pay_text(&again).unwrap())
    );
}

proptest! {
    /// A6. Without it some number is answered with advice that does not work, or with advice to pay another sum.
    #[test]
    fn the_string_to_send_is_accepted_and_means_what_was_sent(
        number in prop_oneof![
            "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,6})?(e-?[0-9]{1,2})?",
            "(0|[1-9][0-9]{0,4})(\\.[0-9]{1,4})?",
            "(0|[1-9][0-9]{0,15})\\.[0-9]{20,40}(e-?[0-9])?",
        ],
        currency in prop::sample::select(vec!["USD", "JPY", "KWD", "CLF"]),
    ) {
        let message = about_amount(&number, currency);
        prop_assert_eq!(message.contains("send"), advised(&message).is_some(), "{}", message);
        if let Some(string) = advised(&message) {
            let body = format!(r#"{{"amount":"{string}","currency":"{currency}"}}"#);
            let accepted = read::<MovementBody>(body.as_bytes()).unwrap().into_movement(account());
            prop_assert!(accepted.is_ok(), "{} is not accepted", string);
            prop_assert_eq!(digits_and_scale(string), digits_and_scale(&number), "{} for {}", string, number);
        } else {
            prop_assert!(message.contains("for example"), "{}", message);
        }
    }
}

/// A JSON number in its shortest form, by text alone: its significant digits, and by how many places they stand behind the point.
fn digits_and_scale(number: &str) -> (String, i64) {
    let (mantissa, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let cut = i64::try_from(digits.len() - kept.len()).unwrap();
    let scale = i64::try_from(fraction.len()).unwrap() - cut - exponent.parse::<i64>().unwrap();
    match kept.trim_start_matches('0') {
        "" => (String::new(), 0),
        digits => (digits.to_owned(), scale),
    }
}
