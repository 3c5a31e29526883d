//! The database's clock goes back: a step of NTP, a fail-over to a host that is a little behind. PostgreSQL's clock can't be set here, so
//! what was written before is moved into the future instead.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::support::{App, assert_books_balance, new_key};

/// All that was written so far was written in an hour from now.
fn clock_goes_back(app: &App) {
    let later = "+ interval '1 hour'";
    app.database.run_unguarded(&format!(
        "UPDATE accounts SET created_at = created_at {later}, last_entry_at = last_entry_at {later};
         UPDATE transfers SET created_at = created_at {later}; UPDATE payments SET created_at = created_at {later};
         UPDATE refunds SET created_at = created_at {later}"
    ));
    keys_are_from_later(app, 1);
}

/// All keys were used so many hours later.
fn keys_are_from_later(app: &App, hours: u32) {
    app.database.run_unguarded(&format!(
        "UPDATE idempotency_keys SET created_at = created_at + interval '{hours} hours',
         expires_at = expires_at + interval '{hours} hours', forget_at = forget_at + interval '{hours} hours'"
    ));
}

fn instant(thing: &Value) -> DateTime<Utc> {
    thing["created_at"]
        .as_str()
        .expect("created_at")
        .parse()
        .expect("an instant")
}

/// The account's entries, the oldest first, each with its time; all of them at different ones, in the order of the statement.
async fn times(app: &App, account: &str) -> Vec<DateTime<Utc>> {
    let entries = app.list(&format!("/accounts/{account}/entries?limit=100")).await;
    let times: Vec<_> = entries.iter().rev().map(instant).collect();
    assert!(times.is_sorted_by(|earlier, later| earlier < later), "{times:?}");
    times
}

/// An entry that is older than the one before it makes every balance at a time in between wrong, and the audit says so for ever: the
/// ledger can't be corrected. Whatever moves money goes on, and time stands still until the clock has caught up.
#[tokio::test]
async fn when_the_clock_goes_back_no_entry_is_older_than_the_one_before() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open_with("50.00").await);
    let paid = app.pay(&payer, &payee, "10.00").await.created();
    app.refund(&paid, Some("1.00")).await.created();
    clock_goes_back(&app);
    let last = *times(&app, &payer).await.last().unwrap();

    let again = app.pay(&payer, &payee, "20.00").await;
    let refund = app.refund(&paid, Some("2.00")).await;
    let deposit = app.deposit(&payer, "3.00").await;
    let withdrawal = app.withdraw(&payee, "4.00").await;
    assert_books_balance(&app.database);

    // As little later as can be: an hour of standing still, and not two.
    for thing in [&again, &refund, &deposit, &withdrawal] {
        thing.created();
        let after = instant(&thing.json()) - last;
        assert!(
            (1..100).contains(&after.num_microseconds().unwrap()),
            "{after}: {}",
            thing.shown()
        );
    }
    assert_eq!(times(&app, &payer).await.len(), 6);
    for (account, moves) in [
        (&payer, ["71.00", "73.00", "76.00"]),
        (&payee, ["79.00", "77.00", "73.00"]),
    ] {
        let entries = app.list(&format!("/accounts/{account}/entries?limit=3")).await;
        for (entry, balance) in entries.iter().rev().zip(moves) {
            let at = entry["created_at"].as_str().unwrap();
            let then = app.read(&format!("/accounts/{account}/balance?at={at}")).await;
            assert_eq!(
                (&entry["balance_after"], &then["balance"]),
                (&balance.into(), &balance.into())
            );
        }
    }
    // What was paid by an account with a late past is late as well, in the statement of an account without one, too.
    let fresh = app.open("USD").await;
    app.pay(&payer, &fresh, "5.00").await.created();
    app.pay(&fresh, &payee, "5.00").await.created();
    times(&app, &fresh).await;
    assert_books_balance(&app.database);
}

/// The first entry of an account is not older than the account.
#[tokio::test]
async fn no_account_has_an_entry_from_before_it_was_opened() {
    let app = App::start().await;
    let account = app.open("USD").await;
    clock_goes_back(&app);
    app.deposit(&account, "1.00").await.created();
    let opened = instant(&app.read(&format!("/accounts/{account}")).await);
    assert!(times(&app, &account).await[0] > opened);
    assert_books_balance(&app.database);
}

/// Accounts from before the column was there, and those that an instance of the version before moves during a deploy: the one
/// has no time yet, the other does not write it.
#[tokio::test]
async fn accounts_moved_by_the_version_before_keep_their_order_too() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    app.pay(&payer, &payee, "10.00").await.created();
    clock_goes_back(&app);
    app.database.run_unguarded("UPDATE accounts SET last_entry_at = NULL");
    app.pay(&payer, &payee, "10.00").await.created();
    times(&app, &payer).await;
    assert_books_balance(&app.database);

    let before = app
        .database
        .word(&format!("SELECT last_entry_at FROM accounts WHERE id = '{payee}'"));
    // What the version before writes; the entry itself is left out.
    app.database.run(&format!(
        "UPDATE accounts SET entry_count = entry_count + 1 WHERE id = '{payee}'"
    ));
    app.database.run(&format!(
        "UPDATE accounts SET last_entry_at = NULL WHERE id = '{payer}'"
    ));
    app.database.run(&format!(
        "UPDATE accounts SET entry_count = entry_count + 1 WHERE id = '{payer}'"
    ));
    let noted = format!("SELECT last_entry_at >= '{before}' FROM accounts WHERE id = '{payee}'");
    assert_eq!(app.database.word(&noted), "true");
    let noted = format!(
        "SELECT last_entry_at BETWEEN now() - interval '1 minute' AND now() FROM accounts WHERE id = '{payer}'"
    );
    assert_eq!(app.database.word(&noted), "true");
    // A change of status is no entry.
    app.set(&payee, "freeze").await.ok();
}

/// Keys live by the same clock. One from the future is a key like any other: known, replayed, and nobody's to use again.
#[tokio::test]
async fn when_the_clock_goes_back_keys_are_replayed_all_the_same() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    clock_goes_back(&app);
    for _ in 0..2 {
        let again = app.pay_under(&key, &payer, &payee, "10.00").await;
        assert_eq!((again.is_replay(), &again.body), (true, &first.body));
        app.pay_under(&key, &payer, &payee, "11.00")
            .await
            .problem(422, "idempotency_key_reused");
        assert_eq!(app.cli(&["cleanup"]).0, 0);
    }
    assert_eq!(
        app.read(&format!("/idempotency-keys/{key}")).await["status"],
        "completed"
    );
    assert_eq!(app.balance(&payee).await, "10.00");
    assert_books_balance(&app.database);
}

/// A clock that was ahead has let a response be erased; then it goes back, into the response's window. What is erased is over:
/// the request is not executed again, and both ways to ask about the key say so.
#[tokio::test]
async fn a_response_that_was_erased_too_early_is_expired() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let paid = app.pay_under(&key, &payer, &payee, "10.00").await.created();
    app.age_keys(25);
    assert_eq!(app.cli(&["cleanup"]).0, 0);
    keys_are_from_later(&app, 25);
    let late = app.pay_under(&key, &payer, &payee, "10.00").await;
    let problem = late.problem(410, "idempotency_key_expired");
    assert_eq!(problem["resource"], format!("/payments/{paid}"));
    let record = app.read(&format!("/idempotency-keys/{key}")).await;
    assert_eq!(
        (&record["status"], &record["response"]["body"]),
        (&"expired".into(), &Value::Null)
    );
    assert_eq!(app.balance(&payee).await, "10.00");
    assert_books_balance(&app.database);
}
