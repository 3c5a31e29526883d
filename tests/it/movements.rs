//! Deposits and withdrawals: money in and out, against the tenant's external account.

use serde_json::json;

use crate::support::client::timeless;
use crate::support::{App, assert_books_balance, new_key};

/// A deposit and a withdrawal in whole, and read back where `Location` says. Without this a client can't
/// trust either.
#[tokio::test]
async fn a_movement_is_made_and_read_back() {
    let app = App::start().await;
    let account = app.open_with("10.00").await;
    for (collection, balance) in [("deposits", "12.50"), ("withdrawals", "10.00")] {
        let path = format!("/accounts/{account}/{collection}");
        let body = json!({"amount": "2.5", "currency": "USD", "description": "petty cash"});
        let made = app.post(&path, &new_key(), &body).await;
        let id = made.created();
        assert_eq!(made.header("Location"), Some(format!("/{collection}/{id}").as_str()));
        let expected =
            json!({"id": id, "account_id": account, "amount": "2.50", "currency": "USD", "description": "petty cash"});
        assert_eq!(timeless(made.json()), expected);
        let read = app.get(made.header("Location").expect("Location")).await;
        assert_eq!((read.status, read.body), (200, made.body));
        assert_eq!(app.balance(&account).await, balance);
    }
    assert_books_balance(&app.database);
}

/// An absent description is `null`, never left out. Without this typed clients fail on some answers only.
#[tokio::test]
async fn an_absent_description_is_null() {
    let app = App::start().await;
    let account = app.open("USD").await;
    let made = app.deposit(&account, "1.00").await;
    let expected =
        json!({"id": made.created(), "account_id": account, "amount": "1.00", "currency": "USD", "description": null});
    assert_eq!(timeless(made.json()), expected);
    let withdrawn = app.withdraw(&account, "1.00").await;
    assert_eq!(withdrawn.json()["description"], json!(null));
    assert_books_balance(&app.database);
}

/// A withdrawal takes at most what is there. Without this an account goes below zero.
#[tokio::test]
async fn no_more_is_withdrawn_than_there_is() {
    let app = App::start().await;
    let account = app.open_with("10.00").await;
    app.withdraw(&account, "10.01").await.problem(402, "insufficient_funds");
    assert_eq!(app.balance(&account).await, "10.00");
    app.withdraw(&account, "10.00").await.created();
    assert_eq!(app.balance(&account).await, "0.00");
    assert_books_balance(&app.database);
}

/// The amount must be in the account's currency. Without this 100 yen become 100 dollars.
#[tokio::test]
async fn a_movement_in_another_currency_is_refused() {
    let app = App::start().await;
    let account = app.open_with("10.00").await;
    for collection in ["deposits", "withdrawals"] {
        let path = format!("/accounts/{account}/{collection}");
        let problem = app
            .post(&path, &new_key(), &json!({"amount": "1.00", "currency": "EUR"}))
            .await
            .problem(422, "currency_mismatch");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("USD") && detail.contains("EUR"), "{detail}");
    }
    assert_eq!(app.balance(&account).await, "10.00");
    assert_books_balance(&app.database);
}

/// Money for an account that is not there goes nowhere.
#[tokio::test]
async fn a_movement_on_an_unknown_account_is_not_found() {
    let app = App::start().await;
    let nobody = uuid::Uuid::now_v7().to_string();
    app.deposit(&nobody, "1.00").await.problem(404, "not_found");
    app.withdraw(&nobody, "1.00").await.problem(404, "not_found");
    assert_eq!(app.database.number("SELECT count(*) FROM transfers"), 0);
}

/// An id names one kind of thing: a deposit is no withdrawal, and a payment neither. Without this a support tool shows
/// money that came in as money that went out.
#[tokio::test]
async fn a_movement_is_found_only_under_its_own_kind() {
    let app = App::start().await;
    let (account, other) = (app.open("USD").await, app.open("USD").await);
    let deposit = app.deposit(&account, "10.00").await.created();
    let withdrawal = app.withdraw(&account, "1.00").await.created();
    let payment = app.pay(&account, &other, "1.00").await.created();
    app.read(&format!("/deposits/{deposit}")).await;
    app.read(&format!("/withdrawals/{withdrawal}")).await;
    for wrong in [
        format!("/withdrawals/{deposit}"),
        format!("/deposits/{withdrawal}"),
        format!("/deposits/{payment}"),
        format!("/withdrawals/{payment}"),
        format!("/payments/{deposit}"),
        format!("/refunds/{payment}"),
    ] {
        app.get(&wrong).await.problem(404, "not_found");
    }
    assert_books_balance(&app.database);
}
