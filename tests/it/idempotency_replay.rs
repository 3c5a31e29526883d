//! A request that is repeated is answered again, and not executed again.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use crate::support::app::{create_api_key, until, until_async};
use crate::support::client::payment;
use crate::support::{App, Client, Proxy, TestDatabase, assert_books_balance, new_key};

fn count_payments(database: &TestDatabase) -> i64 {
    database.number("SELECT count(*) FROM payments")
}

/// Two accounts, the first with money.
async fn pair(client: &Client, amount: &str) -> (String, String) {
    (client.open_with(amount).await, client.open("USD").await)
}

/// I1: without the claim inside the transaction some of the 200 would be charges of their own; with the claim alone some
/// would be conflicts or empty answers.
#[tokio::test]
async fn of_200_equal_requests_at_once_on_two_instances_one_is_executed_and_all_get_its_answer() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = pair(&app, "1000.00").await;
    let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
    let replies = join_all((0..200).map(|number| {
        let (client, key, body) = (app.on(number % 2), &key, &body);
        async move { client.post("/payments", key, body).await }
    }))
    .await;
    for reply in &replies {
        assert_eq!(
            (reply.status, &reply.body),
            (201, &replies[0].body),
            "{}",
            reply.shown()
        );
        assert_eq!(reply.header("Location"), replies[0].header("Location"));
    }
    assert_eq!(replies.iter().filter(|reply| !reply.is_replay()).count(), 1);
    assert_eq!(count_payments(&app.database), 1);
    assert_eq!(app.balance(&payer).await, "990.00");
    assert_books_balance(&app.database);
}

/// I27: a replay that makes up new headers, or repeats old ones that belong to the connection, misleads clients and caches.
#[tokio::test]
async fn a_replay_has_the_first_answers_headers_and_its_own_date_and_request_id() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    for amount in ["10.00", "1000.00"] {
        let key = new_key();
        let first = app.pay_under(&key, &payer, &payee, amount).await;
        let mut replay = app.pay_under(&key, &payer, &payee, amount).await;
        until_async("a second to pass", async || {
            replay = app.pay_under(&key, &payer, &payee, amount).await;
            replay.header("Date") != first.header("Date")
        })
        .await;
        assert!(replay.is_replay());
        assert_eq!((replay.status, &replay.body), (first.status, &first.body));
        for same in [
            "Location",
            "Content-Type",
            "Content-Length",
            "Link",
            "Idempotency-Key",
            "Retry-After",
        ] {
            assert_eq!(replay.header(same), first.header(same), "{same}");
        }
        assert_eq!(first.header("Location").is_some(), first.status == 201);
        for own in ["X-Request-Id", "Date"] {
            assert_eq!(replay.headers.get_all(own).iter().count(), 1, "{own}");
            assert_ne!(replay.header(own), first.header(own), "{own}");
        }
        assert_eq!(replay.header("Set-Cookie"), None);
    }
    assert_books_balance(&app.database);
}

/// I14: a refusal that was forgotten would let a client's late retry pay after all, when nobody expects it any more.
#[tokio::test]
async fn a_refusal_is_stored_even_if_it_would_succeed_by_now() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "1.00").await;
    let key = new_key();
    let refused = app.pay_under(&key, &payer, &payee, "50.00").await;
    refused.problem(402, "insufficient_funds");
    app.deposit(&payer, "100.00").await.created();
    let replay = app.pay_under(&key, &payer, &payee, "50.00").await;
    replay.problem(402, "insufficient_funds");
    assert!(!refused.is_replay() && replay.is_replay());
    assert_eq!(replay.body, refused.body);
    app.pay(&payer, &payee, "50.00").await.created();
    assert_eq!(count_payments(&app.database), 1);
    assert_books_balance(&app.database);
}

/// I23: a load balancer sends the retry to another instance than the first attempt.
#[tokio::test]
async fn a_retry_at_another_instance_is_a_replay() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    let first = app.on(0).pay_under(&key, &payer, &payee, "10.00").await;
    let retry = app.on(1).pay_under(&key, &payer, &payee, "10.00").await;
    assert!(retry.is_replay());
    assert_eq!(retry.body, first.body);
    assert_eq!(count_payments(&app.database), 1);
    assert_books_balance(&app.database);
}

/// I16: who compares bodies instead of keys takes the second of two equal orders for a retry.
#[tokio::test]
async fn two_keys_are_two_payments_even_with_equal_bodies() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let first = app.pay(&payer, &payee, "10.00").await;
    let second = app.pay(&payer, &payee, "10.00").await;
    assert_ne!(first.created(), second.created());
    assert!(!second.is_replay());
    assert_eq!(app.balance(&payer).await, "80.00");
    assert_books_balance(&app.database);
}

/// I25: keys that belong to the API key instead of the tenant pay twice when the API key is rotated between two attempts.
#[tokio::test]
async fn a_retry_with_a_rotated_api_key_is_a_replay() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    let rotated = app.with_api_key(&create_api_key(&app.database, "tenant-a", &["read", "write"]));
    let retry = rotated.pay_under(&key, &payer, &payee, "10.00").await;
    assert!(retry.is_replay());
    assert_eq!(retry.body, first.body);
    assert_eq!(count_payments(&app.database), 1);
    assert_books_balance(&app.database);
}

/// I19: who answers the duplicate of a slow request with a conflict makes clients give up on a payment that succeeds.
#[tokio::test]
async fn a_duplicate_of_a_slow_request_waits_for_it_and_replays_here_and_at_another_instance() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    for duplicate_at in [0, 1] {
        let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
        let held = app.database.lock_account(&payer);
        let first = tokio::spawn({
            let (client, key, body) = (app.on(0), key.clone(), body.clone());
            async move { client.post("/payments", &key, &body).await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let duplicate = tokio::spawn({
            let client = app.on(duplicate_at);
            async move { client.post("/payments", &key, &body).await }
        });
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(!first.is_finished() && !duplicate.is_finished(), "the payer is locked");
        drop(held);
        let (first, duplicate) = (first.await.unwrap(), duplicate.await.unwrap());
        assert_eq!((first.created(), &first.body), (duplicate.created(), &duplicate.body));
        assert_eq!(i32::from(first.is_replay()) + i32::from(duplicate.is_replay()), 1);
    }
    assert_eq!(count_payments(&app.database), 2);
    assert_books_balance(&app.database);
}

/// I7: the loser of the race for the key waits in PostgreSQL for the winner. It must then read what the winner
/// stored: a statement that began before the winner's commit does not see it, and would make a 500 or a second payment.
#[tokio::test]
async fn the_loser_of_the_race_for_a_key_replays_the_winners_answer() {
    let app = App::setup().instances(2).flag("--lock-timeout=10s").start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
    let held = app.database.lock_account(&payer);
    let race = |at: usize| {
        let (client, key, body) = (app.on(at), key.clone(), body.clone());
        tokio::spawn(async move { client.post("/payments", &key, &body).await })
    };
    let winner = race(0);
    until("the winner to have the key", || app.database.waiting() == 1).await;
    let loser = race(1);
    until("the loser to wait for it", || app.database.waiting() == 2).await;
    drop(held);
    let (winner, loser) = (winner.await.unwrap(), loser.await.unwrap());
    winner.created();
    assert!(!winner.is_replay() && loser.is_replay(), "{}", loser.shown());
    assert_eq!((loser.status, &loser.body), (201, &winner.body));
    assert_eq!(count_payments(&app.database), 1);
    assert_books_balance(&app.database);
}

/// I20: duplicates that each hold a connection or a worker while they wait starve everybody else.
#[tokio::test]
async fn duplicates_of_a_slow_request_do_not_delay_others() {
    let app = App::setup()
        .flag("--engine-workers=1")
        .flag("--batch-max=64")
        .flag("--read-pool-size=1")
        .start()
        .await;
    let (payer, payee) = pair(&app, "100.00").await;
    let (other_payer, other_payee) = pair(&app, "100.00").await;
    let held = app.database.lock_account(&payer);
    let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
    let duplicates: Vec<_> = (0..64)
        .map(|_| {
            let (client, key, body) = (app.client.clone(), key.clone(), body.clone());
            tokio::spawn(async move { client.post("/payments", &key, &body).await })
        })
        .collect();
    until("the worker to wait for the lock", || app.database.waiting() == 1).await;

    let asked = Instant::now();
    app.pay(&other_payer, &other_payee, "1.00").await.created();
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(1), "the unrelated payment took {took:?}");

    drop(held);
    let replies = join_all(duplicates).await;
    let replies: Vec<_> = replies.into_iter().map(Result::unwrap).collect();
    assert!(
        replies
            .iter()
            .all(|reply| (reply.status, &reply.body) == (201, &replies[0].body))
    );
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    until("no session to be idle in transaction", || {
        app.database.number(idle) == 0
    })
    .await;
    assert_eq!(count_payments(&app.database), 2);
    assert_books_balance(&app.database);
}

/// I21: who executes first and looks for the key afterwards tells the duplicate that the money is gone.
#[tokio::test]
async fn the_duplicate_of_a_payment_of_the_whole_balance_is_not_told_that_funds_are_missing() {
    let app = App::setup().instances(2).start().await;
    for _ in 0..10 {
        let (payer, payee) = pair(&app, "100.00").await;
        let (key, body) = (new_key(), payment(&payer, &payee, "100.00"));
        let (here, there) = (app.on(0), app.on(1));
        let (first, second) = tokio::join!(
            here.post("/payments", &key, &body),
            there.post("/payments", &key, &body)
        );
        assert_eq!(first.created(), second.created());
        assert_eq!(first.body, second.body);
    }
    assert_books_balance(&app.database);
}

/// I29: a client whose connection dies does not know what became of its payment. Its retry must find out, not collide.
#[tokio::test]
async fn the_retry_of_a_client_that_hung_up_is_a_replay() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
    let held = app.database.lock_account(&payer);
    let mut socket = TcpStream::connect(app.base.trim_start_matches("http://")).unwrap();
    let content = body.to_string();
    write!(
        socket,
        "POST /payments HTTP/1.1\r\nHost: payonce\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{content}",
        app.api_key,
        content.len()
    )
    .unwrap();
    until("the payment to be under way", || app.database.waiting() == 1).await;
    drop(socket);
    drop(held);
    until("it to be made although nobody listens", || {
        count_payments(&app.database) == 1
    })
    .await;
    let retry = app.post("/payments", &key, &body).await;
    retry.created();
    assert!(retry.is_replay());
    assert_eq!(count_payments(&app.database), 1);
    assert_books_balance(&app.database);
}

/// I5: a failure that leaves its key behind makes every retry a replay of a payment that never happened.
#[tokio::test]
async fn what_rolled_back_leaves_the_key_free() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    app.database
        .fault_on_payment("RAISE EXCEPTION 'the disk is full' USING ERRCODE = 'disk_full';");
    for _ in 0..2 {
        let failed = app.pay_under(&key, &payer, &payee, "10.00").await;
        let problem = failed.problem(503, "unavailable");
        assert_eq!(problem["retryable"], json!(true));
        assert!(failed.header("Retry-After").is_some());
    }
    assert_eq!(app.balance(&payer).await, "100.00");
    app.get(&format!("/idempotency-keys/{key}"))
        .await
        .problem(404, "not_found");
    app.database.drop_fault();
    let retry = app.pay_under(&key, &payer, &payee, "10.00").await;
    retry.created();
    assert!(!retry.is_replay());
    assert_books_balance(&app.database);
}

/// I6: a stored response that can change is no memory: the next retry gets another answer than the first.
#[tokio::test]
async fn a_completed_record_never_changes_not_even_by_raw_sql() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    for sql in [
        "UPDATE idempotency_keys SET response_body = 'other'",
        "UPDATE idempotency_keys SET response_code = 402",
        "UPDATE idempotency_keys SET request_hash = sha256('other')",
        "UPDATE idempotency_keys SET key = key || 'x'",
        "UPDATE idempotency_keys SET resource_id = gen_random_uuid()",
        "UPDATE idempotency_keys SET response_body = NULL, erased_at = now()",
        "UPDATE idempotency_keys SET expires_at = expires_at - interval '25 hours', created_at = created_at - interval '25 hours'",
        "UPDATE idempotency_keys SET response_code = NULL, response_body = NULL, resource_kind = NULL, resource_id = NULL",
        "DELETE FROM idempotency_keys",
        "TRUNCATE idempotency_keys",
    ] {
        let refused = app.database.try_run(sql).expect_err(sql).to_string();
        assert!(refused.contains("a stored response never changes"), "{sql}: {refused}");
    }
    let upsert = format!(
        "INSERT INTO idempotency_keys SELECT * FROM idempotency_keys WHERE key = '{key}'
         ON CONFLICT (tenant_id, key) DO UPDATE SET response_body = 'other'"
    );
    app.database.try_run(&upsert).expect_err("an upsert");
    let retry = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert_eq!((retry.status, retry.body), (201, first.body));
    assert_books_balance(&app.database);
}

/// I8: the server did it and the answer got lost, first between PostgreSQL and the service, then between Redis and the service.
#[tokio::test]
async fn lost_replies_of_postgresql_and_redis_make_no_second_payment() {
    let database = TestDatabase::new();
    let to_postgres = Proxy::start(crate::support::app::address_in(&database.url));
    let to_redis = Proxy::start(crate::support::app::address_in(&crate::support::app::redis_url()));
    let app = App::setup()
        .flag("--answer-timeout=1s")
        .redis(&format!("redis://{}", to_redis.address()))
        .start_on(database, Some(&to_postgres.address().to_string()))
        .await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();

    to_postgres.hold_after_seeing(b"COMMIT");
    let lost = app.pay_under(&key, &payer, &payee, "10.00").await;
    let problem = lost.problem(503, "unavailable");
    assert!(
        problem["detail"].as_str().unwrap().contains("same Idempotency-Key"),
        "{problem}"
    );
    assert!(to_postgres.holds_replies());
    to_postgres.drop_replies();
    until("the payment to be committed", || count_payments(&app.database) == 1).await;
    to_postgres.cut();
    to_postgres.pass();
    let mut retry = app.pay_under(&key, &payer, &payee, "10.00").await;
    until_async("an answer", async || {
        retry = app.pay_under(&key, &payer, &payee, "10.00").await;
        retry.status == 201
    })
    .await;
    assert!(retry.is_replay());

    to_redis.drop_replies();
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    let retry = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert_eq!((first.created(), first.is_replay()), (retry.created(), false));
    assert!(retry.is_replay());
    assert_eq!(count_payments(&app.database), 2);
    assert_books_balance(&app.database);
}

/// Redis is a hint: a service that needs it to recognise a repeat pays twice when Redis was flushed.
#[tokio::test]
async fn replays_need_no_redis() {
    let app = App::setup().without_redis().start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    let retry = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert!(!first.is_replay() && retry.is_replay());
    assert_eq!(first.body, retry.body);
    assert_books_balance(&app.database);
}

/// Redis off the write path is what it is for: a repeat in the hot window must not take a worker.
#[tokio::test]
async fn a_hot_repeat_is_answered_while_all_workers_are_busy() {
    let app = App::setup()
        .flag("--engine-workers=1")
        .flag("--redis-timeout=100ms")
        .flag("--lock-timeout=10s")
        .start()
        .await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    let held = app.database.lock_account(&payer);
    let blocked = tokio::spawn({
        let (client, payer, payee) = (app.client.clone(), payer.clone(), payee.clone());
        async move { client.pay(&payer, &payee, "1.00").await }
    });
    until("the only worker to wait", || app.database.waiting() == 1).await;
    let repeat = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert!(repeat.is_replay() && !blocked.is_finished());
    assert_eq!(repeat.body, first.body);
    drop(held);
    blocked.await.unwrap().created();
    assert_books_balance(&app.database);
}

/// `IDEMPOTENCY_WAIT`: a duplicate that waits for ever hangs its client; one that waits too long is told so and may ask again.
#[tokio::test]
async fn a_duplicate_stops_waiting_after_idempotency_wait() {
    let app = App::setup()
        .flag("--lock-timeout=10s")
        .flag("--idempotency-wait=300ms")
        .start()
        .await;
    let (payer, payee) = pair(&app, "100.00").await;
    let (key, body) = (new_key(), payment(&payer, &payee, "10.00"));
    let held = app.database.lock_account(&payer);
    let first = tokio::spawn({
        let (client, key, body) = (app.client.clone(), key.clone(), body.clone());
        async move { client.post("/payments", &key, &body).await }
    });
    until("the first to be under way", || app.database.waiting() == 1).await;
    let duplicate = app.post("/payments", &key, &body).await;
    let problem = duplicate.problem(409, "idempotency_key_in_use");
    assert_eq!(problem["retryable"], json!(true));
    assert!(duplicate.header("Retry-After").is_some());
    drop(held);
    first.await.unwrap().created();
    assert!(app.post("/payments", &key, &body).await.is_replay());
    assert_eq!(count_payments(&app.database), 1);
    assert_books_balance(&app.database);
}

/// The same across instances: whoever has the key keeps it by an open transaction, and the other gives up in time.
#[tokio::test]
async fn a_key_that_another_instance_keeps_is_in_use() {
    let app = App::setup().flag("--idempotency-wait=1s").start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    let held = app.database.hold(&format!(
        "INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, created_at, expires_at, forget_at)
         SELECT tenant_id, '{key}', sha256('x'), '/payments', now(), now() + interval '1 day', now() + interval '1 day' FROM tenants"
    ));
    let refused = app.pay_under(&key, &payer, &payee, "10.00").await;
    refused.problem(409, "idempotency_key_in_use");
    assert!(refused.header("Retry-After").is_some());
    drop(held);
    let retry = app.pay_under(&key, &payer, &payee, "10.00").await;
    retry.created();
    assert!(!retry.is_replay());
    assert_books_balance(&app.database);
}

/// And if that transaction commits, the one who waits sees what it has stored: here the answer to another request.
#[tokio::test]
async fn a_key_that_is_committed_while_a_request_waits_for_it_is_judged_by_what_was_stored() {
    let app = App::start().await;
    let (payer, payee) = pair(&app, "100.00").await;
    let key = new_key();
    let held = app.database.hold(&format!(
        "INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, response_code, response_body, created_at, expires_at, forget_at)
         SELECT tenant_id, '{key}', sha256('x'), '/payments', 402, '{{}}', now(), now() + interval '1 day', now() + interval '1 day' FROM tenants"
    ));
    let waiting = tokio::spawn({
        let (client, key, payer, payee) = (app.client.clone(), key.clone(), payer.clone(), payee.clone());
        async move { client.pay_under(&key, &payer, &payee, "10.00").await }
    });
    until("the request to wait for the key", || app.database.waiting() == 1).await;
    held.commit();
    waiting.await.unwrap().problem(422, "idempotency_key_reused");
    assert_eq!(count_payments(&app.database), 0);
    assert_books_balance(&app.database);
}
