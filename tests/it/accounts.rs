//! `/accounts`: open, read, list, freeze, close.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{ids, timeless};
use crate::support::{App, assert_books_balance, new_key};

/// What was sent comes back, with what the service adds; absent optional values are `null`.
#[tokio::test]
async fn an_account_is_opened_and_read_back() {
    let app = App::start().await;
    let reply = app
        .post(
            "/accounts",
            &new_key(),
            &json!({"currency": "USD", "name": "Alice", "metadata": {"b": "2", "a": "1"}}),
        )
        .await;
    let id = reply.created();
    assert_eq!(reply.header("Location"), Some(format!("/accounts/{id}").as_str()));
    let mut account = reply.json();
    assert!(account["created_at"].as_str().is_some_and(|at| at.ends_with('Z')));
    account["created_at"] = Value::Null;
    let expected = json!({"id": id, "name": "Alice", "reference": null, "currency": "USD", "balance": "0.00",
        "status": "active", "metadata": {"a": "1", "b": "2"}, "created_at": null});
    assert_eq!(account, expected);
    assert_eq!(app.get(&format!("/accounts/{id}")).await.json(), reply.json());
    assert_books_balance(&app.database);
}

/// Every optional member is kept as it was sent. Without this an account could not be found again by the caller's own number.
#[tokio::test]
async fn all_members_of_an_account_are_kept_as_sent() {
    let app = App::start().await;
    let sent = json!({"currency": "JPY", "name": "Ålice 🦊", "reference": "customer-17", "metadata": {"tier": "gold"}});
    let reply = app.post("/accounts", &new_key(), &sent).await;
    let id = reply.created();
    let expected = json!({"id": id, "name": "Ålice 🦊", "reference": "customer-17", "currency": "JPY", "balance": "0",
        "status": "active", "metadata": {"tier": "gold"}});
    assert_eq!(timeless(reply.json()), expected);
}

/// The `Location` of a 201 answers 200 with the very same body. Without this a client can't trust either.
#[tokio::test]
async fn the_location_of_a_new_account_answers_with_the_same_body() {
    let app = App::start().await;
    let body = json!({"currency": "USD", "name": "Alice"});
    let made = app.post("/accounts", &new_key(), &body).await;
    made.created();
    let read = app.get(made.header("Location").expect("Location")).await;
    assert_eq!((read.status, read.body), (200, made.body));
}

/// A balance shows exactly the decimals of its currency. Without this `"0"` and `"0.00"` would be told apart by luck.
#[tokio::test]
async fn a_balance_has_exactly_the_decimals_of_its_currency() {
    let app = App::start().await;
    for (currency, zero) in [("USD", "0.00"), ("JPY", "0"), ("KWD", "0.000")] {
        let id = app.open(currency).await;
        assert_eq!(app.balance(&id).await, zero, "{currency}");
    }
    let id = app.plant_account("CLF").await;
    assert_eq!(app.balance(&id).await, "0.0000");
}

/// The tenant's external account is bookkeeping: it is not listed, not read, and nobody can pay from it. Without this a
/// caller could make money out of nothing.
#[tokio::test]
async fn the_external_account_is_out_of_reach() {
    let app = App::start().await;
    let id = app.open_with("10.00").await;
    let external = app.database.word("SELECT id FROM accounts WHERE kind = 'external'");
    assert_eq!(ids(&app.list("/accounts").await), [id.as_str()]);
    app.get(&format!("/accounts/{external}"))
        .await
        .problem(404, "not_found");
    app.get(&format!("/accounts/{external}/entries"))
        .await
        .problem(404, "not_found");
    app.get(&format!("/accounts/{external}/balance"))
        .await
        .problem(404, "not_found");
    app.deposit(&external, "1.00").await.problem(404, "not_found");
    app.withdraw(&external, "1.00").await.problem(404, "not_found");
    app.pay(&external, &id, "1.00").await.problem(404, "not_found");
    app.pay(&id, &external, "1.00").await.problem(404, "not_found");
    for what in ["freeze", "unfreeze", "close"] {
        app.set(&external, what).await.problem(404, "not_found");
    }
    assert_books_balance(&app.database);
}

/// `freeze`, `unfreeze` and `close` answer 200 with the account as it then is, and have no `Location`: they make nothing.
#[tokio::test]
async fn a_change_of_status_answers_with_the_account() {
    let app = App::start().await;
    let id = app.open("USD").await;
    for (what, status) in [("freeze", "frozen"), ("unfreeze", "active"), ("close", "closed")] {
        let reply = app.set(&id, what).await;
        assert_eq!(reply.ok()["status"], status);
        assert_eq!(reply.header("Location"), None);
        assert_eq!(reply.json(), app.read(&format!("/accounts/{id}")).await);
    }
}

/// They have nothing to say: no body and `{}` are the same, anything else is refused. Without this `{"until": …}` would be ignored.
#[tokio::test]
async fn a_change_of_status_takes_no_members() {
    let app = App::start().await;
    let id = app.open("USD").await;
    let path = format!("/accounts/{id}/freeze");
    app.post(&path, &new_key(), &json!({"until": "tomorrow"}))
        .await
        .problem(400, "unknown_parameter");
    let key = new_key();
    let bare = app.request(Method::POST, &path).header("Idempotency-Key", &key);
    assert_eq!(app.send(bare).await.ok()["status"], "frozen");
    assert!(app.post(&path, &key, &json!({})).await.is_replay());
}

/// Frozen: no debits of any kind, credits of any kind. Without this a frozen thief goes on paying, or a frozen
/// customer misses a salary.
#[tokio::test]
async fn nothing_leaves_a_frozen_account_and_anything_may_arrive() {
    let app = App::start().await;
    let (id, other) = (app.open_with("10.00").await, app.open_with("10.00").await);
    let incoming = app.pay(&other, &id, "2.00").await.created();
    let outgoing = app.pay(&id, &other, "3.00").await.created();
    app.set(&id, "freeze").await.ok();
    app.pay(&id, &other, "1.00").await.problem(409, "account_frozen");
    app.withdraw(&id, "1.00").await.problem(409, "account_frozen");
    app.refund(&incoming, None).await.problem(409, "account_frozen");
    app.deposit(&id, "1.00").await.created();
    app.pay(&other, &id, "1.00").await.created();
    app.refund(&outgoing, None).await.created();
    assert_eq!(app.balance(&id).await, "14.00");
    app.set(&id, "unfreeze").await.ok();
    app.pay(&id, &other, "14.00").await.created();
    assert_books_balance(&app.database);
}

/// To ask for the status that an account already has is no error. Without this two operators who freeze at once see a failure.
#[tokio::test]
async fn a_status_may_be_asked_for_twice() {
    let app = App::start().await;
    let id = app.open("USD").await;
    for (what, status) in [("unfreeze", "active"), ("freeze", "frozen"), ("close", "closed")] {
        assert_eq!(app.set(&id, what).await.ok()["status"], status);
        assert_eq!(app.set(&id, what).await.ok()["status"], status);
    }
}

/// C18: An account with a balance can't be closed; a frozen empty one can. Without this the money in it is lost.
#[tokio::test]
async fn only_an_empty_account_can_be_closed() {
    let app = App::start().await;
    let id = app.open_with("0.01").await;
    let problem = app.set(&id, "close").await.problem(409, "account_not_empty");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("0.01 USD")),
        "{problem}"
    );
    assert_eq!(app.read(&format!("/accounts/{id}")).await["status"], "active");
    app.withdraw(&id, "0.01").await.created();
    app.set(&id, "freeze").await.ok();
    assert_eq!(app.set(&id, "close").await.ok()["status"], "closed");
    assert_books_balance(&app.database);
}

/// Closed is for good and for everything. Without this money arrives where nobody looks any more.
#[tokio::test]
async fn nothing_moves_on_a_closed_account() {
    let app = App::start().await;
    let (id, other) = (app.open("USD").await, app.open_with("10.00").await);
    app.set(&id, "close").await.ok();
    app.deposit(&id, "1.00").await.problem(409, "account_closed");
    app.withdraw(&id, "1.00").await.problem(409, "account_closed");
    app.pay(&id, &other, "1.00").await.problem(409, "account_closed");
    app.pay(&other, &id, "1.00").await.problem(409, "account_closed");
    app.set(&id, "freeze").await.problem(409, "account_closed");
    app.set(&id, "unfreeze").await.problem(409, "account_closed");
    let account = app.read(&format!("/accounts/{id}")).await;
    assert_eq!(
        (&account["status"], &account["balance"]),
        (&json!("closed"), &json!("0.00"))
    );
    assert_books_balance(&app.database);
}

/// C18: A refund to a payer who has closed the account is refused, and the payee keeps the money. Without this it would
/// lie in a closed account.
#[tokio::test]
async fn a_refund_to_a_closed_payer_is_refused() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("5.00").await, app.open("USD").await);
    let payment = app.pay(&payer, &payee, "5.00").await.created();
    app.set(&payer, "close").await.ok();
    app.refund(&payment, None).await.problem(409, "account_closed");
    assert_eq!(app.balance(&payee).await, "5.00");
    assert_eq!(
        app.read(&format!("/payments/{payment}")).await["refunded_amount"],
        "0.00"
    );
    assert_books_balance(&app.database);
}

/// C18: A payment races the closing of its payee: one of the two wins, and the other is refused. Without the lock on the
/// account both see it open and empty, and the money ends in a closed account.
#[tokio::test]
async fn a_payment_that_races_a_close_never_leaves_money_in_a_closed_account() {
    let app = App::setup().instances(2).start().await;
    let (payer, second) = (app.open_with("40.00").await, app.on(1));
    for round in 0..40 {
        let payee = app.open("USD").await;
        let (paid, closed) = if round % 2 == 0 {
            tokio::join!(app.pay(&payer, &payee, "1.00"), second.set(&payee, "close"))
        } else {
            let (closed, paid) = tokio::join!(app.set(&payee, "close"), second.pay(&payer, &payee, "1.00"));
            (paid, closed)
        };
        if paid.status == 201 {
            closed.problem(409, "account_not_empty");
        } else {
            paid.problem(409, "account_closed");
            closed.ok();
        }
    }
    let lost = "SELECT count(*) FROM accounts WHERE status = 'closed' AND balance <> 0";
    assert_eq!(app.database.number(lost), 0);
    assert_books_balance(&app.database);
}

/// C18: The last money leaves while the account is being closed: the close succeeds only after it. Without the lock the close
/// would look at a balance that is being changed.
#[tokio::test]
async fn a_close_that_races_the_last_payment_sees_the_balance_before_or_after_it() {
    let app = App::setup().instances(2).start().await;
    let (payee, second) = (app.open("USD").await, app.on(1));
    for _ in 0..20 {
        let payer = app.open_with("1.00").await;
        let (paid, closed) = tokio::join!(app.pay(&payer, &payee, "1.00"), second.set(&payer, "close"));
        paid.created();
        if closed.status != 200 {
            closed.problem(409, "account_not_empty");
        }
    }
    assert_eq!(app.balance(&payee).await, "20.00");
    assert_books_balance(&app.database);
}
