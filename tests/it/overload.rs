//! More work than can be done: it is refused at once, and what is refused is not executed.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::app::{address_in, until, until_async};
use crate::support::{App, Proxy, TestDatabase, assert_books_balance, new_key};

/// A queue without a bound turns a slow minute into an hour of late answers, to clients that have gone.
#[tokio::test]
async fn when_the_queue_is_full_the_answer_is_503_overloaded_at_once_and_nothing_is_executed() {
    let app = App::setup()
        .flag("--engine-workers=1")
        .flag("--batch-max=1")
        .flag("--queue-max=3")
        .flag("--lock-timeout=10s")
        .start()
        .await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let held = app.database.lock_account(&payer);
    let pay = || {
        let (client, payer, payee) = (app.client.clone(), payer.clone(), payee.clone());
        tokio::spawn(async move { client.pay(&payer, &payee, "1.00").await })
    };
    let mut accepted = vec![pay()];
    until("the worker to be busy", || app.database.waiting() == 1).await;
    for length in 1..=3 {
        accepted.push(pay());
        until_async("it to wait in the queue", async || {
            app.metric("payonce_queue_length", "").await == length
        })
        .await;
    }
    let key = new_key();
    for _ in 0..3 {
        let refused = app.pay_under(&key, &payer, &payee, "1.00").await;
        let problem = refused.problem(503, "overloaded");
        assert_eq!(problem["retryable"], json!(true));
        assert!(refused.header("Retry-After").is_some());
    }
    app.get(&format!("/accounts/{payer}")).await.text("balance");
    drop(held);
    for reply in join_all(accepted).await {
        reply.unwrap().created();
    }
    app.get(&format!("/idempotency-keys/{key}"))
        .await
        .problem(404, "not_found");
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 4);
    let paid = app.pay_under(&key, &payer, &payee, "1.00").await;
    paid.created();
    assert!(!paid.is_replay());
    assert_books_balance(&app.database);
}

/// Many times more than the queue holds, over and over: each is done or refused, each refusal can be repeated.
#[tokio::test]
async fn under_overload_every_payment_is_made_once_in_the_end() {
    let app = App::setup()
        .instances(2)
        .flag("--engine-workers=1")
        .flag("--queue-max=5")
        .flag("--batch-max=4")
        .start()
        .await;
    let (payer, payee) = (app.open_with("1000.00").await, app.open("USD").await);
    let refused = std::cell::Cell::new(0);
    join_all((0..200).map(|number| {
        let (client, payer, payee, refused) = (app.on(number % 2), &payer, &payee, &refused);
        async move {
            let key = new_key();
            until_async("the payment", async || {
                let reply = client.pay_under(&key, payer, payee, "1.00").await;
                if reply.status != 201 {
                    reply.problem(503, "overloaded");
                    refused.set(refused.get() + 1);
                }
                reply.status == 201
            })
            .await;
        }
    }))
    .await;
    assert!(refused.get() > 0, "this was no overload");
    assert_eq!(app.balance(&payee).await, "200.00");
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 200);
    assert_books_balance(&app.database);
}

/// "Overloaded" promises that nothing was executed. A command whose commit may have happened, and which finds the queue
/// full when it wants to find out, must not promise that.
#[tokio::test]
async fn a_command_of_unknown_outcome_is_never_called_not_executed() {
    let database = TestDatabase::new();
    let proxy = Proxy::start(address_in(&database.url));
    let app = App::setup()
        .flag("--engine-workers=1")
        .flag("--batch-max=1")
        .flag("--queue-max=1")
        .start_on(database, Some(&proxy.address().to_string()))
        .await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    proxy.hold_after_seeing(b"COMMIT");
    let unknown = tokio::spawn({
        let (client, key, payer, payee) = (app.client.clone(), key.clone(), payer.clone(), payee.clone());
        async move { client.pay_under(&key, &payer, &payee, "10.00").await }
    });
    until("the commit", || {
        app.database.number("SELECT count(*) FROM payments") == 1
    })
    .await;
    // Others fill the queue, again and again, so that there is no room when the command comes back.
    let crowd: Vec<_> = (0..64)
        .map(|_| {
            let (client, payer, payee) = (app.client.clone(), payer.clone(), payee.clone());
            tokio::spawn(async move {
                for _ in 0..40 {
                    client.pay(&payer, &payee, "0.01").await;
                }
            })
        })
        .collect();
    until_async("the queue to be full", async || {
        app.metric("payonce_queue_length", "").await == 1
    })
    .await;
    proxy.cut();
    proxy.freeze();
    let reply = unknown.await.unwrap();
    assert_ne!(reply.json()["code"], json!("overloaded"), "{}", reply.shown());
    if reply.status != 201 {
        reply.problem(503, "unavailable");
    }
    proxy.pass();
    join_all(crowd).await;
    until_async("the replay", async || {
        app.pay_under(&key, &payer, &payee, "10.00").await.is_replay()
    })
    .await;
    assert_books_balance(&app.database);
}
