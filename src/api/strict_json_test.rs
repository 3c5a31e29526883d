//! Proves that JSON which two readers could understand differently, or which the database can't keep, is refused.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What is read of a body once it is checked.
fn parse(text: impl AsRef<[u8]>) -> Result<Value, String> {
    checked_object(text.as_ref(), "an object").map(|checked| serde_json::from_slice(checked).unwrap())
}

fn refused(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    match parse(text) {
        Ok(value) => panic!("{} was read as {value}", text.escape_ascii()),
        Err(message) => message,
    }
}

/// Without it a check reads the first amount and the ledger the last one.
#[test]
fn a_duplicate_member_is_refused_at_any_depth() {
    for text in [
        r#"{"amount":"1","amount":"1"}"#,
        r#"{"amount":"1","amount":"1000"}"#,
        r#"{"amount":"1","b":2,"amount":null}"#,
        r#"{"metadata":{"a":"1","a":"2"}}"#,
        r#"{"metadata":{"b":{"c":{"a":1,"a":1}}}}"#,
        r#"{"list":[1,[{"a":1,"a":1}]]}"#,
        r#"{"":1,"":1}"#,
    ] {
        assert!(refused(text).contains("is given twice"), "{text}");
    }
}

/// Without it the two spellings of one name are the way around the rule above.
#[test]
fn an_escape_does_not_hide_a_duplicate() {
    assert!(refused(r#"{"amount":"1","am\u006funt":"1000"}"#).contains("\"amount\" is given twice"));
}

/// Without it names that only look the same, or stand in two objects, can't be used together.
#[test]
fn equal_names_in_different_objects_are_no_duplicates() {
    assert_eq!(
        parse(r#"{"a":{"a":1},"b":{"a":1},"A":[{"a":1},{"a":1}]}"#),
        Ok(json!({"a": {"a": 1}, "b": {"a": 1}, "A": [{"a": 1}, {"a": 1}]}))
    );
}

/// X1. Without it PostgreSQL fails on the text, in the middle of the transaction: a 500 for bad input.
#[test]
fn the_character_nul_is_refused_in_names_and_values() {
    for text in [
        r#"{"description":"a\u0000b"}"#,
        r#"{"description":"\u0000"}"#,
        r#"{"metadata":{"k":"\u0000"}}"#,
        r#"{"metadata":{"\u0000":"v"}}"#,
        r#"{"a\u0000":1}"#,
        r#"{"list":["","x\u0000"]}"#,
    ] {
        assert!(refused(text).contains("U+0000"), "{text}");
    }
    refused(b"{\"description\":\"a\0b\"}");
    assert_eq!(
        parse(r#"{"a":"\\u0000"}"#),
        Ok(json!({"a": "\\u0000"})),
        "an escaped backslash is no NUL"
    );
}

/// X2. Without it bytes that are no text are replaced, and what is stored is not what was sent.
#[test]
fn what_is_not_unicode_is_refused() {
    let cases: [&[u8]; 10] = [
        b"{\"a\":\"\xff\"}",
        b"{\"\xff\":1}",
        b"{\"a\":\"\xc3\"}",
        b"{\"a\":\"\xc0\xaf\"}",
        b"{\"a\":\"\xed\xa0\x80\"}",
        b"\xff",
        br#"{"a":"\ud800"}"#,
        br#"{"a":"\udc00"}"#,
        br#"{"a":"\ud800\ud800"}"#,
        br#"{"\ud83d":1}"#,
    ];
    for bytes in cases {
        refused(bytes);
    }
    assert_eq!(parse(r#"{"a":"\ud83d\ude00"}"#), Ok(json!({"a": "😀"})));
}

/// Without it 64 KiB of brackets overflow the stack, and the whole process dies of it.
#[test]
fn depth_is_limited() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(nested(100)).is_ok());
    refused(nested(128));
    refused(format!("{{\"a\":{}", "[".repeat(64 * 1024)));
    refused("{\"a\":".repeat(10 * 1024));
}

/// Without it what stands behind the object is ignored, and means something to the next reader.
#[test]
fn nothing_but_white_space_stands_behind_the_object() {
    for text in ["{}{}", "{} {}", "{}x", "{},", "{}\0", "{}]", "{}//"] {
        refused(text);
    }
    assert_eq!(parse(" \r\n\t{ } \r\n\t"), Ok(json!({})));
}

/// Without it a refund without a body has to send `{}`; with it wider, a body that got lost on the way counts as one.
#[test]
fn no_bytes_at_all_are_an_empty_object_and_blank_ones_are_not() {
    assert_eq!(parse(""), Ok(json!({})));
    for text in [" ", "\n", "\u{feff}", "\0"] {
        refused(text);
    }
}

/// Without it a list or a bare text reaches code that expects members.
#[test]
fn the_body_is_an_object() {
    for (text, kind) in [
        ("[]", "an array"),
        ("[{}]", "an array"),
        ("\"a\"", "a string"),
        ("1", "a number"),
        ("-1", "a number"),
        ("1.5", "a number"),
        ("true", "a boolean"),
        ("null", "null"),
    ] {
        assert_eq!(
            refused(text),
            format!("the body must be an object, not {kind}"),
            "{text}"
        );
    }
}

/// Without it the message is about a character at column 1 that the caller can't see.
#[test]
fn another_encoding_is_refused_by_its_name() {
    for (bytes, encoding) in [
        (b"\xff\xfe{\0}\0".as_slice(), "UTF-16"),
        (b"\xfe\xff\0{\0}", "UTF-16"),
        (b"{\0}\0", "UTF-16"),
        (b"\0{\0}", "UTF-16"),
        (b"\xff\xfe", "UTF-16"),
        (b"\xff\xfe\0\0{\0\0\0}\0\0\0", "UTF-32"),
        (b"\0\0\xfe\xff\0\0\0{\0\0\0}", "UTF-32"),
        (b"{\0\0\0}\0\0\0", "UTF-32"),
        (b"\0\0\0{\0\0\0}", "UTF-32"),
    ] {
        assert_eq!(refused(bytes), format!("the body must be UTF-8, not {encoding}"));
    }
}

/// Without it a 64 KiB name comes back in the message.
#[test]
fn a_long_name_is_not_repeated_in_full() {
    let name = "n".repeat(10_000);
    assert!(refused(format!(r#"{{"{name}":1,"{name}":1}}"#)).len() < 200);
}

/// Without it this reader is laxer than others, and two of them disagree.
#[test]
fn only_json_is_json() {
    for text in [
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":01}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":+1}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":1e999}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x41\"}",
        "{/**/}",
        "\u{feff}\u{feff}{}",
        " \u{feff}{}",
        "{\u{feff}}",
        "{}\u{feff}",
        "{\"a\":True}",
        "{\"a\":undefined}",
    ] {
        refused(text);
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[^\\x00]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[^\\x00]{0,4}", inner, 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let almost_json = br#"{}{}{}[],,::""""\\u00 0ab1.e-tnf"#;
    prop_oneof![
        any::<Vec<u8>>(),
        prop::collection::vec(prop::sample::select(&almost_json[..]), 0..24),
        values().prop_map(|value| value.to_string().into_bytes()),
        values().prop_map(|value| format!("\u{feff}{value}").into_bytes()),
    ]
}

proptest! {
    /// Without it one odd body takes a worker down, or is read as something else than all others read in it.
    #[test]
    fn any_bytes_are_refused_or_read_as_everybody_reads_them(bytes in bytes()) {
        let plain = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        if let Ok(value) = parse(&bytes) && !bytes.is_empty() {
            prop_assert_eq!(serde_json::from_slice::<Value>(plain).unwrap(), value);
        }
    }

    /// Without it strictness costs somebody a valid request.
    #[test]
    fn every_object_without_duplicates_is_read(members in prop::collection::btree_map("[^\\x00]{0,4}", values(), 0..5)) {
        let object: Value = members.into_iter().collect();
        prop_assert_eq!(parse(object.to_string()), Ok(object.clone()));
        prop_assert_eq!(parse(format!("\u{feff}{object}")), Ok(object));
    }

    /// Without it there is a place in a body where a duplicate goes unseen.
    #[test]
    fn a_duplicate_is_found_wherever_it_stands(name in "[^\\x00]{0,4}", one in values(), other in values(), depth in 0..20_usize) {
        let name = Value::from(name);
        let object = format!("{{{name}:{one},{name}:{other}}}");
        let (open, close) = (r#"{"a":["#.repeat(depth), "]}".repeat(depth));
        let message = refused(open + &object + &close);
        prop_assert!(message.contains("is given twice"));
    }
}
