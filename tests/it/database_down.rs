//! PostgreSQL is gone, or hangs. Nothing is executed without it, everybody is told so in time, and it comes back by itself.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use crate::support::app::{address_in, until_async};
use crate::support::{App, Client, Proxy, Reply, TestDatabase, assert_books_balance, new_key};

async fn behind_a_proxy(flags: &[&str]) -> (App, Proxy, String, String) {
    let database = TestDatabase::new();
    let proxy = Proxy::start(address_in(&database.url));
    let setup = flags.iter().fold(App::setup(), |setup, flag| setup.flag(flag));
    let app = setup.start_on(database, Some(&proxy.address().to_string())).await;
    let (payer, payee) = (app.open_with("1000.00").await, app.open("USD").await);
    (app, proxy, payer, payee)
}

async fn probe(client: &Client, path: &str) -> u16 {
    client
        .send(client.http.get(format!("{}{path}", client.base)))
        .await
        .status
}

/// Executing a payment without its key is what this service is there to prevent; and a GET that hangs or shows an
/// empty list is worse than one that says "later". Nobody has to restart anything afterwards.
#[tokio::test]
async fn without_its_database_the_service_says_503_to_everything_and_recovers_by_itself() {
    let (app, proxy, payer, payee) = behind_a_proxy(&[]).await;
    let key = new_key();
    proxy.cut();
    let refused = app.pay_under(&key, &payer, &payee, "10.00").await;
    let problem = refused.problem(503, "unavailable");
    assert_eq!(problem["retryable"], json!(true));
    assert!(refused.header("Retry-After").is_some());
    for path in [
        format!("/accounts/{payer}"),
        format!("/accounts/{payer}/entries"),
        format!("/accounts/{payer}/balance"),
        "/accounts".to_owned(),
        "/payments".to_owned(),
        format!("/idempotency-keys/{key}"),
    ] {
        let refused = app.get(&path).await;
        refused.problem(503, "unavailable");
        assert!(refused.header("Retry-After").is_some(), "{path}");
    }
    assert_eq!(probe(&app, "/health/live").await, 200);
    assert_eq!(probe(&app, "/health/ready").await, 503);
    assert_eq!(probe(&app, "/metrics").await, 200);

    proxy.pass();
    until_async("the service to be ready again", async || {
        probe(&app, "/health/ready").await == 200
    })
    .await;
    until_async("payments again", async || {
        app.pay_under(&key, &payer, &payee, "10.00").await.status == 201
    })
    .await;
    assert_eq!(app.get(&format!("/accounts/{payer}")).await.text("balance"), "990.00");
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 1);
    assert_books_balance(&app.database);
}

/// C9: PostgreSQL hangs for a while with everything in flight. Without a limit of its own each request would hang, too, and
/// each would hold memory; and what is answered late must still be executed once.
#[tokio::test]
async fn a_frozen_database_with_500_requests_in_flight_is_503_in_time_and_all_recovers() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--answer-timeout=2s", "--queue-max=200"]).await;
    let keys: Vec<String> = (0..500).map(|_| new_key()).collect();
    let pay_all = async || {
        join_all(keys.iter().map(|key| {
            let (payer, payee, client) = (&payer, &payee, &app.client);
            async move {
                let asked = Instant::now();
                let reply = client.pay_under(key, payer, payee, "1.00").await;
                (reply, asked.elapsed())
            }
        }))
        .await
    };
    // So many connections of the client are there already, and their memory is counted.
    join_all((0..500).map(|_| app.get("/accounts"))).await;
    let memory = app.instances[0].memory();
    proxy.freeze();
    for _ in 0..2 {
        for (reply, took) in pay_all().await {
            let code = reply.json()["code"].as_str().unwrap_or_default().to_owned();
            let known = [
                (503, "unavailable"),
                (503, "overloaded"),
                (409, "idempotency_key_in_use"),
            ];
            assert!(known.contains(&(reply.status, code.as_str())), "{}", reply.shown());
            assert!(reply.header("Retry-After").is_some());
            assert!(took < Duration::from_secs(5), "a limit of 2 s took {took:?}");
        }
        let asked = Instant::now();
        app.get(&format!("/accounts/{payer}")).await.problem(503, "unavailable");
        assert!(asked.elapsed() < Duration::from_secs(5));
        assert_eq!(probe(&app, "/health/live").await, 200);
    }
    let grown = app.instances[0].memory().saturating_sub(memory);
    assert!(grown < 64 * 1024, "{grown} KiB more memory");

    proxy.pass();
    let thawed = Instant::now();
    until_async("a payment to be made", async || {
        app.pay(&payer, &payee, "1.00").await.status == 201
    })
    .await;
    assert!(
        thawed.elapsed() < Duration::from_secs(5),
        "recovered after {:?}",
        thawed.elapsed()
    );
    // 500 at once are still more than the queue holds; who was refused comes again.
    until_async("all payments to be made", async || {
        pay_all().await.iter().all(|(reply, _)| reply.status == 201)
    })
    .await;
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 501);
    assert_eq!(app.balance(&payer).await, "499.00");
    assert_books_balance(&app.database);
}

/// C9, the way around the engine: a repeat that Redis hints at is looked up by a read, which can hang as well.
#[tokio::test]
async fn a_hot_repeat_on_a_frozen_database_is_503_in_time() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--answer-timeout=1s"]).await;
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    proxy.freeze();
    let asked = Instant::now();
    let repeats = join_all((0..8).map(|_| app.pay_under(&key, &payer, &payee, "10.00"))).await;
    for repeat in repeats {
        repeat.problem(503, "unavailable");
    }
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "a limit of 1 s took {:?}",
        asked.elapsed()
    );
    proxy.pass();
    until_async("the replay", async || {
        let repeat = app.pay_under(&key, &payer, &payee, "10.00").await;
        repeat.is_replay() && repeat.body == first.body
    })
    .await;
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 1);
    assert_books_balance(&app.database);
}

/// A duplicate waits for the first one, but not longer than anybody waits for an answer.
#[tokio::test]
async fn a_duplicate_waits_no_longer_than_the_limit_for_any_answer() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--answer-timeout=1s", "--idempotency-wait=60s"]).await;
    let key = new_key();
    proxy.freeze();
    let asked = Instant::now();
    let replies = join_all((0..3).map(|_| app.pay_under(&key, &payer, &payee, "10.00"))).await;
    for reply in replies {
        assert!(reply.status == 503 || reply.status == 409, "{}", reply.shown());
    }
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "a limit of 1 s took {:?}",
        asked.elapsed()
    );
    proxy.pass();
    until_async("the payment", async || {
        app.pay_under(&key, &payer, &payee, "10.00").await.status == 201
    })
    .await;
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 1);
    assert_books_balance(&app.database);
}

/// PostgreSQL hears everything and says nothing: the payments are executed, and nobody hears of it. All of them are found
/// when it speaks again.
#[tokio::test]
async fn a_database_that_says_nothing_is_503_in_time_and_everything_is_found_later() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--answer-timeout=1s"]).await;
    let keys: Vec<String> = (0..20).map(|_| new_key()).collect();
    let pay_all = async || join_all(keys.iter().map(|key| app.pay_under(key, &payer, &payee, "1.00"))).await;
    proxy.hold_replies();
    for reply in pay_all().await {
        reply.problem(503, "unavailable");
    }
    proxy.pass();
    until_async("all payments to be made", async || {
        pay_all().await.iter().all(|reply| reply.status == 201)
    })
    .await;
    assert!(pay_all().await.iter().all(Reply::is_replay));
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 20);
    assert_books_balance(&app.database);
}

/// A fail-over: all sessions end at once, under load. Nobody is told anything wrong, and nothing is paid twice.
#[tokio::test]
async fn a_restart_of_the_database_under_load_loses_and_doubles_nothing() {
    let (app, proxy, payer, payee) = behind_a_proxy(&[]).await;
    let keys: Vec<String> = (0..120).map(|_| new_key()).collect();
    let payments = join_all(keys.iter().map(|key| {
        let (client, payer, payee) = (&app.client, &payer, &payee);
        async move {
            until_async("the payment", async || {
                let reply = client.pay_under(key, payer, payee, "1.00").await;
                assert!([201, 503, 409].contains(&reply.status), "{}", reply.shown());
                reply.status == 201
            })
            .await;
        }
    }));
    let restarts = async {
        for _ in 0..5 {
            proxy.cut();
            tokio::time::sleep(Duration::from_millis(30)).await;
            proxy.pass();
            tokio::time::sleep(Duration::from_millis(30)).await;
            app.database.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            );
        }
    };
    tokio::join!(payments, restarts);
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 120);
    until_async("the reads", async || {
        app.get(&format!("/accounts/{payee}")).await.status == 200
    })
    .await;
    assert_eq!(app.balance(&payee).await, "120.00");
    assert_books_balance(&app.database);
}

/// A standby, or a primary that was demoted: it can be read but not written. That is no refusal of the payment either.
#[tokio::test]
async fn a_database_that_is_read_only_is_503_and_recovers() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let name = app.database.name().to_owned();
    let end_sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    app.database.run(&format!(
        "ALTER DATABASE {name} SET default_transaction_read_only = on; {end_sessions}"
    ));
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "10.00")
        .await
        .problem(503, "unavailable");
    until_async("reads", async || {
        app.get(&format!("/accounts/{payer}")).await.status == 200
    })
    .await;
    app.database.run(&format!(
        "BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"
    ));
    until_async("the payment", async || {
        app.pay_under(&key, &payer, &payee, "10.00").await.status == 201
    })
    .await;
    assert_eq!(app.balance(&payer).await, "90.00");
    assert_books_balance(&app.database);
}
