//! A key that comes again with another request is refused: either answer to it would be wrong.

use serde_json::json;

use crate::support::app::until;
use crate::support::client::payment;
use crate::support::{App, assert_books_balance, new_key};

/// I2: who only looks at the key takes the second request for a retry, and the caller believes it was paid.
#[tokio::test]
async fn a_key_with_another_amount_or_on_another_route_is_refused_and_nothing_is_executed() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    for at in [0, 1] {
        let other = app.on(at);
        other
            .pay_under(&key, &payer, &payee, "11.00")
            .await
            .problem(422, "idempotency_key_reused");
        for (path, body) in [
            ("/accounts".to_owned(), json!({"currency": "USD", "name": "A"})),
            (
                format!("/accounts/{payer}/deposits"),
                json!({"amount": "10.00", "currency": "USD"}),
            ),
            (format!("/accounts/{payee}/freeze"), json!({})),
            (format!("/payments/{}/refunds", first.created()), json!({})),
        ] {
            let reused = other.post(&path, &key, &body).await;
            reused.problem(422, "idempotency_key_reused");
            assert!(!reused.is_replay());
        }
    }
    assert_eq!(app.balance(&payer).await, "90.00");
    let replay = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert_eq!((replay.status, replay.body), (201, first.body));
    assert_books_balance(&app.database);
}

/// A path parameter is part of the request: freezing another account is no retry.
#[tokio::test]
async fn the_route_counts_with_its_path_parameters() {
    let app = App::start().await;
    let (one, two) = (app.open("USD").await, app.open("USD").await);
    let key = new_key();
    let frozen = app.post(&format!("/accounts/{one}/freeze"), &key, &json!({})).await;
    assert_eq!(frozen.text("status"), "frozen");
    for path in [format!("/accounts/{two}/freeze"), format!("/accounts/{one}/unfreeze")] {
        app.post(&path, &key, &json!({}))
            .await
            .problem(422, "idempotency_key_reused");
    }
    assert_eq!(app.get(&format!("/accounts/{two}")).await.text("status"), "active");
    assert_eq!(app.get(&format!("/accounts/{one}")).await.text("status"), "frozen");
}

/// The other way round: what only looks different is the same request. A client that formats its retry anew is no cheat.
#[tokio::test]
async fn member_order_white_space_and_the_spelling_of_an_amount_do_not_count() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let spellings = [
        format!(
            r#"{{"payer_account_id":"{payer}","payee_account_id":"{payee}","amount":"12.50","currency":"USD","metadata":{{"a":"1","b":"2"}}}}"#
        ),
        format!(
            "\n{{ \"metadata\": {{\"b\": \"2\", \"a\": \"\\u0031\"}}, \"currency\" : \"USD\", \"amount\": \"12.5\",\t
             \"payee_account_id\": \"{}\", \"description\": null, \"payer_account_id\": \"{payer}\" }} ",
            payee.to_uppercase()
        ),
    ];
    let mut replies = Vec::new();
    for body in spellings {
        let request = app
            .request(reqwest::Method::POST, "/payments")
            .header("Idempotency-Key", &key)
            .header("Content-Type", "application/json");
        replies.push(app.send(request.body(body)).await);
    }
    assert_eq!(replies[0].created(), replies[1].created());
    assert!(!replies[0].is_replay() && replies[1].is_replay());
    assert_eq!(app.balance(&payer).await, "87.50");
    assert_books_balance(&app.database);
}

/// While the first is still running, another request under its key waits for it and is then refused; it never runs beside it.
#[tokio::test]
async fn another_request_under_a_key_that_is_running_is_refused_here_and_at_another_instance() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    for at in [0, 1] {
        let key = new_key();
        let held = app.database.lock_account(&payer);
        let start = |at: usize, amount: &str| {
            let (client, key, body) = (app.on(at), key.clone(), payment(&payer, &payee, amount));
            tokio::spawn(async move { client.post("/payments", &key, &body).await })
        };
        let first = start(0, "10.00");
        until("the first to be under way", || app.database.waiting() > 0).await;
        let other = start(at, "20.00");
        drop(held);
        let (first, other) = (first.await.unwrap(), other.await.unwrap());
        // At another instance the second may have been first; one of them was, and the other was refused.
        let (paid, refused) = if first.status == 201 {
            (first, other)
        } else {
            (other, first)
        };
        paid.created();
        refused.problem(422, "idempotency_key_reused");
    }
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 2);
    assert_books_balance(&app.database);
}

/// A refusal binds its key as a success does: under another content it would be a new try through the back door.
#[tokio::test]
async fn the_key_of_a_refusal_can_not_be_used_for_another_request() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("1.00").await, app.open("USD").await);
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "50.00")
        .await
        .problem(402, "insufficient_funds");
    app.pay_under(&key, &payer, &payee, "1.00")
        .await
        .problem(422, "idempotency_key_reused");
    assert_eq!(app.balance(&payer).await, "1.00");
    assert_books_balance(&app.database);
}

/// What never reached the transaction is not stored: the client corrects its mistake and keeps its key.
#[tokio::test]
async fn what_never_reached_the_transaction_leaves_the_key_free() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let body = payment(&payer, &payee, "10.00");
    let post = |path: &str| app.post_request(path, &key, &body);
    let unauthenticated = app.with_api_key("payonce_wrong").post_request("/payments", &key, &body);
    app.send(unauthenticated).await.problem(401, "unauthenticated");
    let reader = app
        .with_scopes("tenant-a", &["read"])
        .post_request("/payments", &key, &body);
    app.send(reader).await.problem(403, "forbidden");
    app.send(post("/payments?x=1")).await.problem(400, "unknown_parameter");
    let text = app
        .request(reqwest::Method::POST, "/payments")
        .header("Idempotency-Key", &key);
    app.send(text.header("Content-Type", "text/plain").body("{}"))
        .await
        .problem(415, "unsupported_media_type");
    app.send(post("/payments").body("{"))
        .await
        .problem(400, "malformed_request");
    app.send(post("/payments").body(vec![b' '; 70_000]))
        .await
        .problem(413, "body_too_large");
    app.pay_under(&key, &payer, &payee, "0.00")
        .await
        .problem(422, "validation_failed");
    app.pay_under(&key, &payer, &payer, "10.00")
        .await
        .problem(422, "same_account");
    app.get(&format!("/idempotency-keys/{key}"))
        .await
        .problem(404, "not_found");
    let paid = app.post("/payments", &key, &body).await;
    paid.created();
    assert!(!paid.is_replay());
    assert_books_balance(&app.database);
}
