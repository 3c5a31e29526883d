//! The questions that a reviewer asks of any payment endpoint, each one a test. The README has the same list with the places in the code.

use serde_json::{Value, json};

use crate::support::app::until;
use crate::support::client::payment;
use crate::support::commands::Cast;
use crate::support::{App, assert_books_balance, new_key};

/// An optional key is one that the client in trouble has not sent.
#[tokio::test]
async fn is_the_idempotency_key_in_the_api_and_mandatory() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let without = app.request(reqwest::Method::POST, "/payments");
    app.send(without.json(&payment(&payer, &payee, "10.00")))
        .await
        .problem(400, "idempotency_key_missing");
    assert_eq!(app.balance(&payer).await, "100.00");

    let document = app.get("/openapi.json").await.json();
    let operations = document["paths"].as_object().unwrap().values();
    let posts: Vec<&Value> = operations.filter_map(|path| path.get("post")).collect();
    assert_eq!(posts.len(), Cast::new(&app).await.each_command().len());
    for post in posts {
        let parameters = post["parameters"].as_array().unwrap();
        let key = parameters.iter().find(|parameter| {
            let parameter = parameter["$ref"].as_str().map_or(*parameter, |reference| {
                document.pointer(reference.trim_start_matches('#')).unwrap()
            });
            parameter["name"] == "Idempotency-Key" && parameter["in"] == "header" && parameter["required"] == true
        });
        assert!(key.is_some(), "{post}");
    }
    assert_books_balance(&app.database);
}

/// Who stores only "seen" can say no to a retry, but not what the client needs to know: what became of its payment.
#[tokio::test]
async fn is_the_response_stored_and_not_only_the_fact_of_the_request() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    // Were the answer made anew for the repeat, it would show what has happened since.
    app.refund(&first.created(), None).await.created();
    let repeat = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert_eq!((repeat.status, &repeat.body), (201, &first.body));
    assert_eq!(repeat.text("refunded_amount"), "0.00");
    let stored = format!(
        "SELECT convert_from(response_body, 'UTF8') FROM idempotency_keys WHERE key = '{key}' AND response_code = 201"
    );
    assert_eq!(app.database.word(&stored).as_bytes(), first.body);
    assert_books_balance(&app.database);
}

/// Without it, a client that reuses a key by mistake is told that the new payment was made.
#[tokio::test]
async fn is_the_request_hash_compared() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "10.00").await.created();
    app.pay_under(&key, &payer, &payee, "10.01")
        .await
        .problem(422, "idempotency_key_reused");
    let hash = app.get(&format!("/idempotency-keys/{key}")).await.text("request_hash");
    let stored = format!("SELECT encode(request_hash, 'hex') FROM idempotency_keys WHERE key = '{key}'");
    assert_eq!(app.database.word(&stored), hash);
    assert_eq!(app.balance(&payer).await, "90.00");
    assert_books_balance(&app.database);
}

/// Between two transactions there is a moment in which the money has moved and nobody knows it, or the other way round.
#[tokio::test]
async fn is_everything_in_one_transaction() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "10.00").await.created();
    // Every row that the payment has left behind was written by the same transaction.
    let transactions = format!(
        "SELECT count(DISTINCT x) FROM (
             SELECT xmin::text AS x FROM idempotency_keys WHERE key = '{key}'
             UNION ALL SELECT xmin::text FROM payments
             UNION ALL SELECT xmin::text FROM transfers WHERE kind = 'payment'
             UNION ALL SELECT xmin::text FROM accounts WHERE id IN ('{payer}', '{payee}')) rows"
    );
    assert_eq!(app.database.number(&transactions), 1);
    // And each of them can undo all of it.
    for table in ["payments", "transfers", "accounts", "idempotency_keys"] {
        let event = if table == "accounts" || table == "idempotency_keys" {
            "UPDATE"
        } else {
            "INSERT"
        };
        app.database.run(&format!(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
             CREATE TRIGGER fail BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION fail()"
        ));
        app.pay_under(&new_key(), &payer, &payee, "10.00")
            .await
            .problem(503, "unavailable");
        app.database.run("DROP FUNCTION fail CASCADE");
        let left = "SELECT (SELECT count(*) FROM payments) * 100 + (SELECT count(*) FROM transfers) * 10
            + (SELECT count(*) FROM idempotency_keys WHERE request_path = '/payments')";
        assert_eq!(app.database.number(left), 121, "{table}");
        assert_eq!(app.balance(&payer).await, "90.00", "{table}");
    }
    assert_books_balance(&app.database);
}

/// Shorter than a day and a client that is repaired overnight pays twice.
#[tokio::test]
async fn is_the_ttl_adequate() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "10.00").await.created();
    app.age(23);
    assert!(app.pay_under(&key, &payer, &payee, "10.00").await.is_replay());
    app.age(2);
    app.pay_under(&key, &payer, &payee, "10.00")
        .await
        .problem(410, "idempotency_key_expired");
    assert_eq!(app.balance(&payer).await, "90.00");
    assert_books_balance(&app.database);
}

/// Without one the table grows for ever; and it must run by itself.
#[tokio::test]
async fn is_there_a_clean_up() {
    let app = App::setup().flag("--cleanup-interval=1s").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    app.pay(&payer, &payee, "10.00").await.created();
    app.age(25);
    let database = &app.database;
    let bodies = "SELECT count(*) FROM idempotency_keys WHERE response_body IS NOT NULL";
    until("the responses to be erased", || database.number(bodies) == 0).await;
    assert_eq!(
        database.number("SELECT count(*) FROM idempotency_keys"),
        4,
        "tombstones stay"
    );
    app.age(90 * 24);
    let keys = "SELECT count(*) FROM idempotency_keys";
    until("the tombstones to be deleted", || database.number(keys) == 0).await;
    assert_eq!(
        app.get("/payments").await.json()["data"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(
        app.get(&format!("/accounts/{payer}")).await.json()["balance"],
        json!("90.00")
    );
    assert_books_balance(&app.database);
}
