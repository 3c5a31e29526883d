//! `/accounts/{id}/entries`: the statement.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::client::{ids, timeless};
use crate::support::{App, assert_books_balance};

/// Each kind of entry in whole: signed, with the balance after it, newest first, and pointing at what it was for.
/// Without this a customer can't follow how a balance came about.
#[tokio::test]
async fn a_statement_shows_every_movement_with_the_balance_after_it() {
    let app = App::start().await;
    let (account, other) = (app.open("USD").await, app.open("USD").await);
    let deposit = app.deposit(&account, "100.00").await.created();
    let payment = app.pay(&account, &other, "30.00").await.created();
    let refund = app.refund(&payment, Some("10.00")).await.created();
    let withdrawal = app.withdraw(&account, "80.00").await.created();

    let entry =
        |id: &str, account: &str, kind: &str, amount: &str, balance_after: &str, payment: Value, refund: Value| {
            json!({"id": id, "account_id": account, "kind": kind, "amount": amount, "currency": "USD",
            "balance_after": balance_after, "payment_id": payment, "refund_id": refund})
        };
    let statement: Vec<_> = app.list(&format!("/accounts/{account}/entries")).await;
    let expected = [
        entry(
            &withdrawal,
            &account,
            "withdrawal",
            "-80.00",
            "0.00",
            json!(null),
            json!(null),
        ),
        entry(
            &refund,
            &account,
            "refund",
            "10.00",
            "80.00",
            json!(payment),
            json!(refund),
        ),
        entry(
            &payment,
            &account,
            "payment",
            "-30.00",
            "70.00",
            json!(payment),
            json!(null),
        ),
        entry(
            &deposit,
            &account,
            "deposit",
            "100.00",
            "100.00",
            json!(null),
            json!(null),
        ),
    ];
    assert_eq!(statement.into_iter().map(timeless).collect::<Vec<_>>(), expected);

    let mirror: Vec<_> = app.list(&format!("/accounts/{other}/entries")).await;
    let expected = [
        entry(
            &refund,
            &other,
            "refund",
            "-10.00",
            "20.00",
            json!(payment),
            json!(refund),
        ),
        entry(
            &payment,
            &other,
            "payment",
            "30.00",
            "30.00",
            json!(payment),
            json!(null),
        ),
    ];
    assert_eq!(mirror.into_iter().map(timeless).collect::<Vec<_>>(), expected);
    assert_books_balance(&app.database);
}

/// A refusal leaves no trace in the statement. Without this an overdraft that was refused looks like one that was not.
#[tokio::test]
async fn a_refusal_is_no_entry() {
    let app = App::start().await;
    let (account, other) = (app.open("USD").await, app.open("USD").await);
    app.withdraw(&account, "1.00").await.problem(402, "insufficient_funds");
    app.pay(&account, &other, "1.00")
        .await
        .problem(402, "insufficient_funds");
    assert_eq!(
        app.list(&format!("/accounts/{account}/entries")).await,
        Vec::<Value>::new()
    );
}

/// Pages of a statement join without a gap while money goes on moving. Without this an accountant adds up to another sum.
#[tokio::test]
async fn a_statement_is_read_in_pages_while_money_moves() {
    let app = App::start().await;
    let account = app.open("USD").await;
    let mut made = Vec::new();
    for _ in 0..9 {
        made.push(app.deposit(&account, "1.00").await.created());
    }
    made.reverse();
    let path = format!("/accounts/{account}/entries?limit=2");
    let mut page = app.read(&path).await;
    let mut seen = ids(page["data"].as_array().expect("data"));
    while let Some(cursor) = page["next_cursor"].as_str() {
        app.deposit(&account, "1.00").await.created();
        page = app.read(&format!("{path}&cursor={cursor}")).await;
        seen.extend(ids(page["data"].as_array().expect("data")));
    }
    assert_eq!(seen, made);
    assert_books_balance(&app.database);
}

/// The statement of an account that is not there is 404, not an empty list. Without this a typo looks like a new customer.
#[tokio::test]
async fn the_statement_of_an_unknown_account_is_not_found() {
    let app = App::start().await;
    app.get(&format!("/accounts/{}/entries", Uuid::now_v7()))
        .await
        .problem(404, "not_found");
}
