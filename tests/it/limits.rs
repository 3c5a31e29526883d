//! Limits: the longest that is accepted, and one more.

use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::client::merge;
use crate::support::{App, Reply, assert_books_balance, new_key};

/// The largest body, in bytes.
const BODY_MAX: usize = 64 * 1024;

/// So many characters, none of them ASCII: a limit that counted bytes would fail on them.
fn characters(number: usize) -> String {
    "ü".repeat(number)
}

fn metadata(members: usize) -> Value {
    let members = (0..members).map(|number| (format!("key-{number}"), json!("value")));
    Value::Object(members.collect::<Map<_, _>>())
}

async fn open_with(app: &App, more: Value) -> Reply {
    let mut body = json!({"currency": "USD", "name": "Alice"});
    merge(&mut body, more);
    app.post("/accounts", &new_key(), &body).await
}

/// Names and references have 1 to 255 characters, counted as characters. Without this PostgreSQL's CHECK fires: a 500.
#[tokio::test]
async fn names_and_references_have_1_to_255_characters() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    for length in [1, 255] {
        let text = characters(length);
        let opened = open_with(&app, json!({"name": text, "reference": text})).await;
        opened.created();
        assert_eq!(
            (opened.text("name"), opened.text("reference")),
            (text.clone(), text.clone())
        );
        let paid = app.pay_with(&payer, &payee, "1.00", json!({"reference": text})).await;
        paid.created();
        assert_eq!(paid.text("reference"), text);
    }
    for length in [0, 256] {
        let text = characters(length);
        let opened = open_with(&app, json!({"name": text, "reference": text})).await;
        let problem = opened.invalid(&["name", "reference"]);
        let expected = format!("must have 1 to 255 characters, has {length}");
        assert_eq!(problem["errors"][0]["message"], json!(expected));
        app.pay_with(&payer, &payee, "1.00", json!({"reference": text}))
            .await
            .invalid(&["reference"]);
    }
    assert_books_balance(&app.database);
}

/// Descriptions and reasons have up to 500 characters, and may be empty.
#[tokio::test]
async fn descriptions_and_reasons_have_up_to_500_characters() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let paid = app.pay(&payer, &payee, "5.00").await.created();
    let (deposits, refunds) = (
        format!("/accounts/{payer}/deposits"),
        format!("/payments/{paid}/refunds"),
    );
    for length in [0, 500] {
        let text = characters(length);
        let made = app.pay_with(&payer, &payee, "1.00", json!({"description": text})).await;
        made.created();
        assert_eq!(made.text("description"), text);
        let body = json!({"amount": "1.00", "currency": "USD", "description": text});
        let made = app.post(&deposits, &new_key(), &body).await;
        made.created();
        assert_eq!(made.text("description"), text);
        let body = json!({"amount": "1.00", "reason": text});
        let made = app.post(&refunds, &new_key(), &body).await;
        made.created();
        assert_eq!(made.text("reason"), text);
    }
    let text = characters(501);
    app.pay_with(&payer, &payee, "1.00", json!({"description": text}))
        .await
        .invalid(&["description"]);
    let body = json!({"amount": "1.00", "currency": "USD", "description": text});
    app.post(&deposits, &new_key(), &body).await.invalid(&["description"]);
    let body = json!({"amount": "1.00", "reason": text});
    app.post(&refunds, &new_key(), &body).await.invalid(&["reason"]);
    assert_books_balance(&app.database);
}

/// Metadata is an object of up to 50 strings, keys of 1 to 40 and values of up to 500 characters. Without this a caller's cache
/// moves into the ledger.
#[tokio::test]
async fn metadata_is_an_object_of_up_to_50_strings() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let accepted = [
        json!({}),
        metadata(50),
        json!({(characters(1)): "", (characters(40)): characters(500)}),
    ];
    for metadata in accepted {
        let sent = json!({"metadata": metadata});
        let opened = open_with(&app, sent.clone()).await;
        opened.created();
        assert_eq!(opened.json()["metadata"], metadata);
        let paid = app.pay_with(&payer, &payee, "1.00", sent).await;
        let id = paid.created();
        assert_eq!(app.read(&format!("/payments/{id}")).await["metadata"], metadata);
    }
    let refused = [
        metadata(51),
        json!({"": "value"}),
        json!({(characters(41)): "value"}),
        json!({"key": characters(501)}),
        json!([]),
        json!("text"),
        json!(7),
    ];
    for metadata in refused {
        let sent = json!({"metadata": metadata});
        open_with(&app, sent.clone()).await.invalid(&["metadata"]);
        app.pay_with(&payer, &payee, "1.00", sent).await.invalid(&["metadata"]);
    }
    for value in [json!(null), json!(1), json!(true), json!({}), json!([])] {
        open_with(&app, json!({"metadata": {"key": value}}))
            .await
            .problem(422, "validation_failed");
    }
    assert_books_balance(&app.database);
}

/// A body has at most 64 KiB: the last byte is accepted, one more is 413. Without this a stranger's body fills the memory.
#[tokio::test]
async fn a_body_has_at_most_64_kib() {
    let app = App::start().await;
    let padded = |length: usize| {
        let json = r#"{"currency":"USD","name":"Alice"}"#;
        format!("{json}{}", " ".repeat(length - json.len()))
    };
    app.post_bytes("/accounts", padded(BODY_MAX)).await.created();
    for too_long in [BODY_MAX + 1, BODY_MAX * 10] {
        app.post_bytes("/accounts", padded(too_long))
            .await
            .problem(413, "body_too_large");
    }
    assert_eq!(app.list("/accounts").await.len(), 1);
}

/// Nor does a body get longer by not saying how long it is. Without this `Transfer-Encoding: chunked` is the way around the limit.
#[tokio::test]
async fn a_body_of_unknown_length_has_the_same_limit() {
    let app = App::start().await;
    let address = app.base.trim_start_matches("http://").to_owned();
    let mut connection = tokio::net::TcpStream::connect(&address).await.expect("a connection");
    let head = format!(
        "POST /accounts HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n",
        app.api_key,
        new_key(),
        BODY_MAX + 1
    );
    connection.write_all(head.as_bytes()).await.expect("the head");
    // The service may stop to listen in the middle of it.
    drop(connection.write_all(&vec![b' '; BODY_MAX + 1]).await);
    drop(connection.write_all(b"\r\n0\r\n\r\n").await);
    let mut answer = vec![0; 12];
    connection.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");
}

/// A body must say that it is JSON. Without this a form post from a strange web page would be a payment.
#[tokio::test]
async fn a_body_must_be_json_by_its_own_word() {
    let app = App::start().await;
    let body = r#"{"currency":"USD","name":"Alice"}"#;
    let request = || {
        app.request(Method::POST, "/accounts")
            .header("Idempotency-Key", new_key())
            .body(body)
    };
    for media_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "text/json",
        "",
    ] {
        app.send(request().header("Content-Type", media_type))
            .await
            .problem(415, "unsupported_media_type");
    }
    app.send(request()).await.problem(415, "unsupported_media_type");
    for media_type in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
    ] {
        app.send(request().header("Content-Type", media_type)).await.created();
    }
}

/// A message repeats a long value cut short, in whatever field and form it came. Without this 64 KiB come back, twice, and fill a log.
#[tokio::test]
async fn a_long_value_is_repeated_cut_short() {
    let app = App::start().await;
    let (long, name) = ("9".repeat(50_000), "n".repeat(30_000));
    let members: Vec<_> = (0..5000).map(|number| format!(r#""{number}":1"#)).collect();
    let account = app.open("USD").await;
    let deposits = format!("/accounts/{account}/deposits");
    for (path, body) in [
        (deposits.as_str(), format!(r#"{{"amount":"{long}x","currency":"USD"}}"#)),
        (&deposits, format!(r#"{{"amount":0.{long},"currency":"USD"}}"#)),
        (&deposits, format!(r#"{{"amount":"1","currency":"{name}"}}"#)),
        (&deposits, format!(r#"{{"{name}":"1"}}"#)),
        (&deposits, format!(r#"{{"{name}":"1","{name}":"1"}}"#)),
        ("/payments", format!(r#"{{"payer_account_id":"{name}"}}"#)),
        ("/payments", format!(r#"{{"metadata":{{"{name}":1}}}}"#)),
        ("/payments", format!(r#"{{"metadata":{{"{name}":"x"}}}}"#)),
        ("/payments", format!(r#"{{"metadata":{{{}}}}}"#, members.join(","))),
    ] {
        let reply = app.post_bytes(path, body).await;
        assert!(matches!(reply.status, 400 | 422), "{}", reply.status);
        assert!(reply.body.len() < 2000, "{} bytes: {path}", reply.body.len());
    }
    let name = "n".repeat(5000);
    for query in [format!("{name}=1"), format!("at={name}"), format!("at=1&at={name}")] {
        let reply = app.get(&format!("/accounts/{account}/balance?{query}")).await;
        assert_eq!(reply.status, 400);
        assert!(reply.body.len() < 2000, "{} bytes: {}", reply.body.len(), &query[..20]);
    }
}
