//! Proves what an Idempotency-Key is: both spellings of one key are one key, and nothing else passes for one.

use proptest::prelude::*;

use super::*;

fn key(header: impl AsRef<[u8]>) -> Result<String, KeyError> {
    IdempotencyKey::parse(header.as_ref()).map(|key| key.as_str().to_owned())
}

fn quote(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// I17. Without it a key is refused, or grows past what its column and its index are made for.
#[test]
fn a_key_has_1_to_255_characters() {
    for length in [1, 255] {
        let text = "k".repeat(length);
        assert_eq!(key(&text), Ok(text.clone()));
        assert_eq!(key(quote(&text)), Ok(text.clone()));
    }
    for length in [256, 8 * 1024] {
        let text = "k".repeat(length);
        assert_eq!(key(&text), Err(KeyError::TooLong(length)));
        assert_eq!(key(quote(&text)), Err(KeyError::TooLong(length)));
    }
}

/// I17. Without it the limit counts what a caller can't see: escapes are a matter of spelling, not of length.
#[test]
fn quotes_and_escapes_do_not_count() {
    let text = "\\".repeat(255);
    assert_eq!(key(quote(&text)), Ok(text));
}

/// Without it a client library that follows the draft and one that does not pay twice under one key.
#[test]
fn quoted_and_bare_are_one_key() {
    let bare = IdempotencyKey::parse(b"8e03978e-40d5-43dd-bc93-6894a57f9324");
    assert!(bare.is_ok());
    assert_eq!(
        IdempotencyKey::parse(br#""8e03978e-40d5-43dd-bc93-6894a57f9324""#),
        bare
    );
    assert_eq!(IdempotencyKey::parse(b"  8e03978e-40d5-43dd-bc93-6894a57f9324\t"), bare);
}

/// Without it `"a\"b"` and its bare spelling are two keys.
#[test]
fn the_escapes_of_a_quoted_string_are_undone() {
    assert_eq!(key(r#""a\"b\\c""#), Ok(r#"a"b\c"#.to_owned()));
    assert_eq!(key(r#"a"b\c"#), Ok(r#"a"b\c"#.to_owned()));
}

/// I3. Without it a client that forgot to fill in its key shares one with all others that did.
#[test]
fn a_blank_header_is_a_missing_key() {
    for header in ["", " ", "\t  \t", "\"\"", "  \"\"  "] {
        assert_eq!(key(header), Err(KeyError::Missing), "{header:?}");
    }
}

/// I17. Without it a proxy that joins, trims or re-encodes headers makes two keys out of one, or one out of two.
#[test]
fn only_visible_ascii_without_a_comma_is_a_key() {
    let headers: [&[u8]; 14] = [
        b"a\0b",
        b"\0",
        b"a\tb",
        b"a\x7fb",
        "schl\u{fc}ssel".as_bytes(),
        "\u{1f511}".as_bytes(),
        b"\xff",
        b"a b",
        b"a,b",
        b",",
        b"\"a b\"",
        b"\"a,b\"",
        b"\" a\"",
        b"\"a\tb\"",
    ];
    for header in headers {
        assert_eq!(key(header), Err(KeyError::Malformed), "{header:?}");
    }
}

/// Without it half a string is taken for a whole one, and what stands behind it is dropped.
#[test]
fn a_quoted_string_is_whole_and_alone() {
    for header in [
        "\"",
        "\"a",
        "\"a\\",
        "\"a\\\"",
        "\"a\\n\"",
        "\"a\"b",
        "\"a\"\"b\"",
        "\"a\";p=1",
        "\"a\", \"b\"",
        "\"\"\"",
    ] {
        assert_eq!(key(header), Err(KeyError::Malformed), "{header:?}");
    }
}

/// Without it keys that differ in the case of a letter, as base64 ones do, shadow each other.
#[test]
fn the_case_of_letters_matters() {
    assert_ne!(IdempotencyKey::parse(b"key"), IdempotencyKey::parse(b"KEY"));
}

fn headers() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        prop::collection::vec(prop::sample::select(&b"\"\\ab, \t\x7f\xc3"[..]), 0..12),
    ]
}

proptest! {
    /// Without it one odd header takes a worker down, or a key gets in that the database refuses.
    #[test]
    fn any_bytes_are_a_valid_key_or_refused(header in headers()) {
        if let Ok(key) = key(&header) {
            prop_assert!((1..=255).contains(&key.len()));
            prop_assert!(key.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b','));
        }
    }

    /// Without it there is a key that one of the two spellings can't say, or says differently.
    #[test]
    fn each_key_has_a_quoted_spelling(text in "[!-+\\--~]{1,255}") {
        prop_assert_eq!(key(quote(&text)), Ok(text.clone()));
        if !text.starts_with('"') {
            prop_assert_eq!(key(&text), Ok(text.clone()));
        }
    }
}
