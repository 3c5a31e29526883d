//! Currencies: which open an account, and what becomes of accounts whose currency is withdrawn.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{App, Reply, assert_books_balance, new_key};

async fn open_in(app: &App, currency: Value) -> Reply {
    let body = json!({"currency": currency, "name": "Alice"});
    app.post("/accounts", &new_key(), &body).await
}

/// A4: A currency is an ISO 4217 code in capitals that money can be held in. Without this there are two dollars, `USD` and `usd`.
#[tokio::test]
async fn a_currency_is_an_iso_4217_code() {
    let app = App::start().await;
    let account = app.open_with("10.00").await;
    for currency in [
        "usd", "US", "USDD", "XXX", "", "XAU", "XTS", "U$D", "USD ", "ÜSD", "ZZZ",
    ] {
        open_in(&app, json!(currency)).await.invalid(&["currency"]);
        app.deposit_in(&account, "1", currency).await.invalid(&["currency"]);
        app.pay_in(&account, &Uuid::now_v7().to_string(), &json!("1"), currency)
            .await
            .invalid(&["currency"]);
    }
    for currency in [json!(840), json!(null), json!(["USD"])] {
        open_in(&app, json!(currency)).await.invalid(&["currency"]);
    }
    assert_books_balance(&app.database);
}

/// Only what is in circulation opens an account. Without this somebody is paid in kuna, which no bank takes any more, or in
/// an index that has a code but is no money.
#[tokio::test]
async fn only_a_currency_in_circulation_opens_an_account() {
    let app = App::start().await;
    for (currency, successor) in [
        ("HRK", "EUR"),
        ("BGN", "EUR"),
        ("SLL", "SLE"),
        ("ZWL", "ZWG"),
        ("CUC", "CUP"),
    ] {
        let problem = open_in(&app, json!(currency)).await.invalid(&["currency"]);
        assert_eq!(
            problem["errors"][0]["message"],
            format!("must be a currency in circulation: {currency} has been replaced by {successor}")
        );
    }
    for currency in ["CLF", "UYI", "UYW", "BOV", "USN", "CHE", "CHW", "COU", "MXV", "XAD"] {
        let problem = open_in(&app, json!(currency)).await.invalid(&["currency"]);
        assert_eq!(
            problem["errors"][0]["message"],
            format!("must be a currency in circulation: {currency} is a fund or a unit of account")
        );
    }
    for currency in ["EUR", "SLE", "ZWG", "CUP", "CLP", "UYU", "VED", "VES", "XCG", "XOF"] {
        open_in(&app, json!(currency)).await.created();
    }
}

/// An account whose currency has been withdrawn since is still there: it is read, charged, refunded, emptied and closed like any
/// other. Without this the day on which a list of currencies is updated turns customers' money into a 500.
#[tokio::test]
async fn an_account_in_a_currency_withdrawn_since_can_be_read_and_emptied() {
    let app = App::start().await;
    let (payer, payee) = (app.plant_account("HRK").await, app.plant_account("HRK").await);
    app.deposit_in(&payer, "10.00", "HRK").await.created();

    let account = app.read(&format!("/accounts/{payer}")).await;
    assert_eq!(
        (&account["currency"], &account["balance"]),
        (&json!("HRK"), &json!("10.00"))
    );
    assert_eq!(app.list("/accounts").await.len(), 2);
    assert_eq!(app.list(&format!("/accounts/{payer}/entries")).await.len(), 1);
    let balance = app.read(&format!("/accounts/{payer}/balance")).await;
    assert_eq!(balance["balance"], "10.00");

    let paid = app.pay_in(&payer, &payee, &json!("4.00"), "HRK").await.created();
    app.refund(&paid, Some("1.00")).await.created();
    assert_eq!(app.read(&format!("/payments/{paid}")).await["refunded_amount"], "1.00");
    for (account, all) in [(&payer, "7.00"), (&payee, "3.00")] {
        let body = json!({"amount": all, "currency": "HRK"});
        let withdrawals = format!("/accounts/{account}/withdrawals");
        app.post(&withdrawals, &new_key(), &body).await.created();
        assert_eq!(app.set(account, "close").await.ok()["status"], "closed");
    }
    assert_books_balance(&app.database);
}
