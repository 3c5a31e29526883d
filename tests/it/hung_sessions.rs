//! PostgreSQL answers nobody on a session, and the line stands: its process is stopped, its disk hangs, its commit waits for a
//! standby that is gone, or a proxy keeps the replies. No error ever comes of that, so the service has to give up by itself.

use futures_util::future::join_all;

use crate::support::app::{address_in, until, until_async};
use crate::support::client::payment;
use crate::support::{App, Client, Instance, Proxy, Reply, TestDatabase, assert_books_balance, new_key};

const PAYMENTS: &str = "SELECT count(*) FROM payments";

/// One worker, behind a proxy that can stop its session, and two accounts.
async fn behind_a_proxy(flags: &[&str]) -> (App, Proxy, String, String) {
    let database = TestDatabase::new();
    let proxy = Proxy::start(address_in(&database.url));
    let setup = App::setup().flag("--engine-workers=1");
    let setup = flags.iter().fold(setup, |setup, flag| setup.flag(flag));
    let app = setup.start_on(database, Some(&proxy.address().to_string())).await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    (app, proxy, payer, payee)
}

/// 503, the same key, and not a word about nothing having happened.
#[track_caller]
fn assert_outcome_unknown(reply: &Reply) {
    let detail = reply.problem(503, "unavailable")["detail"].to_string();
    assert!(detail.contains("retry with the same Idempotency-Key"), "{detail}");
    for lie in ["nothing was executed", "not executed", "rolled back"] {
        assert!(!detail.contains(lie), "{detail}");
    }
    assert!(reply.header("Retry-After").is_some());
}

async fn is_ready(client: &Client) -> bool {
    let probe = client.http.get(format!("{}/health/ready", client.base));
    client.send(probe).await.status == 200
}

/// A payment that hangs, in the background.
fn pay(app: &App, key: &str, payer: &str, payee: &str) -> tokio::task::JoinHandle<reqwest::Result<Reply>> {
    tokio::spawn(Client::try_send(app.post_request(
        "/payments",
        key,
        &payment(payer, payee, "10.00"),
    )))
}

/// Without it each session that hangs takes a worker with it, for good: soon every POST is 503, until somebody restarts the service.
#[tokio::test]
async fn a_session_that_hangs_is_given_up_and_its_worker_goes_on_with_another() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--statement-timeout=300ms"]).await;
    app.pay(&payer, &payee, "1.00").await.created();
    let commit = proxy.statements();
    for (paid, number, executed) in [(1, 2, false), (3, commit, false), (5, commit, true)] {
        let key = new_key();
        if executed {
            proxy.stop_after(number);
        } else {
            proxy.stop_before(number);
        }
        assert_outcome_unknown(&app.pay_under(&key, &payer, &payee, "10.00").await);
        assert!(proxy.has_stopped_it());
        let other_payer = app.open_with("1.00").await;
        app.pay(&other_payer, &payee, "1.00").await.created();

        // Executed or not: whoever asks under the same key is told, as soon as PostgreSQL has ended the session.
        let mut retried = None;
        until_async("the payment", async || {
            let retry = app.pay_under(&key, &payer, &payee, "10.00").await;
            let done = retry.status == 201;
            retried = Some(retry);
            done
        })
        .await;
        assert_eq!(retried.unwrap().is_replay(), executed);
        assert_eq!(app.database.number(PAYMENTS), paid + 2);
        // The thread that was given up comes back: whatever it still does, it pays nothing and answers nobody.
        proxy.pass();
        until("the session to end", || engine_sessions(&app) <= 1).await;
        assert_eq!(app.database.number(PAYMENTS), paid + 2);
    }
    assert_eq!(app.metric("payonce_sessions_given_up_total", "").await, 3);
    assert_books_balance(&app.database);
}

/// Sessions whose last statement was one of the engine's.
fn engine_sessions(app: &App) -> i64 {
    app.database.number(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
         AND query ~ '^(BEGIN|COMMIT|ROLLBACK|INSERT|UPDATE|SET lock_timeout)'",
    )
}

/// Commits that wait for a synchronous standby hold their locks, and no limit of PostgreSQL's ends them. Each new session would
/// wait as well: without a bound they take all of PostgreSQL's connections. And they may be done at any time later.
#[tokio::test]
async fn commits_that_never_end_are_503_take_a_bounded_number_of_sessions_and_count_once_when_they_end() {
    let app = App::setup()
        .instances(2)
        .flag("--statement-timeout=200ms")
        .flag("--answer-timeout=2s")
        .flag("--idempotency-wait=500ms")
        .start()
        .await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let others: Vec<_> = join_all((0..20).map(|_| app.open_with("1.00"))).await;
    let held = app.database.hold_commits();
    let keys: Vec<_> = others.iter().map(|other| (new_key(), other)).collect();
    let pay_all = async || {
        join_all(
            keys.iter()
                .map(|(key, other)| app.pay_under(key, other, &payee, "1.00")),
        )
        .await
    };
    let first = new_key();
    assert_outcome_unknown(&app.pay_under(&first, &payer, &payee, "10.00").await);
    // It is under way there, and nobody may say that it isn't.
    let elsewhere = app.on(1).pay_under(&first, &payer, &payee, "10.00").await;
    elsewhere.problem(409, "idempotency_key_in_use");
    let until_stalled = async {
        until_async("the instance to say that it does not get on", async || {
            !is_ready(&app).await
        })
        .await;
    };
    let keep_paying = async {
        while is_ready(&app).await {
            for reply in pay_all().await {
                assert!([503, 409].contains(&reply.status), "{}", reply.shown());
            }
        }
    };
    tokio::join!(until_stalled, keep_paying);
    assert!(engine_sessions(&app) <= 4 * 2 + 2, "{} sessions", engine_sessions(&app));
    assert_eq!(app.database.number(PAYMENTS), 0);

    drop(held);
    until_async("all payments to be made", async || {
        pay_all().await.iter().all(|reply| reply.status == 201)
    })
    .await;
    until_async("the instance to get on", async || is_ready(&app).await).await;
    let found = app.pay_under(&first, &payer, &payee, "10.00").await;
    found.created();
    assert!(found.is_replay());
    assert_eq!(app.database.number(PAYMENTS), 21);
    until("the sessions that were given up to end", || engine_sessions(&app) <= 4).await;
    assert_books_balance(&app.database);
}

/// Reads answer, and the one session that writes does not: an orchestrator that is told "ready" goes on sending payments there.
#[tokio::test]
async fn an_instance_whose_commands_do_not_get_on_is_not_ready() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--statement-timeout=60s", "--answer-timeout=300ms"]).await;
    let key = new_key();
    assert!(is_ready(&app).await);
    proxy.stop_before(2);
    assert_outcome_unknown(&app.pay_under(&key, &payer, &payee, "10.00").await);
    until_async("the instance to say so", async || !is_ready(&app).await).await;
    app.read("/accounts").await;
    proxy.pass();
    until_async("the instance to get on", async || is_ready(&app).await).await;
    until_async("the payment", async || {
        app.pay_under(&key, &payer, &payee, "10.00").await.status == 201
    })
    .await;
    assert_eq!(app.database.number(PAYMENTS), 1);
    assert_books_balance(&app.database);
}

/// Whoever asks again while the first request hangs must not hang with it, nor keep the key from being asked later.
#[tokio::test]
async fn who_joins_a_request_that_hangs_waits_no_longer_than_for_any_other() {
    let (app, proxy, payer, payee) = behind_a_proxy(&["--statement-timeout=300ms", "--idempotency-wait=500ms"]).await;
    let key = new_key();
    proxy.stop_before(3);
    let first = pay(&app, &key, &payer, &payee);
    until("it to hang", || proxy.has_stopped_it()).await;
    for reply in join_all((0..5).map(|_| app.pay_under(&key, &payer, &payee, "10.00"))).await {
        assert!([503, 409].contains(&reply.status), "{}", reply.shown());
    }
    assert_outcome_unknown(&first.await.unwrap().unwrap());
    proxy.pass();
    until_async("the payment", async || {
        app.pay_under(&key, &payer, &payee, "10.00").await.status == 201
    })
    .await;
    assert_eq!(app.database.number(PAYMENTS), 1);
    assert_books_balance(&app.database);
}

/// What hangs must not keep the process: an orchestrator would kill it, and with it what is still under way. The exit status says
/// that not everything was done.
#[tokio::test]
async fn sigterm_ends_an_instance_whose_sessions_all_hang() {
    let limits = [
        "--statement-timeout=60s",
        "--answer-timeout=500ms",
        "--shutdown-timeout=1s",
    ];
    let (mut app, proxy, payer, payee) = behind_a_proxy(&limits).await;
    let key = new_key();
    proxy.hold_after_seeing(b"COMMIT");
    let hanging = pay(&app, &key, &payer, &payee);
    until("the commit", || app.database.number(PAYMENTS) == 1).await;
    // Reads hang, too, in threads of their own, long after their callers were told so.
    for read in join_all((0..2).map(|_| app.get("/accounts"))).await {
        read.problem(503, "unavailable");
    }
    app.instances[0].signal("TERM");
    assert_eq!(app.instances[0].wait().code(), Some(1));
    drop(hanging.await);
    proxy.cut();
    proxy.pass();
    let next = app.add_instance().await;
    assert!(next.pay_under(&key, &payer, &payee, "10.00").await.is_replay());
    assert_books_balance(&app.database);
}

/// Who has no patience says it twice.
#[tokio::test]
async fn a_second_signal_ends_an_instance_at_once() {
    let patient = [
        "--statement-timeout=60s",
        "--answer-timeout=120s",
        "--shutdown-timeout=10m",
    ];
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("TERM", "INT")] {
        let (mut app, proxy, payer, payee) = behind_a_proxy(&patient).await;
        proxy.stop_before(2);
        let hanging = pay(&app, &new_key(), &payer, &payee);
        until("it to hang", || proxy.has_stopped_it()).await;
        let instance: &mut Instance = &mut app.instances[0];
        instance.signal(first);
        let fresh = || {
            reqwest::Client::new()
                .get(format!("{}/health/live", app.client.base))
                .send()
        };
        until_async("no new connection to be accepted", async || fresh().await.is_err()).await;
        instance.signal(second);
        assert!(!instance.wait().success());
        assert!(hanging.await.unwrap().is_err(), "answered");
    }
}
