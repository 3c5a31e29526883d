//! Text: what a request says is taken as it stands, or refused; nothing is guessed, cut or run.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{ids, payment};
use crate::support::{App, assert_books_balance, new_key};

/// X1: U+0000, which PostgreSQL can't store, is refused wherever it stands in a body. Without this it is a 500.
#[tokio::test]
async fn a_null_character_in_a_body_is_refused() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    for more in [
        json!({"description": "a\u{0}b"}),
        json!({"reference": "\u{0}"}),
        json!({"metadata": {"key": "a\u{0}"}}),
        json!({"metadata": {"a\u{0}": "value"}}),
        json!({"amount": "1.00\u{0}"}),
        json!({"currency": "USD\u{0}"}),
        json!({"payer_account_id": format!("{payer}\u{0}")}),
    ] {
        app.pay_with(&payer, &payee, "1.00", more)
            .await
            .problem(400, "malformed_request");
    }
    app.post("/accounts", &new_key(), &json!({"currency": "USD", "name": "\u{0}"}))
        .await
        .problem(400, "malformed_request");
    let path = format!("/payments/{}/refunds", app.pay(&payer, &payee, "1.00").await.created());
    app.post(&path, &new_key(), &json!({"reason": "\u{0}"}))
        .await
        .problem(400, "malformed_request");
    assert_eq!(app.balance(&payee).await, "1.00");
    assert_books_balance(&app.database);
}

/// X1: `%00` in a path, a query string or a cursor is 400. Without this it reaches PostgreSQL: a 500.
#[tokio::test]
async fn a_null_character_in_an_address_is_refused() {
    let app = App::start().await;
    let account = app.open("USD").await;
    for path in [
        "/accounts/%00".to_owned(),
        format!("/accounts/{account}%00"),
        format!("/accounts/{account}%00/entries"),
        "/payments/%00/refunds".to_owned(),
        "/refunds/%00".to_owned(),
        "/payments?reference=%00".to_owned(),
        "/payments?reference=a%00b".to_owned(),
        "/payments?status=refunded%00".to_owned(),
        "/payments?idempotency_key=a%00".to_owned(),
        "/payments?%00=1".to_owned(),
        "/payments?cursor=%00".to_owned(),
        "/accounts?cursor=%00".to_owned(),
        "/accounts?limit=1%00".to_owned(),
        format!("/accounts/{account}/entries?cursor=%00"),
    ] {
        app.get(&path).await.problem(400, "malformed_request");
    }
    app.get("/idempotency-keys/%00")
        .await
        .problem(400, "idempotency_key_invalid");
    app.get("/idempotency-keys/a%00b")
        .await
        .problem(400, "idempotency_key_invalid");
    let nowhere = "/accounts/%00/deposits";
    app.post(nowhere, &new_key(), &json!({"amount": "1.00", "currency": "USD"}))
        .await
        .problem(400, "malformed_request");
}

/// X2: Bytes that are no UTF-8, and halves of surrogate pairs, are 400. Without this they are stored as `�`, or are a 500.
#[tokio::test]
async fn what_is_no_unicode_is_refused() {
    let app = App::start().await;
    for name in [
        b"\xff".as_slice(),
        b"caf\xe9",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        br"\ud800",
        br"\udc00\ud800",
        br"a\ud83d",
        br"\u12",
        br"\x41",
    ] {
        let body = [br#"{"currency":"USD","name":""#.as_slice(), name, br#""}"#].concat();
        app.post_bytes("/accounts", body)
            .await
            .problem(400, "malformed_request");
    }
    app.get("/payments?reference=%ff")
        .await
        .problem(400, "malformed_request");
    app.get("/payments?reference=%ed%a0%80")
        .await
        .problem(400, "malformed_request");
    app.get("/accounts/%ff").await.problem(400, "malformed_request");
    let whole = br#"{"currency":"USD","name":"\ud83e\udd8a"}"#.as_slice();
    let opened = app.post_bytes("/accounts", whole).await;
    opened.created();
    assert_eq!(opened.text("name"), "🦊");
}

/// X4: Quotes, backslashes and SQL are text like any other: stored as they are in every field, and found by them. Without this
/// a customer called O'Brien is a 500, and `'; drop` is worse.
#[tokio::test]
async fn sql_is_just_text() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    for text in [
        "'",
        "\"",
        "\\",
        "''",
        "\\'",
        "'; drop table payments; --",
        "$1",
        "{a,b}",
        "NULL",
        "%",
        "_",
        "a\nb\tc\u{1}",
        "<script>alert(1)</script>",
        "\u{202e}\u{feff}é e\u{301}",
    ] {
        let body = json!({"currency": "USD", "name": text, "reference": text, "metadata": {(text): text}});
        let opened = app.post("/accounts", &new_key(), &body).await;
        let id = opened.created();
        let account = app.read(&format!("/accounts/{id}")).await;
        for member in ["name", "reference", "metadata"] {
            assert_eq!(account[member], body[member], "{text:?}");
        }
        let more = json!({"description": text, "reference": text, "metadata": {(text): text}});
        let paid = app.pay_with(&payer, &payee, "2.00", more.clone()).await.created();
        let shown = app.read(&format!("/payments/{paid}")).await;
        for member in ["description", "reference", "metadata"] {
            assert_eq!(shown[member], more[member], "{text:?}");
        }
        let refunds = format!("/payments/{paid}/refunds");
        let body = json!({"amount": "1.00", "reason": text});
        let refunded = app.post(&refunds, &new_key(), &body).await;
        assert_eq!(
            app.read(&format!("/refunds/{}", refunded.created())).await["reason"],
            body["reason"]
        );
        let deposits = format!("/accounts/{payer}/deposits");
        let body = json!({"amount": "1.00", "currency": "USD", "description": text});
        let made = app.post(&deposits, &new_key(), &body).await;
        assert_eq!(
            app.read(&format!("/deposits/{}", made.created())).await["description"],
            body["description"]
        );

        let encoded = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
        assert_eq!(
            ids(&app.list(&format!("/payments?reference={encoded}")).await),
            [paid],
            "{text:?}"
        );
    }
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 14);
    assert_books_balance(&app.database);
}

/// X4: In a filter it matches itself or nothing; where only certain words may stand it is refused. Without this `%` lists everything.
#[tokio::test]
async fn sql_in_a_filter_finds_nothing() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    app.pay_with(&payer, &payee, "1.00", json!({"reference": "order"}))
        .await
        .created();
    for text in [
        "'",
        "\"",
        "\\",
        "'; drop table payments; --",
        "%",
        "ord%",
        "' OR '1'='1",
        "order'--",
    ] {
        let encoded = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
        for filter in ["reference", "idempotency_key"] {
            let found = app.list(&format!("/payments?{filter}={encoded}")).await;
            assert_eq!(found, Vec::<Value>::new(), "{filter}={text}");
        }
        for filter in ["status", "account_id", "created_from", "limit", "cursor"] {
            app.get(&format!("/payments?{filter}={encoded}"))
                .await
                .problem(400, "malformed_request");
        }
    }
    assert_eq!(app.list("/payments?reference=order").await.len(), 1);
    assert_books_balance(&app.database);
}

/// A member that is given twice is refused, at any depth, before anything else is looked at. Without this the caller means
/// the first amount, the service takes the last, and the hash covers one of them.
#[tokio::test]
async fn a_member_that_is_given_twice_is_refused() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let start = format!(r#"{{"payer_account_id":"{payer}","payee_account_id":"{payee}","currency":"USD""#);
    for rest in [
        r#""amount":"1.00","amount":"2.00"}"#,
        r#""amount":"1.00","amount":"1.00"}"#,
        r#""amount":"1.00","\u0061mount":"1.00"}"#,
        r#""amount":"1.00","currency":"USD"}"#,
        r#""amount":"1.00","metadata":{"a":"1","a":"2"}}"#,
        r#""amount":"1.00","metadata":{"a":{"b":"1","b":"1"}}}"#,
        r#""amount":"1.00","unknown":1,"unknown":1}"#,
        r#""amount":"no amount","amount":"1.00"}"#,
    ] {
        let reply = app.post_bytes("/payments", format!("{start},{rest}")).await;
        let problem = reply.problem(400, "malformed_request");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("twice")),
            "{problem}"
        );
    }
    assert_eq!(app.balance(&payer).await, "10.00");
    assert_books_balance(&app.database);
}

/// A member's name has one spelling. (That unknown ones are refused in every body: `every_command.rs`.) Without this `"Amount"` is
/// ignored, and the caller believes it was heard.
#[tokio::test]
async fn a_member_in_capitals_is_unknown() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("9.00").await, app.open("USD").await);
    let mut capital = payment(&payer, &payee, "1.00");
    capital["Amount"] = json!("1.00");
    app.post("/payments", &new_key(), &capital)
        .await
        .problem(400, "unknown_parameter");
    assert_eq!(app.balance(&payer).await, "9.00");
    assert_books_balance(&app.database);
}

/// A query parameter that nobody knows, or that is given twice, is refused, on every route. Without this
/// `?acount_id=` lists everybody's payments.
#[tokio::test]
async fn an_unknown_or_repeated_query_parameter_is_refused() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let deposit = app.deposit(&payer, "1.00").await.created();
    let withdrawal = app.withdraw(&payer, "1.00").await.created();
    let paid = app.pay_under("a-key", &payer, &payee, "1.00").await.created();
    let refund = app.refund(&paid, None).await.created();
    for path in [
        "/accounts".to_owned(),
        format!("/accounts/{payer}"),
        format!("/accounts/{payer}/entries"),
        format!("/accounts/{payer}/balance"),
        format!("/deposits/{deposit}"),
        format!("/withdrawals/{withdrawal}"),
        "/payments".to_owned(),
        format!("/payments/{paid}"),
        format!("/payments/{paid}/refunds"),
        format!("/refunds/{refund}"),
        "/idempotency-keys/a-key".to_owned(),
    ] {
        app.read(&path).await;
        for query in ["colour=blue", "colour", "Limit=1", "limit%5B%5D=1"] {
            app.get(&format!("{path}?{query}"))
                .await
                .problem(400, "unknown_parameter");
        }
    }
    for path in ["/accounts?limit=1&limit=1", "/payments?reference=a&reference=b"] {
        app.get(path).await.problem(400, "malformed_request");
    }
    for path in [
        "/payments".to_owned(),
        format!("/payments/{paid}/refunds"),
        format!("/accounts/{payer}/freeze"),
    ] {
        app.post(&format!("{path}?dry_run=true"), &new_key(), &json!({}))
            .await
            .problem(400, "unknown_parameter");
    }
    assert_books_balance(&app.database);
}

/// A body is one JSON object and nothing else. Without this two objects in one body are one payment or two.
#[tokio::test]
async fn a_body_is_one_json_object() {
    let app = App::start().await;
    let one = r#"{"currency":"USD","name":"Alice"}"#;
    let deep = format!(
        r#"{{"currency":"USD","name":{}1{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    for body in [
        "{".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "\"text\"".to_owned(),
        "7".to_owned(),
        " ".to_owned(),
        "currency=USD&name=Alice".to_owned(),
        format!("{one}{one}"),
        format!("{one},"),
        format!("[{one}]"),
        format!("\u{feff}\u{feff}{one}"),
        format!("{one}\u{feff}"),
        "\u{feff}".to_owned(),
        one.replace('"', "'"),
        one.replace('}', ",}"),
        format!("{one} // a comment"),
        deep,
    ] {
        app.post_bytes("/accounts", body)
            .await
            .problem(400, "malformed_request");
    }
    app.post_bytes("/accounts", format!("\r\n\t {one}\n")).await.created();
    assert_eq!(app.list("/accounts").await.len(), 1);
}

/// A byte-order mark in front of a body, as PowerShell and .NET write it, says nothing: the request is the same, under the same key,
/// with and without it. Without this their users read "expected value at line 1 column 1".
#[tokio::test]
async fn a_byte_order_mark_says_nothing() {
    let app = App::start().await;
    let one = r#"{"currency":"USD","name":"Alice"}"#;
    let key = new_key();
    let post = |body: String| {
        let request = app.request(Method::POST, "/accounts").header("Idempotency-Key", &key);
        app.send(request.header("Content-Type", "application/json").body(body))
    };
    post(format!("\u{feff}{one}")).await.created();
    assert!(post(one.to_owned()).await.is_replay());
    assert!(post(format!("\u{feff} {one}\n")).await.is_replay());
    assert_eq!(app.list("/accounts").await.len(), 1);
}

/// A body in UTF-16 or UTF-32 is refused by that name, with or without its byte-order mark. Without this it is
/// "expected value at line 1 column 1" again.
#[tokio::test]
async fn a_body_in_another_encoding_is_refused_by_its_name() {
    let app = App::start().await;
    let one = r#"{"currency":"USD","name":"Alice"}"#;
    for mark in ["", "\u{feff}"] {
        let text = format!("{mark}{one}");
        let utf_16 = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        let utf_32 = |bytes: fn(u32) -> [u8; 4]| text.chars().map(u32::from).flat_map(bytes).collect::<Vec<u8>>();
        for (body, name) in [
            (utf_16(u16::to_le_bytes), "UTF-16"),
            (utf_16(u16::to_be_bytes), "UTF-16"),
            (utf_32(u32::to_le_bytes), "UTF-32"),
            (utf_32(u32::to_be_bytes), "UTF-32"),
        ] {
            let problem = app
                .post_bytes("/accounts", body)
                .await
                .problem(400, "malformed_request");
            assert_eq!(problem["detail"], format!("the body must be UTF-8, not {name}"));
        }
    }
}

/// What is no object is answered with what to send instead: an object, or where nothing needs to be said, `{}` or no body.
/// Without this a client that writes `null` or `[]` for "nothing" can't tell how nothing is written.
#[tokio::test]
async fn what_is_no_object_is_answered_with_what_to_send() {
    let app = App::start().await;
    let account = app.open("USD").await;
    for (body, kind) in [
        ("[]", "an array"),
        ("null", "null"),
        ("\"text\"", "a string"),
        ("7", "a number"),
        ("true", "a boolean"),
    ] {
        for (path, expected) in [
            ("/accounts".to_owned(), "a JSON object"),
            ("/payments".to_owned(), "a JSON object"),
            (format!("/accounts/{account}/deposits"), "a JSON object"),
            (format!("/accounts/{account}/close"), "`{}` or absent"),
            (
                format!("/payments/{account}/refunds"),
                "a JSON object (`{}` or no body at all refunds what remains)",
            ),
        ] {
            let problem = app.post_bytes(&path, body).await.problem(400, "malformed_request");
            assert_eq!(
                problem["detail"],
                format!("the body must be {expected}, not {kind}"),
                "{path}"
            );
        }
    }
}

/// A wrong type is a message about the field, not a parser's complaint. Without this the caller counts columns.
#[tokio::test]
async fn a_wrong_type_is_named_by_its_field() {
    let app = App::start().await;
    for value in [json!(1), json!(true), json!([]), json!({})] {
        let body = json!({"currency": value, "name": value, "reference": value});
        app.post("/accounts", &new_key(), &body)
            .await
            .invalid(&["currency", "name", "reference"]);
    }
}
