//! Somebody else has a lock: an operator, a migration, a tool. Whoever waits for it in vain is told the truth about it.

use crate::support::app::until_async;
use crate::support::{App, assert_books_balance, new_key};

/// Locks that a first payment waits for, none of which is its key's.
const NOT_THE_KEY: [&str; 5] = [
    "LOCK TABLE idempotency_keys",
    "LOCK TABLE idempotency_keys IN SHARE MODE",
    "LOCK TABLE accounts",
    "LOCK TABLE payments",
    "SELECT FROM accounts FOR UPDATE",
];

/// "In use" says that an equal request is running: its caller would wait for an answer that nobody is working on, and look for the
/// second sender of the key. A lock that is none of the key's is 503.
#[tokio::test]
async fn a_first_request_that_waits_for_a_lock_in_vain_is_503_and_not_in_use() {
    let app = App::setup().flag("--idempotency-wait=300ms").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    for lock in NOT_THE_KEY {
        let held = app.database.hold(lock);
        let key = new_key();
        let refused = app.pay_under(&key, &payer, &payee, "1.00").await;
        assert_eq!(refused.json()["code"], "unavailable", "{lock}: {}", refused.shown());
        refused.problem(503, "unavailable");
        assert!(refused.header("Retry-After").is_some());
        drop(held);
        let paid = app.pay_under(&key, &payer, &payee, "1.00").await;
        paid.created();
        assert!(!paid.is_replay());
    }
    assert_books_balance(&app.database);
}

/// And if it is the key's: 409, as long as its holder has not ended, and not a moment longer.
#[tokio::test]
async fn a_request_whose_key_another_transaction_has_is_in_use() {
    let app = App::setup().flag("--idempotency-wait=300ms").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let holder = app.database.hold(&format!(
        "INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, created_at, expires_at, forget_at)
         SELECT tenant_id, '{key}', sha256('x'), '/payments', now(), now(), now() FROM tenants"
    ));
    for _ in 0..2 {
        let refused = app.pay_under(&key, &payer, &payee, "1.00").await;
        refused.problem(409, "idempotency_key_in_use");
        assert!(refused.header("Retry-After").is_some());
    }
    // The same key of nobody else is in use, nor is any other key.
    app.pay(&payer, &payee, "1.00").await.created();
    drop(holder);
    until_async("the payment", async || {
        app.pay_under(&key, &payer, &payee, "1.00").await.status == 201
    })
    .await;
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 2);
    assert_books_balance(&app.database);
}
