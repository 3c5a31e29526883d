//! `GET /idempotency-keys/{key}`: what is remembered of a key, for incidents.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{App, assert_books_balance, new_key};

/// For incidents: an operator must see what a key stands for without sending the request again.
#[tokio::test]
async fn a_key_can_be_looked_up_in_each_of_its_states() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let path = format!("/idempotency-keys/{key}");
    app.get(&path).await.problem(404, "not_found");
    let paid = app.pay_under(&key, &payer, &payee, "10.00").await;
    let record = app.get(&path).await.json();
    let resource = format!("/payments/{}", paid.created());
    assert_eq!((&record["key"], &record["status"]), (&json!(key), &json!("completed")));
    assert_eq!(
        (&record["method"], &record["path"]),
        (&json!("POST"), &json!("/payments"))
    );
    assert_eq!(record["resource"], json!(resource));
    assert_eq!(
        record["response"],
        json!({"status": 201, "location": resource, "body": paid.json()})
    );
    assert_eq!(record["request_hash"].as_str().map(str::len), Some(64));
    assert!(record["created_at"].as_str() < record["expires_at"].as_str());
    app.tenant("tenant-b").get(&path).await.problem(404, "not_found");

    let refused = new_key();
    let answer = app.pay_under(&refused, &payer, &payee, "1000.00").await;
    let record = app.get(&format!("/idempotency-keys/{refused}")).await.json();
    assert_eq!(record["resource"], Value::Null);
    assert_eq!(
        record["response"],
        json!({"status": 402, "location": null, "body": answer.json()})
    );

    app.age(25);
    let expired = app.get(&path).await.json();
    assert_eq!(
        (&expired["status"], &expired["resource"]),
        (&json!("expired"), &json!(resource))
    );
    assert_eq!(
        expired["response"],
        json!({"status": 201, "location": resource, "body": null})
    );
    assert_eq!(app.cli(&["cleanup"]).0, 0);
    assert_eq!(
        app.get(&path).await.json(),
        expired,
        "the clean-up changes nothing that can be seen"
    );
    app.age(90 * 24);
    app.get(&path).await.problem(404, "not_found");
    assert_books_balance(&app.database);
}

/// A key may hold characters that mean something in a URL or in a quoted string; each must be found, and no other.
#[tokio::test]
async fn keys_with_special_characters_are_looked_up_by_their_percent_encoded_form() {
    let app = App::start().await;
    let body = json!({"currency": "USD", "name": "A"});
    for (header, key, encoded) in [
        ("a/b/c", "a/b/c", "a/b/c"),
        ("a/b/d", "a/b/d", "a%2Fb%2Fd"),
        ("50%25", "50%25", "50%2525"),
        ("100%", "100%", "100%25"),
        ("a?b#c", "a?b#c", "a%3Fb%23c"),
        ("..", "..", "%2E%2E"),
        (r#"say"hi""#, r#"say"hi""#, "say%22hi%22"),
        (r#""\"quoted\"""#, r#""quoted""#, "%22quoted%22"),
        (r#""\\\"""#, r#"\""#, "%5C%22"),
        ("quoted", "quoted", "quoted"),
    ] {
        let opened = app.post("/accounts", header, &body).await;
        assert_eq!(
            opened.header("Idempotency-Key"),
            Some(key),
            "{header}: {}",
            opened.shown()
        );
        assert!(!opened.is_replay(), "{header}");
        // As it stands: a client library would take `%2E%2E` for a step up.
        let record = raw_get(&app, &format!("/idempotency-keys/{encoded}"));
        assert_eq!(record["key"], json!(key), "{record}");
        assert_eq!(
            record["resource"],
            json!(format!("/accounts/{}", opened.created())),
            "{header}"
        );
    }
}

fn raw_get(app: &App, path: &str) -> Value {
    let mut socket = TcpStream::connect(app.base.trim_start_matches("http://")).unwrap();
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nHost: payonce\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        app.api_key
    )
    .unwrap();
    let answer = std::io::read_to_string(socket).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}
