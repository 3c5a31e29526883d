//! `/payments/{id}/refunds`, `/refunds/{id}`: money back, never more than was paid.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::client::{ids, payment, timeless};
use crate::support::{App, assert_books_balance, new_key};

/// An app with a payment of so much; its id, payer, payee. The payer had exactly as much.
async fn paid(amount: &str) -> (App, String, String, String) {
    let app = App::start().await;
    let (payer, payee) = (app.open_with(amount).await, app.open("USD").await);
    let payment = app.pay(&payer, &payee, amount).await.created();
    (app, payment, payer, payee)
}

/// A refund in whole, read back where `Location` says, and listed with its payment. Without this a client can't book it.
#[tokio::test]
async fn a_refund_moves_the_money_back_and_is_read_back() {
    let (app, payment, payer, payee) = paid("10.00").await;
    let body = json!({"amount": "4", "reason": "one was cold", "expected_refunded_amount": "0"});
    let made = app
        .post(&format!("/payments/{payment}/refunds"), &new_key(), &body)
        .await;
    let id = made.created();
    let expected =
        json!({"id": id, "payment_id": payment, "amount": "4.00", "currency": "USD", "reason": "one was cold"});
    assert_eq!(timeless(made.json()), expected);
    assert_eq!(made.header("Location"), Some(format!("/refunds/{id}").as_str()));
    let read = app.get(made.header("Location").expect("Location")).await;
    assert_eq!((read.status, &read.body), (200, &made.body));
    assert_eq!(app.list(&format!("/payments/{payment}/refunds")).await, [made.json()]);
    assert_eq!(
        (app.balance(&payer).await, app.balance(&payee).await),
        ("4.00".to_owned(), "6.00".to_owned())
    );
    assert_books_balance(&app.database);
}

/// Without an amount all that remains is refunded, and an absent reason is `null`. Without this the caller computes the rest, and races.
#[tokio::test]
async fn a_refund_without_an_amount_is_of_all_that_remains() {
    let (app, payment, payer, _) = paid("10.00").await;
    app.refund(&payment, Some("2.50")).await.created();
    let rest = app.refund(&payment, None).await;
    let expected =
        json!({"id": rest.created(), "payment_id": payment, "amount": "7.50", "currency": "USD", "reason": null});
    assert_eq!(timeless(rest.json()), expected);
    assert_eq!(app.balance(&payer).await, "10.00");
    assert_books_balance(&app.database);
}

/// No body at all is the same request as `{}`. Without this `curl -X POST` without data is told to send JSON.
#[tokio::test]
async fn a_refund_may_have_no_body() {
    let (app, payment, ..) = paid("10.00").await;
    let path = format!("/payments/{payment}/refunds");
    let bare = app
        .request(reqwest::Method::POST, &path)
        .header("Idempotency-Key", "bare");
    app.send(bare).await.created();
    assert!(app.post(&path, "bare", &json!({})).await.is_replay());
    assert_books_balance(&app.database);
}

/// R2: A negative or zero refund is refused before anything is written, and the key stays free. Without this a negative
/// refund is a second charge.
#[tokio::test]
async fn a_refund_of_nothing_or_less_is_refused() {
    let (app, payment, payer, _) = paid("10.00").await;
    let path = format!("/payments/{payment}/refunds");
    for amount in ["-1.00", "0.00", "-0", "0", "-0.00"] {
        let key = new_key();
        let problem = app
            .post(&path, &key, &json!({"amount": amount}))
            .await
            .invalid(&["amount"]);
        assert_eq!(problem["errors"][0]["message"], "must be greater than zero", "{amount}");
        app.get(&format!("/idempotency-keys/{key}"))
            .await
            .problem(404, "not_found");
        let corrected = app.post(&path, &key, &json!({"amount": "1.00"})).await;
        corrected.created();
        assert!(!corrected.is_replay());
    }
    assert_eq!(app.balance(&payer).await, "5.00");
    assert_books_balance(&app.database);
}

/// R5: Three full refunds under three keys: one goes through, the money moves once. Without this the payee pays three times.
#[tokio::test]
async fn a_payment_is_refunded_in_full_only_once() {
    let (app, payment, payer, payee) = paid("10.00").await;
    app.deposit(&payee, "100.00").await.created();
    app.refund(&payment, None).await.created();
    for _ in 0..2 {
        let problem = app
            .refund(&payment, None)
            .await
            .problem(422, "refund_exceeds_remaining");
        assert_eq!(problem["refundable_amount"], "0.00");
    }
    assert_eq!(
        (app.balance(&payer).await, app.balance(&payee).await),
        ("10.00".to_owned(), "100.00".to_owned())
    );
    assert_books_balance(&app.database);
}

/// R10: Five partial refunds, five keys. Without this the first refund closes the payment.
#[tokio::test]
async fn a_payment_is_refunded_in_parts() {
    let (app, payment, payer, _) = paid("10.00").await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(app.refund(&payment, Some("2.00")).await.created());
    }
    made.reverse();
    assert_eq!(ids(&app.list(&format!("/payments/{payment}/refunds")).await), made);
    assert_eq!(app.balance(&payer).await, "10.00");
    assert_books_balance(&app.database);
}

/// R11: Two refunds of the same amount under two keys are two refunds. Without this the second of two equal articles
/// is never refunded.
#[tokio::test]
async fn equal_refunds_under_two_keys_are_two_refunds() {
    let (app, payment, payer, _) = paid("10.00").await;
    let first = app.refund(&payment, Some("3.00")).await.created();
    let second = app.refund(&payment, Some("3.00")).await.created();
    assert_ne!(first, second);
    assert_eq!(app.balance(&payer).await, "6.00");
    assert_books_balance(&app.database);
}

/// R13: Who says what he believes was refunded is refused if it is no longer so, and told what is. Without this two clerks
/// refund one complaint twice.
#[tokio::test]
async fn a_refund_that_expects_another_refunded_amount_is_refused() {
    let (app, payment, payer, _) = paid("10.00").await;
    let path = format!("/payments/{payment}/refunds");
    let body = json!({"amount": "4.00", "expected_refunded_amount": "0.00"});
    app.post(&path, &new_key(), &body).await.created();
    let problem = app
        .post(&path, &new_key(), &body)
        .await
        .problem(412, "refunded_amount_changed");
    assert_eq!(problem["refunded_amount"], "4.00");
    let body = json!({"amount": "4.00", "expected_refunded_amount": "4"});
    app.post(&path, &new_key(), &body).await.created();
    assert_eq!(app.balance(&payer).await, "8.00");
    assert_books_balance(&app.database);
}

/// R15: A payee who has spent the money can't refund, and nothing is half done. Without this the payee goes below zero, or the
/// refund is noted and not paid.
#[tokio::test]
async fn a_payee_without_the_money_can_not_refund() {
    let (app, payment, payer, payee) = paid("10.00").await;
    app.withdraw(&payee, "0.01").await.created();
    app.refund(&payment, None).await.problem(402, "insufficient_funds");
    assert_eq!(
        app.list(&format!("/payments/{payment}/refunds")).await,
        Vec::<Value>::new()
    );
    assert_eq!(app.read(&format!("/payments/{payment}")).await["status"], "succeeded");
    assert_eq!(
        (app.balance(&payer).await, app.balance(&payee).await),
        ("0.00".to_owned(), "9.99".to_owned())
    );
    app.refund(&payment, Some("9.99")).await.created();
    assert_books_balance(&app.database);
}

/// R16: A cent more than was paid is refused with what would be possible, and the answer does not look like a refund.
/// Without this the caller books a refund that never was.
#[tokio::test]
async fn no_more_is_refunded_than_was_paid() {
    let (app, payment, _, payee) = paid("100.00").await;
    app.deposit(&payee, "100.00").await.created();
    let refused = app.refund(&payment, Some("100.01")).await;
    let problem = refused.problem(422, "refund_exceeds_remaining");
    assert_eq!(problem["refundable_amount"], "100.00");
    for member in ["id", "payment_id", "amount", "created_at"] {
        assert_eq!(problem.get(member), None, "{problem}");
    }
    assert_eq!(refused.header("Location"), None);
    app.refund(&payment, Some("999999999999999.9999"))
        .await
        .invalid(&["amount"]);
    app.refund(&payment, Some("999999999999999.99"))
        .await
        .problem(422, "refund_exceeds_remaining");
    assert_eq!(app.balance(&payee).await, "200.00");
    assert_books_balance(&app.database);
}

/// R18: A refund has no currency of its own. Without this "10 EUR" of a USD payment is refunded as 10 USD.
#[tokio::test]
async fn a_currency_in_a_refund_is_refused() {
    let (app, payment, payer, _) = paid("10.00").await;
    let path = format!("/payments/{payment}/refunds");
    for currency in ["EUR", "USD"] {
        let key = new_key();
        let problem = app
            .post(&path, &key, &json!({"amount": "1.00", "currency": currency}))
            .await
            .problem(400, "unknown_parameter");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("currency")),
            "{problem}"
        );
        app.get(&format!("/idempotency-keys/{key}"))
            .await
            .problem(404, "not_found");
    }
    assert_eq!(app.balance(&payer).await, "0.00");
    assert_books_balance(&app.database);
}

/// A1 A3: A refund has the decimals of the payment's currency; more are refused, never rounded. Without this half a yen
/// is refunded as one.
#[tokio::test]
async fn a_refund_has_the_decimals_of_its_payment() {
    let app = App::start().await;
    for (currency, amount, part, too_fine) in [
        ("JPY", "500", "1", "0.5"),
        ("KWD", "1.234", "0.001", "0.0001"),
        ("USD", "1.00", "0.01", "0.005"),
    ] {
        let (payer, payee) = (app.open(currency).await, app.open(currency).await);
        let body = json!({"amount": amount, "currency": currency});
        app.post(&format!("/accounts/{payer}/deposits"), &new_key(), &body)
            .await
            .created();
        let mut body = payment(&payer, &payee, amount);
        body["currency"] = json!(currency);
        let paid = app.post("/payments", &new_key(), &body).await.created();
        app.refund(&paid, Some(too_fine)).await.invalid(&["amount"]);
        let refunded = app.refund(&paid, Some(part)).await;
        refunded.created();
        assert_eq!(refunded.text("amount"), part, "{currency}");
        app.refund(&paid, None).await.created();
        assert_eq!(app.balance(&payer).await, amount);
    }
    assert_books_balance(&app.database);
}

/// A refund of a payment that is not there is 404, and so is the refund of somebody else's id.
#[tokio::test]
async fn a_refund_of_an_unknown_payment_is_not_found() {
    let (app, _, payer, _) = paid("10.00").await;
    app.refund(&Uuid::now_v7().to_string(), None)
        .await
        .problem(404, "not_found");
    app.refund(&payer, None).await.problem(404, "not_found");
    assert_books_balance(&app.database);
}
