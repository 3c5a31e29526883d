//! Limits: the longest that is accepted, and one more; amounts and currencies.

use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::client::{merge, payment};
use crate::support::{App, Client, Reply, assert_books_balance, new_key};

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

async fn deposit_in(client: &Client, account: &str, amount: &str, currency: &str) -> Reply {
    let body = json!({"amount": amount, "currency": currency});
    client
        .post(&format!("/accounts/{account}/deposits"), &new_key(), &body)
        .await
}

/// Pays this amount, whatever it is, in this currency from one full account to another.
async fn pay_amount(client: &Client, payer: &str, payee: &str, amount: &Value, currency: &str) -> Reply {
    let mut body = payment(payer, payee, "1");
    merge(&mut body, json!({"amount": amount, "currency": currency}));
    client.post("/payments", &new_key(), &body).await
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

/// A1: Yen have no decimals: `"500"` is stored and refunded as 500, `"500.5"` is refused. Without this 500 yen become 5 or 50000.
#[tokio::test]
async fn yen_have_no_decimals() {
    let app = App::start().await;
    let (payer, payee) = (app.open("JPY").await, app.open("JPY").await);
    deposit_in(&app, &payer, "500", "JPY").await.created();
    let paid = pay_amount(&app, &payer, &payee, &json!("500"), "JPY").await;
    let id = paid.created();
    assert_eq!(
        (paid.text("amount"), paid.text("refunded_amount")),
        ("500".to_owned(), "0".to_owned())
    );
    assert_eq!(app.database.word("SELECT amount FROM payments"), "500.0000");
    let refunded = app.refund(&id, None).await;
    refunded.created();
    assert_eq!(refunded.text("amount"), "500");
    assert_eq!(app.read(&format!("/payments/{id}")).await["refunded_amount"], "500");
    for amount in ["500.5", "500.0", "500."] {
        pay_amount(&app, &payer, &payee, &json!(amount), "JPY")
            .await
            .invalid(&["amount"]);
    }
    assert_eq!(app.balance(&payer).await, "500");
    assert_books_balance(&app.database);
}

/// A3: As many decimals as the currency has, and not one more; fewer mean the same. Without this money is rounded, and
/// somebody keeps the difference.
#[tokio::test]
async fn an_amount_has_the_decimals_of_its_currency() {
    let app = App::start().await;
    for (currency, accepted, refused) in [
        ("KWD", [("1.234", "1.234"), ("1.2", "1.200"), ("1", "1.000")], "1.2345"),
        ("USD", [("1.01", "1.01"), ("1.5", "1.50"), ("1", "1.00")], "1.005"),
        (
            "CLF",
            [("1.2345", "1.2345"), ("1.2", "1.2000"), ("1", "1.0000")],
            "1.23456",
        ),
    ] {
        let (payer, payee) = (app.open(currency).await, app.open(currency).await);
        deposit_in(&app, &payer, "10", currency).await.created();
        for (sent, shown) in accepted {
            let paid = pay_amount(&app, &payer, &payee, &json!(sent), currency).await;
            paid.created();
            assert_eq!(paid.text("amount"), shown);
        }
        let problem = pay_amount(&app, &payer, &payee, &json!(refused), currency)
            .await
            .invalid(&["amount"]);
        let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("never rounded") && message.contains(currency),
            "{message}"
        );
    }
    assert_books_balance(&app.database);
}

/// A4: A currency is an ISO 4217 code in capitals that money can be held in. Without this there are two dollars, `USD` and `usd`.
#[tokio::test]
async fn a_currency_is_an_iso_4217_code() {
    let app = App::start().await;
    let account = app.open_with("10.00").await;
    for currency in [
        "usd", "US", "USDD", "XXX", "", "XAU", "XTS", "U$D", "USD ", "ÜSD", "ZZZ",
    ] {
        open_with(&app, json!({"currency": currency}))
            .await
            .invalid(&["currency"]);
        deposit_in(&app, &account, "1", currency).await.invalid(&["currency"]);
        pay_amount(&app, &account, &uuid::Uuid::now_v7().to_string(), &json!("1"), currency)
            .await
            .invalid(&["currency"]);
    }
    for currency in [json!(840), json!(null), json!(["USD"])] {
        open_with(&app, json!({"currency": currency}))
            .await
            .invalid(&["currency"]);
    }
    assert_books_balance(&app.database);
}

/// A6: What is not a plain decimal string is refused with one that would be right, never guessed at. Without this `1,000.00`
/// is one dollar, and `99.8` is 99.7999999999999971.
#[tokio::test]
async fn an_amount_is_a_plain_decimal_string() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10000.00").await, app.open("USD").await);
    for (sent, right) in [
        ("99.8", "\"99.80\""),
        ("100", "\"100.00\""),
        ("1e3", "\"1000.00\""),
        ("0.1", "\"0.10\""),
        ("-5", "\"12.50\""),
        ("true", "\"12.50\""),
        ("null", "\"12.50\""),
        ("[\"1.00\"]", "\"12.50\""),
        ("{\"value\":\"1.00\"}", "\"12.50\""),
        ("\"1e3\"", "\"12.50\""),
        ("\"NaN\"", "\"12.50\""),
        ("\"Infinity\"", "\"12.50\""),
        ("\" 1.00\"", "\"12.50\""),
        ("\"1.00 \"", "\"12.50\""),
        ("\"1,000.00\"", "\"12.50\""),
        ("\"1_000\"", "\"12.50\""),
        ("\"٣\"", "\"12.50\""),
        ("\"１\"", "\"12.50\""),
        ("\"+1.00\"", "\"12.50\""),
        ("\"$1.00\"", "\"12.50\""),
        ("\"01.00\"", "\"12.50\""),
        ("\".50\"", "\"12.50\""),
        ("\"1.\"", "\"12.50\""),
        ("\"1.0.0\"", "\"12.50\""),
        ("\"0x10\"", "\"12.50\""),
        ("\"\"", "\"12.50\""),
    ] {
        let body = format!(
            r#"{{"payer_account_id":"{payer}","payee_account_id":"{payee}","amount":{sent},"currency":"USD"}}"#
        );
        let problem = app.post_bytes("/payments", body).await.invalid(&["amount"]);
        let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(message.contains(right), "{sent}: {message}");
    }
    for sent in ["NaN", "01", "1.", ".5", "+1", "0x10", "1e400"] {
        let body = format!(
            r#"{{"payer_account_id":"{payer}","payee_account_id":"{payee}","amount":{sent},"currency":"USD"}}"#
        );
        app.post_bytes("/payments", body)
            .await
            .problem(400, "malformed_request");
    }
    for amount in ["0", "0.00", "-1.00", "-0"] {
        pay_amount(&app, &payer, &payee, &json!(amount), "USD")
            .await
            .invalid(&["amount"]);
    }
    assert_eq!(app.balance(&payer).await, "10000.00");
    assert_books_balance(&app.database);
}

/// A6: The same for the amounts of a refund, whose currency is not in the request.
#[tokio::test]
async fn the_amounts_of_a_refund_are_plain_decimal_strings() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let path = format!("/payments/{}/refunds", app.pay(&payer, &payee, "10.00").await.created());
    for field in ["amount", "expected_refunded_amount"] {
        for value in [
            json!(1),
            json!(9.5),
            json!(true),
            json!([]),
            json!("1e3"),
            json!("1,00"),
            json!(" 1"),
        ] {
            let problem = app
                .post(&path, &new_key(), &json!({(field): value}))
                .await
                .invalid(&[field]);
            let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
            assert!(message.contains('"'), "{value}: {message}");
        }
    }
    app.post(&path, &new_key(), &json!({"expected_refunded_amount": "-1"}))
        .await
        .invalid(&["expected_refunded_amount"]);
    assert_eq!(app.balance(&payer).await, "0.00");
    assert_books_balance(&app.database);
}

/// A8: The documented maximum can be held; one unit beyond is refused, and so is a balance that would pass it. Without this
/// NUMERIC overflows: a 500, or money lost.
#[tokio::test]
async fn the_largest_amount_and_balance_are_as_documented() {
    let app = App::start().await;
    for (currency, most, smallest, beyond) in [
        ("CLF", "999999999999999.9999", "0.0001", "1000000000000000"),
        ("USD", "999999999999999.99", "0.01", "1000000000000000.00"),
        ("JPY", "999999999999999", "1", "1000000000000000"),
    ] {
        let account = app.open(currency).await;
        deposit_in(&app, &account, beyond, currency).await.invalid(&["amount"]);
        deposit_in(&app, &account, &"9".repeat(400), currency)
            .await
            .invalid(&["amount"]);
        deposit_in(&app, &account, most, currency).await.created();
        assert_eq!(app.balance(&account).await, most);
        deposit_in(&app, &account, smallest, currency)
            .await
            .problem(422, "balance_overflow");
        let other = app.open(currency).await;
        pay_amount(&app, &account, &other, &json!(most), currency)
            .await
            .created();
        assert_eq!(app.balance(&other).await, most);
    }
    assert_books_balance(&app.database);
}

/// A8: A credit that would lift a balance over the maximum is refused, and everybody keeps what they had. All money of a tenant
/// comes from its external account, which has the same limit: only a fault in the books could bring a payee that far, and
/// then this is the last line before NUMERIC overflows.
#[tokio::test]
async fn a_payment_never_lifts_a_balance_over_the_maximum() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("1.00").await, app.open("USD").await);
    app.database.run_unguarded(&format!(
        "UPDATE accounts SET balance = 999999999999999.99 WHERE id = '{payee}'"
    ));
    app.pay(&payer, &payee, "0.01").await.problem(422, "balance_overflow");
    app.database
        .run_unguarded(&format!("UPDATE accounts SET balance = 0 WHERE id = '{payee}'"));
    assert_eq!(app.balance(&payer).await, "1.00");
    assert_books_balance(&app.database);
}

/// A9: Ten digits before the point are an everyday amount in rupiah. Without this `NUMERIC(15,9)` overflows at a million.
#[tokio::test]
async fn amounts_in_rupiah_are_large() {
    let app = App::start().await;
    let (payer, payee) = (app.open("IDR").await, app.open("IDR").await);
    deposit_in(&app, &payer, "5000000000", "IDR").await.created();
    let paid = pay_amount(&app, &payer, &payee, &json!("5000000000"), "IDR").await;
    paid.created();
    assert_eq!(paid.text("amount"), "5000000000.00");
    assert_eq!(app.balance(&payee).await, "5000000000.00");
    assert_books_balance(&app.database);
}
