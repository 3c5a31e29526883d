//! What becomes of a key when its window has passed. It never depends on whether the clean-up has run.

use serde_json::{Value, json};

use crate::support::{App, assert_books_balance, new_key};

/// Hours after which a response is not replayed any more, and a little.
const PAST_WINDOW: u32 = 25;
/// The same for the tombstone: 90 days.
const PAST_TOMBSTONE: u32 = 90 * 24;

/// I28: a batch that retries after two days is the classic second payment. It must not be executed, and must learn what
/// came of the first attempt; before the clean-up as well as after it.
#[tokio::test]
async fn a_key_past_its_window_answers_410_with_the_resource_and_executes_nothing() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let (key, refused) = (new_key(), new_key());
    let paid = app.pay_under(&key, &payer, &payee, "10.00").await.created();
    app.pay_under(&refused, &payer, &payee, "1000.00")
        .await
        .problem(402, "insufficient_funds");
    app.age(PAST_WINDOW);
    for cleaned in [false, true] {
        if cleaned {
            assert_eq!(app.cli(&["cleanup"]).0, 0);
        }
        for at in [0, 1] {
            // The same request, and another one: past the window nobody can tell a retry from a new request.
            for amount in ["10.00", "11.00"] {
                let late = app.on(at).pay_under(&key, &payer, &payee, amount).await;
                let problem = late.problem(410, "idempotency_key_expired");
                assert_eq!(problem["resource"], json!(format!("/payments/{paid}")));
                assert_eq!(problem["retryable"], json!(false));
                assert!(!late.is_replay());
            }
            let late = app.on(at).pay_under(&refused, &payer, &payee, "1000.00").await;
            let problem = late.problem(410, "idempotency_key_expired");
            assert_eq!(problem.get("resource"), Some(&Value::Null), "nothing came of it");
        }
    }
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 1);
    assert_eq!(app.balance(&payer).await, "90.00");
    assert_books_balance(&app.database);
}

/// I28: the other end of it. A tombstone that stands for ever fills the table; when it ends, the key is as good as new,
/// and two requests that want it at once still make one payment.
#[tokio::test]
async fn a_key_past_its_tombstone_is_free_again_before_and_after_the_clean_up() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    for cleaned in [false, true] {
        let key = new_key();
        let first = app.pay_under(&key, &payer, &payee, "10.00").await.created();
        app.age(PAST_WINDOW + PAST_TOMBSTONE);
        if cleaned {
            assert_eq!(app.cli(&["cleanup"]).0, 0);
            let key_rows = format!("SELECT count(*) FROM idempotency_keys WHERE key = '{key}'");
            assert_eq!(app.database.number(&key_rows), 0);
        }
        let (here, there) = (app.on(0), app.on(1));
        let (one, two) = tokio::join!(
            here.pay_under(&key, &payer, &payee, "20.00"),
            there.pay_under(&key, &payer, &payee, "20.00")
        );
        assert_ne!(one.created(), first);
        assert_eq!((one.created(), &one.body), (two.created(), &two.body));
        assert_eq!(i32::from(one.is_replay()) + i32::from(two.is_replay()), 1);
        assert!(app.pay_under(&key, &payer, &payee, "20.00").await.is_replay());
        app.pay_under(&key, &payer, &payee, "10.00")
            .await
            .problem(422, "idempotency_key_reused");
    }
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 4);
    assert_books_balance(&app.database);
}

/// A list by key that shows a forgotten key's payment before the clean-up and not after it depends on the clean-up.
#[tokio::test]
async fn a_forgotten_key_finds_no_payment_before_and_after_the_clean_up() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let paid = app.pay_under(&key, &payer, &payee, "10.00").await.created();
    let list = format!("/payments?idempotency_key={key}");
    assert_eq!(app.get(&list).await.json()["data"][0]["id"], json!(paid));
    app.age(PAST_WINDOW);
    assert_eq!(app.get(&list).await.json()["data"][0]["id"], json!(paid));
    app.age(PAST_TOMBSTONE);
    for cleaned in [false, true] {
        if cleaned {
            assert_eq!(app.cli(&["cleanup"]).0, 0);
        }
        assert_eq!(app.get(&list).await.json()["data"], json!([]));
        app.get(&format!("/idempotency-keys/{key}"))
            .await
            .problem(404, "not_found");
    }
    assert_books_balance(&app.database);
}

/// `IDEMPOTENCY_TOMBSTONE_TTL=0`: who wants no tombstones gets none, and a window that still holds.
#[tokio::test]
async fn without_tombstones_a_key_is_free_as_soon_as_its_window_has_passed() {
    let app = App::setup().flag("--idempotency-tombstone-ttl=0").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await.created();
    assert!(app.pay_under(&key, &payer, &payee, "10.00").await.is_replay());
    app.age(PAST_WINDOW);
    let again = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert_ne!(again.created(), first);
    assert!(!again.is_replay());
    assert_books_balance(&app.database);
    app.age(PAST_WINDOW);
    assert_eq!(app.cli(&["cleanup"]).0, 0);
    assert_eq!(app.database.number("SELECT count(*) FROM idempotency_keys"), 0);
    assert_books_balance(&app.database);
}

/// `IDEMPOTENCY_TTL` decides, at the time of the first request: a longer window keeps what the default has dropped.
#[tokio::test]
async fn the_window_is_what_idempotency_ttl_says() {
    let app = App::setup().flag("--idempotency-ttl=7d").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    app.age(6 * 24);
    assert_eq!(app.cli(&["cleanup"]).0, 0);
    let replay = app.pay_under(&key, &payer, &payee, "10.00").await;
    assert_eq!((replay.is_replay(), &replay.body), (true, &first.body));
    app.age(PAST_WINDOW);
    app.pay_under(&key, &payer, &payee, "10.00")
        .await
        .problem(410, "idempotency_key_expired");
    assert_books_balance(&app.database);
}

/// The clocks are PostgreSQL's. One that stands wrong on an instance must not shorten or lengthen a window.
#[tokio::test]
async fn the_window_is_measured_by_the_databases_clock() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    app.pay(&payer, &payee, "10.00").await.created();
    let exact = "SELECT count(*) FROM idempotency_keys WHERE expires_at = created_at + interval '24 hours'
        AND forget_at = expires_at + interval '90 days' AND created_at BETWEEN now() - interval '1 minute' AND now()";
    let all = app.database.number("SELECT count(*) FROM idempotency_keys");
    assert_eq!((app.database.number(exact), all), (all, 4));
    assert_books_balance(&app.database);
}
