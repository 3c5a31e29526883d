//! The `Idempotency-Key` header itself: what is a key, and that it comes back.

use std::io::Write;
use std::net::TcpStream;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{App, new_key};

/// A `POST /accounts` with these header lines as they stand; status, header lines in lower case, body.
fn raw_post(app: &App, lines: &[Vec<u8>]) -> (u16, String, Value) {
    let body = r#"{"currency":"USD","name":"A"}"#;
    let mut request = format!(
        "POST /accounts HTTP/1.1\r\nHost: payonce\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n",
        app.api_key,
        body.len()
    )
    .into_bytes();
    for line in lines {
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body.as_bytes());
    let mut socket = TcpStream::connect(app.base.trim_start_matches("http://")).unwrap();
    socket.write_all(&request).unwrap();
    let answer = std::io::read_to_string(socket).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no status in {answer:?}")),
        head.to_lowercase(),
        serde_json::from_str(body).unwrap_or(Value::Null),
    )
}

fn line(name: &str, value: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b": ", value].concat()
}

fn keyed(app: &App, value: &[u8]) -> (u16, String, Value) {
    raw_post(app, &[line("Idempotency-Key", value)])
}

fn code(body: &Value) -> &str {
    body["code"].as_str().unwrap_or_default()
}

/// I3: header names have no case. A service that compares them as they stand loses the key of some clients, and their protection.
#[tokio::test]
async fn the_letter_case_of_the_headers_name_does_not_matter() {
    let app = App::start().await;
    let key = new_key();
    let mut ids = Vec::new();
    for name in [
        "Idempotency-Key",
        "idempotency-key",
        "IDEMPOTENCY-KEY",
        "iDEMPOTENCY-kEY",
    ] {
        let (status, head, body) = raw_post(&app, &[line(name, key.as_bytes())]);
        assert_eq!(status, 201, "{name}: {body}");
        assert_eq!(head.contains("idempotent-replayed: true"), !ids.is_empty(), "{name}");
        ids.push(body["id"].clone());
    }
    assert!(ids.iter().all(|id| *id == ids[0]));
}

/// I3: a blank key is none. (That every `POST` needs one: `every_command.rs`.)
#[tokio::test]
async fn a_blank_key_is_a_missing_one() {
    let app = App::start().await;
    for blank in ["", " ", "\t", "\"\""] {
        let (status, _, body) = keyed(&app, blank.as_bytes());
        assert_eq!((status, code(&body)), (400, "idempotency_key_missing"), "{blank:?}");
    }
    assert_eq!(
        app.database
            .number("SELECT count(*) FROM accounts WHERE kind = 'standard'"),
        0
    );
}

/// I17: a limit that is not checked shows up as a 500 from the database, or worse: a key that is cut off is another key.
#[tokio::test]
async fn a_key_has_1_to_255_characters() {
    let app = App::start().await;
    for (length, expected) in [(1, 201), (2, 201), (255, 201), (256, 400)] {
        let (status, _, body) = keyed(&app, &vec![b'k'; length]);
        assert_eq!(status, expected, "{length} characters: {body}");
    }
    let (status, _, body) = keyed(&app, &[b"k".repeat(254), b"x".to_vec()].concat());
    assert_eq!(
        (status, body["id"].is_string()),
        (201, true),
        "the last of 255 characters counts"
    );
    // Quotes are not part of the key.
    let quoted = [b"\"", b"q".repeat(255).as_slice(), b"\""].concat();
    assert_eq!(keyed(&app, &quoted).0, 201);
    let (status, _, body) = keyed(&app, &vec![b'k'; 8 * 1024]);
    assert!(status == 400 || status == 431, "8 KiB: {status} {body}");
    assert_eq!(
        app.database
            .number("SELECT max(octet_length(key)) FROM idempotency_keys"),
        255
    );
}

/// I17: a character that one proxy drops and another keeps makes two keys of one.
#[tokio::test]
async fn a_key_with_anything_but_visible_ascii_or_with_a_comma_is_refused() {
    let app = App::start().await;
    let refused: [&[u8]; 14] = [
        b"a\0b",
        b"a\tb",
        b"a\x7fb",
        b"a\x01b",
        "schl\u{fc}ssel".as_bytes(),
        b"\xff\xfe",
        b"a b",
        b"a,b",
        b",",
        b"\"a b\"",
        b"\"open",
        b"\"a\"b\"",
        b"\"bad \\escape\"",
        b"\"a\", \"b\"",
    ];
    for value in refused {
        let (status, head, body) = keyed(&app, value);
        let shown = String::from_utf8_lossy(value);
        assert_eq!(status, 400, "{shown:?}: {body}");
        assert!(!head.contains("\nidempotency-key:"), "{shown:?} comes back");
        // The web server itself refuses what can't stand in a header at all.
        assert!(
            body.is_null() || code(&body) == "idempotency_key_invalid",
            "{shown:?}: {body}"
        );
    }
    assert_eq!(app.database.number("SELECT count(*) FROM idempotency_keys"), 0);
}

/// I17: each of two keys could be the right one; to pick one is to guess.
#[tokio::test]
async fn a_key_that_is_sent_twice_is_refused() {
    let app = App::start().await;
    let one = line("Idempotency-Key", b"one");
    for other in [b"one", b"two"] {
        let (status, _, body) = raw_post(&app, &[one.clone(), line("idempotency-key", other)]);
        assert_eq!((status, code(&body)), (400, "idempotency_key_invalid"), "{body}");
    }
    assert_eq!(app.database.number("SELECT count(*) FROM idempotency_keys"), 0);
}

/// I17: clients that follow the IETF draft quote the key, older ones do not; a client library that is updated between
/// two attempts must not pay twice.
#[tokio::test]
async fn the_quoted_spelling_and_the_bare_one_are_one_key() {
    let app = App::start().await;
    let key = new_key();
    let spellings = [
        key.clone(),
        format!("\"{key}\""),
        format!("  \"{key}\"  "),
        format!("\t{key} "),
    ];
    let mut bodies = Vec::new();
    for spelling in &spellings {
        let (status, head, body) = keyed(&app, spelling.as_bytes());
        assert_eq!(status, 201, "{spelling:?}: {body}");
        assert!(
            head.contains(&format!("\nidempotency-key: {key}\r")),
            "the echo is the bare key: {head}"
        );
        bodies.push(body);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    // Letter case matters: these are two keys.
    let (upper, lower) = (keyed(&app, b"KEY").2, keyed(&app, b"key").2);
    assert_ne!(upper["id"], lower["id"]);
}

/// A client that has many requests under way learns from the answer which key it belongs to, whatever the answer is.
#[tokio::test]
async fn every_answer_to_a_request_with_a_valid_key_has_the_key() {
    let app = App::start().await;
    let id = app.open("USD").await;
    let key = new_key();
    let request = |method: Method, path: &str| {
        app.request(method, path)
            .header("Idempotency-Key", format!("\"{key}\""))
    };
    let with_body = |path: &str, body: Value| request(Method::POST, path).json(&body);
    let wrong = app.with_api_key("payonce_wrong");
    let unauthenticated = wrong.request(Method::POST, "/accounts").header("Idempotency-Key", &key);
    for (request, status) in [
        (unauthenticated, 401),
        (with_body("/accounts", json!([])), 400),
        (with_body("/accounts", json!({"x": 1})), 400),
        (with_body("/accounts?x=1", json!({})), 400),
        (with_body("/accounts", json!({})), 422),
        (with_body("/accounts", json!("x".repeat(70_000))), 413),
        (request(Method::POST, "/accounts").body("x"), 415),
        (with_body("/accounts", json!({"currency": "USD", "name": "A"})), 201),
        (with_body("/accounts", json!({"currency": "USD", "name": "A"})), 201),
        (with_body("/accounts", json!({"currency": "EUR", "name": "A"})), 422),
        (with_body("/nothing", json!({})), 404),
        (request(Method::PUT, "/accounts"), 405),
        (request(Method::GET, &format!("/accounts/{id}")), 200),
    ] {
        let reply = app.send(request).await;
        assert_eq!(reply.status, status, "{}", reply.shown());
        assert_eq!(reply.header("Idempotency-Key"), Some(key.as_str()), "{}", reply.shown());
    }
}
