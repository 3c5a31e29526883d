//! What breaks in the middle of a transaction: the service, PostgreSQL's session, the line between them. Whatever it is,
//! a retry executes or replays at once, and money moves once.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::app::{address_in, until, until_async};
use crate::support::client::payment;
use crate::support::{App, Client, Instance, Proxy, Reply, TestDatabase, assert_books_balance, new_key};

const PAYMENTS: &str = "SELECT count(*) FROM payments";

/// An app whose first instance reaches PostgreSQL through a proxy, and two accounts.
async fn behind_a_proxy(flags: &[&str]) -> (App, Proxy, String, String) {
    let database = TestDatabase::new();
    let proxy = Proxy::start(address_in(&database.url));
    let setup = flags.iter().fold(App::setup(), |setup, flag| setup.flag(flag));
    let app = setup.start_on(database, Some(&proxy.address().to_string())).await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    (app, proxy, payer, payee)
}

/// The outcome of a payment that may be repeated: never anything else than done, or try again.
fn assert_done_or_try_again(reply: &Reply) {
    if reply.status == 201 {
        reply.created();
    } else {
        reply.problem(503, "unavailable");
        assert!(reply.header("Retry-After").is_some());
    }
}

async fn retry_until_paid(client: &Client, key: &str, payer: &str, payee: &str) -> Reply {
    let mut last = None;
    until_async("the payment to be answered", async || {
        let reply = client.pay_under(key, payer, payee, "10.00").await;
        assert_done_or_try_again(&reply);
        let paid = reply.status == 201;
        last = Some(reply);
        paid
    })
    .await;
    last.unwrap()
}

/// I22: a record that says "in progress" outlives the process that was in progress. Here there is none: the claim dies
/// with its transaction.
#[tokio::test]
async fn kill_9_in_mid_transaction_leaves_nothing_and_the_retry_executes_at_once() {
    let mut app = App::setup().instances(2).flag("--lock-timeout=10s").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
    let held = app.database.lock_account(&payer);
    let dying = tokio::spawn(Client::try_send(app.post_request("/payments", &key, &body)));
    until("the payment to be in mid-transaction", || app.database.waiting() == 1).await;
    app.instances[0].kill();
    assert!(dying.await.unwrap().is_err(), "killed without an answer");
    assert_eq!(app.database.number(PAYMENTS), 0);
    drop(held);
    let retry = app.on(1).pay_under(&key, &payer, &payee, "10.00").await;
    retry.created();
    assert!(!retry.is_replay());
    assert_eq!(app.database.number(PAYMENTS), 1);
    assert_books_balance(&app.database);
}

/// I22: and killed between the commit and the answer, the retry replays.
#[tokio::test]
async fn kill_9_after_the_commit_and_before_the_answer_makes_the_retry_a_replay() {
    let (mut app, proxy, payer, payee) = behind_a_proxy(&[]).await;
    let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
    proxy.hold_after_seeing(b"COMMIT");
    let dying = tokio::spawn(Client::try_send(app.post_request("/payments", &key, &body)));
    until("the commit", || app.database.number(PAYMENTS) == 1).await;
    assert!(proxy.holds_replies() && !dying.is_finished());
    app.instances[0].kill();
    assert!(dying.await.unwrap().is_err(), "killed without an answer");
    proxy.cut();
    proxy.pass();
    let successor = app.add_instance().await;
    let retry = successor.pay_under(&key, &payer, &payee, "10.00").await;
    retry.created();
    assert!(retry.is_replay());
    assert_eq!(app.database.number(PAYMENTS), 1);
    assert_books_balance(&app.database);
}

/// I22, C7 (57P01): an operator ends the session, or PostgreSQL restarts. The command is run again, on a new connection.
#[tokio::test]
async fn a_session_that_is_ended_in_mid_transaction_is_made_up_for_inside() {
    let app = App::setup().flag("--lock-timeout=10s").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let held = app.database.lock_account(&payer);
    let paying = tokio::spawn({
        let (client, key, payer, payee) = (app.client.clone(), key.clone(), payer.clone(), payee.clone());
        async move { client.pay_under(&key, &payer, &payee, "10.00").await }
    });
    for _ in 0..2 {
        let mut ended = 0;
        until("a session that waits for the lock to be ended", || {
            ended = app.database.number(
                "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock') ended",
            );
            ended == 1
        })
        .await;
    }
    drop(held);
    let paid = paying.await.unwrap();
    paid.created();
    assert!(!paid.is_replay());
    assert!(app.pay_under(&key, &payer, &payee, "10.00").await.is_replay());
    assert_eq!(app.database.number(PAYMENTS), 1);
    assert_books_balance(&app.database);
}

/// C7: what PostgreSQL may raise under load is not the caller's fault, and is over in a moment. Once: nobody notices.
#[tokio::test]
async fn an_error_that_happens_once_is_made_up_for_inside() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    app.database.run("CREATE SEQUENCE faults");
    for (number, fault) in faults().into_iter().enumerate() {
        app.database.run("ALTER SEQUENCE faults RESTART");
        app.database
            .fault_on_payment(&format!("IF nextval('faults') = 1 THEN {fault} END IF;"));
        let paid = app.pay(&payer, &payee, "1.00").await;
        assert_eq!(paid.status, 201, "{fault}: {}", paid.shown());
        assert!(!paid.is_replay());
        assert_eq!(
            app.database.number("SELECT last_value FROM faults"),
            2,
            "{fault} did happen"
        );
        assert_eq!(app.database.number(PAYMENTS), i64::try_from(number).unwrap() + 1);
    }
    assert_books_balance(&app.database);
}

/// C7: always: an honest 503. As a business refusal it would be stored, and the payment lost; as a 500 it would be a bug.
#[tokio::test]
async fn an_error_that_does_not_end_is_503_and_never_a_refusal_or_a_500() {
    let app = App::setup().flag("--idempotency-wait=1s").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    for fault in faults() {
        let key = new_key();
        app.database.fault_on_payment(fault);
        let failed = app.pay_under(&key, &payer, &payee, "1.00").await;
        let problem = failed.problem(503, "unavailable");
        assert_eq!(problem["retryable"], json!(true), "{fault}");
        assert!(failed.header("Retry-After").is_some(), "{fault}");
        app.database.drop_fault();
        let paid = app.pay_under(&key, &payer, &payee, "1.00").await;
        paid.created();
        assert!(!paid.is_replay(), "{fault} was stored");
    }
    assert_eq!(app.metric("payonce_broken_total", "").await, 0);
    assert!(app.metric("payonce_given_up_total", "rolled_back").await >= 5);
    assert_books_balance(&app.database);
}

/// C7: the errors, by their SQLSTATE: serialization failure, deadlock, lock not available, cancelled statement, shutdown
/// by an administrator (the error, and the real end of the session).
fn faults() -> [&'static str; 6] {
    [
        "RAISE 'planted' USING ERRCODE = '40001';",
        "RAISE 'planted' USING ERRCODE = '40P01';",
        "RAISE 'planted' USING ERRCODE = '55P03';",
        "RAISE 'planted' USING ERRCODE = '57014';",
        "RAISE 'planted' USING ERRCODE = '57P01';",
        "PERFORM pg_terminate_backend(pg_backend_pid());",
    ]
}

/// What only a bug can violate is 500, alarms, and is not stored. The row in the message, which PostgreSQL cuts off somewhere, must not
/// make something else of it.
#[tokio::test]
async fn a_violated_constraint_is_500_and_never_a_503_or_a_refusal() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let violations = ["23514", "23505", "23503", "23502", "23001", "23P01"];
    for violation in violations {
        let key = new_key();
        app.database
            .fault_on_payment(&format!("RAISE 'planted' USING ERRCODE = '{violation}';"));
        let failed = app.pay_under(&key, &payer, &payee, "1.00").await;
        failed.problem(500, "internal_error");
        app.database.drop_fault();
        let paid = app.pay_under(&key, &payer, &payee, "1.00").await;
        paid.created();
        assert!(!paid.is_replay(), "{violation} was stored");
    }
    app.database.run("ALTER TABLE accounts ADD CHECK (name !~ '漢')");
    for length in 190..=200 {
        let account = json!({"currency": "USD", "name": "漢".repeat(length)});
        let refused = app.post("/accounts", &new_key(), &account).await;
        refused.problem(500, "internal_error");
    }
    let broken = u64::try_from(violations.len()).unwrap() + 11;
    assert_eq!(app.metric("payonce_broken_total", "").await, broken);
    assert_eq!(app.metric("payonce_given_up_total", "").await, 0);
    assert_books_balance(&app.database);
}

/// C7: one command with an error that does not end must not take those with it that are in its batch.
#[tokio::test]
async fn only_the_culprit_of_a_batch_fails() {
    let app = App::setup()
        .flag("--engine-workers=1")
        .flag("--lock-timeout=10s")
        .start()
        .await;
    let (payer, payee) = (app.open_with("1000.00").await, app.open("USD").await);
    let other = app.open_with("10.00").await;
    app.database
        .fault_on_payment("IF NEW.amount = 13 THEN RAISE 'planted' USING ERRCODE = '40001'; END IF;");
    // While the worker waits for this lock, the others queue up to be its next batch.
    let held = app.database.lock_account(&other);
    let blocked = tokio::spawn({
        let (client, other, payee) = (app.client.clone(), other.clone(), payee.clone());
        async move { client.pay(&other, &payee, "1.00").await }
    });
    until("the worker to wait", || app.database.waiting() == 1).await;
    let batch = join_all((0..20).map(|number| {
        let (client, payer, payee) = (app.client.clone(), payer.clone(), payee.clone());
        async move {
            let amount = if number == 7 { "13.00" } else { "1.00" };
            client.pay(&payer, &payee, amount).await
        }
    }));
    let release = async {
        until_async("the batch to wait", async || {
            app.metric("payonce_queue_length", "").await >= 19
        })
        .await;
        drop(held);
    };
    let (replies, ()) = tokio::join!(batch, release);
    blocked.await.unwrap().created();
    for (number, reply) in replies.iter().enumerate() {
        if number == 7 {
            reply.problem(503, "unavailable");
        } else {
            reply.created();
        }
    }
    assert_eq!(app.balance(&payer).await, "981.00");
    assert_books_balance(&app.database);
}

/// C7 (08006): the line is cut in the middle of the transaction. It rolled back; the command is run again.
#[tokio::test]
async fn a_line_that_is_cut_in_mid_transaction_is_503_or_made_up_for_inside() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--lock-timeout=10s"]).await;
    for _ in 0..3 {
        let key = new_key();
        let before = app.database.number(PAYMENTS);
        let held = app.database.lock_account(&payer);
        let paying = tokio::spawn({
            let (client, key, payer, payee) = (app.client.clone(), key.clone(), payer.clone(), payee.clone());
            async move { client.pay_under(&key, &payer, &payee, "10.00").await }
        });
        until("the payment to be in mid-transaction", || app.database.waiting() == 1).await;
        proxy.cut();
        proxy.pass();
        drop(held);
        assert_done_or_try_again(&paying.await.unwrap());
        retry_until_paid(&app, &key, &payer, &payee).await;
        assert_eq!(app.database.number(PAYMENTS), before + 1);
    }
    assert_books_balance(&app.database);
}

/// The commit went through and the news of it got lost: nobody but PostgreSQL knows. To say "failed" would be a lie in half of
/// the cases, to run it again without the key a second payment.
#[tokio::test]
async fn a_commit_whose_reply_is_cut_off_is_found_out_under_the_same_key() {
    let (app, proxy, payer, payee) = behind_a_proxy(&[]).await;
    for round in 1..=3 {
        let key = new_key();
        proxy.hold_after_seeing(b"COMMIT");
        let paying = tokio::spawn({
            let (client, key, payer, payee) = (app.client.clone(), key.clone(), payer.clone(), payee.clone());
            async move { client.pay_under(&key, &payer, &payee, "10.00").await }
        });
        until("the commit", || app.database.number(PAYMENTS) == round).await;
        assert!(!paying.is_finished());
        proxy.cut();
        proxy.pass();
        let answer = paying.await.unwrap();
        assert_done_or_try_again(&answer);
        // The engine asked again under the key and found its own work: to the caller that is the first answer.
        assert!(!answer.is_replay());
        let retry = retry_until_paid(&app, &key, &payer, &payee).await;
        assert!(retry.is_replay());
        assert_eq!(app.database.number(PAYMENTS), round);
    }
    assert_books_balance(&app.database);
}

/// The same, and PostgreSQL stays out of reach. That no connection can be had says nothing of the attempt before: it was committed.
#[tokio::test]
async fn a_commit_whose_reply_is_cut_off_is_not_told_as_nothing_executed() {
    let (app, proxy, payer, payee) = behind_a_proxy(&[]).await;
    let key = new_key();
    proxy.hold_after_seeing(b"COMMIT");
    let paying = tokio::spawn({
        let (client, key, payer, payee) = (app.client.clone(), key.clone(), payer.clone(), payee.clone());
        async move { client.pay_under(&key, &payer, &payee, "10.00").await }
    });
    until("the commit", || app.database.number(PAYMENTS) == 1).await;
    proxy.cut();
    let told = paying.await.unwrap();
    let detail = told.problem(503, "unavailable")["detail"].to_string();
    for lie in ["nothing was executed", "it was rolled back"] {
        assert!(!detail.contains(lie), "{detail}");
    }
    proxy.pass();
    let retry = retry_until_paid(&app, &key, &payer, &payee).await;
    assert!(retry.is_replay());
    assert_eq!(app.database.number(PAYMENTS), 1);
    assert_books_balance(&app.database);
}

/// The same, but the reply comes too late for the caller: 503 in time, and the answer is there for the retry.
#[tokio::test]
async fn a_commit_whose_reply_is_late_is_503_in_time_and_a_replay_later() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--answer-timeout=500ms"]).await;
    let key = new_key();
    proxy.hold_after_seeing(b"COMMIT");
    let late = app.pay_under(&key, &payer, &payee, "10.00").await;
    let problem = late.problem(503, "unavailable");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("retry with the same Idempotency-Key"),
        "{problem}"
    );
    proxy.pass();
    let retry = retry_until_paid(&app, &key, &payer, &payee).await;
    assert!(retry.is_replay());
    assert_eq!(app.database.number(PAYMENTS), 1);
    assert_books_balance(&app.database);
}

/// C11: an instance that hangs inside a transaction holds its locks until somebody ends its session. PostgreSQL does.
#[tokio::test]
async fn a_frozen_instance_loses_its_locks_and_the_others_go_on() {
    let database = TestDatabase::new();
    let proxy = Proxy::start(address_in(&database.url));
    let app = App::setup()
        .flag("--idle-in-transaction-timeout=1s")
        .flag("--lock-timeout=10s")
        .start_on(database, Some(&proxy.address().to_string()))
        .await;
    let direct = App::setup().flag("--idempotency-wait=20s").flag("--answer-timeout=20s");
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let other: Instance = direct.start_instance(&app.database.url);
    let there = app.client.at(&other);
    there.until_ready().await;

    // The locks are taken and the first payment is about to be written; before the instance hears more, it is frozen.
    let key = new_key();
    proxy.hold_after_seeing(b"INSERT INTO payments");
    let paying = tokio::spawn({
        let (client, key, payer, payee) = (app.client.clone(), key.clone(), payer.clone(), payee.clone());
        async move { client.pay_under(&key, &payer, &payee, "10.00").await }
    });
    let idle =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'";
    until("the locks to be taken", || {
        proxy.holds_replies() && app.database.number(idle) == 1
    })
    .await;
    app.instances[0].signal("STOP");
    proxy.pass();

    let (same, unrelated) = tokio::join!(
        there.pay_under(&key, &payer, &payee, "10.00"),
        there.pay(&payer, &payee, "1.00")
    );
    same.created();
    unrelated.created();
    assert!(!same.is_replay());
    app.instances[0].signal("CONT");
    assert_done_or_try_again(&paying.await.unwrap());
    assert!(retry_until_paid(&app, &key, &payer, &payee).await.is_replay());
    assert_eq!(app.database.number(PAYMENTS), 2);
    assert_books_balance(&app.database);
}

/// A deployment stops instances all the time: what was accepted gets its answer, and the exit status says that all is well.
#[tokio::test]
async fn sigterm_with_requests_in_flight_answers_them_all_and_exits_with_0() {
    let mut app = App::setup()
        .flag("--lock-timeout=10s")
        .flag("--statement-timeout=30s")
        .flag("--answer-timeout=60s")
        // However the requests arrive, all but one for each worker stay in the queue, where they can be counted.
        .flag("--batch-max=1")
        .start()
        .await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let held = app.database.lock_account(&payer);
    let in_flight: Vec<_> = (0..40)
        .map(|_| {
            let (client, payer, payee) = (app.client.clone(), payer.clone(), payee.clone());
            tokio::spawn(async move { client.pay(&payer, &payee, "1.00").await })
        })
        .collect();
    let queued = "payonce_queue_length";
    until_async("all of them to be accepted", async || {
        app.metric(queued, "").await >= 38
    })
    .await;
    app.instances[0].signal("TERM");
    until_async("no new connection to be accepted", async || {
        let fresh = reqwest::Client::new();
        fresh.get(format!("{}/health/live", app.base)).send().await.is_err()
    })
    .await;
    drop(held);
    for reply in join_all(in_flight).await {
        reply.unwrap().created();
    }
    assert_eq!(app.instances[0].wait().code(), Some(0));
    assert_eq!(app.database.number(PAYMENTS), 40);
    assert_books_balance(&app.database);
}

/// A stop with nothing to do is quick, also with idle connections that clients keep open.
#[tokio::test]
async fn sigterm_without_requests_in_flight_ends_at_once() {
    let mut app = App::start().await;
    app.open("USD").await;
    app.instances[0].signal("TERM");
    let started = std::time::Instant::now();
    assert_eq!(app.instances[0].wait().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
