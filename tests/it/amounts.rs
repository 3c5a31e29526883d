//! Amounts: exact in their currency, or refused with what would be right.

use serde_json::json;

use crate::support::{App, assert_books_balance, new_key};

/// An account in this currency. `CLF`, which alone has four decimals, opens none; amounts in it are as exact as in any other.
async fn account_in(app: &App, currency: &str) -> String {
    match currency {
        "CLF" => app.plant_account(currency).await,
        _ => app.open(currency).await,
    }
}

/// A1: Yen have no decimals: `"500"` is stored and refunded as 500, `"500.5"` is refused. Without this 500 yen become 5 or 50000.
#[tokio::test]
async fn yen_have_no_decimals() {
    let app = App::start().await;
    let (payer, payee) = (app.open("JPY").await, app.open("JPY").await);
    app.deposit_in(&payer, "500", "JPY").await.created();
    let paid = app.pay_in(&payer, &payee, &json!("500"), "JPY").await;
    let id = paid.created();
    assert_eq!(
        (paid.text("amount"), paid.text("refunded_amount")),
        ("500".to_owned(), "0".to_owned())
    );
    assert_eq!(app.database.word("SELECT amount FROM payments"), "500.0000");
    let refunded = app.refund(&id, None).await;
    refunded.created();
    assert_eq!(refunded.text("amount"), "500");
    assert_eq!(app.read(&format!("/payments/{id}")).await["refunded_amount"], "500");
    for amount in ["500.5", "500.0", "500."] {
        app.pay_in(&payer, &payee, &json!(amount), "JPY")
            .await
            .invalid(&["amount"]);
    }
    assert_eq!(app.balance(&payer).await, "500");
    assert_books_balance(&app.database);
}

/// A3: As many decimals as the currency has, and not one more; fewer mean the same. Without this money is rounded, and
/// somebody keeps the difference.
#[tokio::test]
async fn an_amount_has_the_decimals_of_its_currency() {
    let app = App::start().await;
    for (currency, accepted, refused) in [
        ("KWD", [("1.234", "1.234"), ("1.2", "1.200"), ("1", "1.000")], "1.2345"),
        ("USD", [("1.01", "1.01"), ("1.5", "1.50"), ("1", "1.00")], "1.005"),
        (
            "CLF",
            [("1.2345", "1.2345"), ("1.2", "1.2000"), ("1", "1.0000")],
            "1.23456",
        ),
    ] {
        let (payer, payee) = (account_in(&app, currency).await, account_in(&app, currency).await);
        app.deposit_in(&payer, "10", currency).await.created();
        for (sent, shown) in accepted {
            let paid = app.pay_in(&payer, &payee, &json!(sent), currency).await;
            paid.created();
            assert_eq!(paid.text("amount"), shown);
        }
        let problem = app
            .pay_in(&payer, &payee, &json!(refused), currency)
            .await
            .invalid(&["amount"]);
        let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("never rounded") && message.contains(currency),
            "{message}"
        );
    }
    assert_books_balance(&app.database);
}

/// A6: What is not a plain decimal string is refused with one that would be right, never guessed at. Without this `1,000.00`
/// is one dollar, and `99.8` is 99.7999999999999971.
#[tokio::test]
async fn an_amount_is_a_plain_decimal_string() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10000.00").await, app.open("USD").await);
    for (sent, right) in [
        ("99.8", "\"99.80\""),
        ("100", "\"100.00\""),
        ("1e3", "\"1000.00\""),
        ("0.1", "\"0.10\""),
        ("-5", "\"12.50\""),
        ("true", "\"12.50\""),
        ("null", "\"12.50\""),
        ("[\"1.00\"]", "\"12.50\""),
        ("{\"value\":\"1.00\"}", "\"12.50\""),
        ("\"1e3\"", "\"12.50\""),
        ("\"NaN\"", "\"12.50\""),
        ("\"Infinity\"", "\"12.50\""),
        ("\" 1.00\"", "\"12.50\""),
        ("\"1.00 \"", "\"12.50\""),
        ("\"1,000.00\"", "\"12.50\""),
        ("\"1_000\"", "\"12.50\""),
        ("\"٣\"", "\"12.50\""),
        ("\"１\"", "\"12.50\""),
        ("\"+1.00\"", "\"12.50\""),
        ("\"$1.00\"", "\"12.50\""),
        ("\"01.00\"", "\"12.50\""),
        ("\".50\"", "\"12.50\""),
        ("\"1.\"", "\"12.50\""),
        ("\"1.0.0\"", "\"12.50\""),
        ("\"0x10\"", "\"12.50\""),
        ("\"\"", "\"12.50\""),
    ] {
        let body = format!(
            r#"{{"payer_account_id":"{payer}","payee_account_id":"{payee}","amount":{sent},"currency":"USD"}}"#
        );
        let problem = app.post_bytes("/payments", body).await.invalid(&["amount"]);
        let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(message.contains(right), "{sent}: {message}");
    }
    for sent in ["NaN", "01", "1.", ".5", "+1", "0x10", "1e400"] {
        let body = format!(
            r#"{{"payer_account_id":"{payer}","payee_account_id":"{payee}","amount":{sent},"currency":"USD"}}"#
        );
        app.post_bytes("/payments", body)
            .await
            .problem(400, "malformed_request");
    }
    for amount in ["0", "0.00", "-1.00", "-0"] {
        app.pay_in(&payer, &payee, &json!(amount), "USD")
            .await
            .invalid(&["amount"]);
    }
    assert_eq!(app.balance(&payer).await, "10000.00");
    assert_books_balance(&app.database);
}

/// A6: Of an amount that can't be used the message repeats what was sent, says which rule it broke, and marks its example as one.
/// Without this a caller who sends 13063.999999999998 reads `send "12.50"`, does, and charges somebody 12.50.
#[tokio::test]
async fn an_unusable_amount_is_named_with_what_is_wrong_and_an_example_that_is_marked_as_one() {
    let app = App::start().await;
    let account = app.open("USD").await;
    for (sent, currency, wrong, example) in [
        (
            "13063.999999999998",
            "USD",
            "has more decimals than USD allows (2)",
            "12.50",
        ),
        (
            "0.30000000000000004",
            "USD",
            "has more decimals than USD allows (2)",
            "12.50",
        ),
        (
            "0.1000000000000000055511151231257827",
            "USD",
            "has more digits than an amount can have",
            "12.50",
        ),
        ("1e-7", "USD", "has more decimals than USD allows (2)", "12.50"),
        ("500.5", "JPY", "has more decimals than JPY allows (0)", "500"),
        ("-5", "USD", "must be greater than zero", "12.50"),
        ("-0", "JPY", "must be greater than zero", "500"),
        ("-0.0", "USD", "must be greater than zero", "12.50"),
        (
            "9007199254740993",
            "USD",
            "must not be greater than 999999999999999.9999",
            "12.50",
        ),
        (
            "18446744073709551616",
            "USD",
            "must not be greater than 999999999999999.9999",
            "12.50",
        ),
        ("1e300", "USD", "has more digits than an amount can have", "12.50"),
        ("\"01.00\"", "USD", "has a leading zero", "12.50"),
        ("\"007\"", "JPY", "has a leading zero", "500"),
        ("\".5\"", "USD", "has no digit before the point", "12.50"),
        ("\"5.\"", "KWD", "has no digit after the point", "1.234"),
        ("\"1.2.3\"", "USD", "has more than one point", "12.50"),
        ("\"1,00\"", "USD", "has ',' in it", "12.50"),
        ("\"1 000\"", "USD", "has ' ' in it", "12.50"),
        ("\"+1\"", "USD", "has '+' in it", "12.50"),
        ("\"1e3\"", "USD", "has 'e' in it", "12.50"),
        ("\"٣\"", "USD", "has '٣' in it", "12.50"),
        ("\"\"", "USD", "has no digits", "12.50"),
        ("\"-\"", "USD", "has no digits", "12.50"),
        ("\"12.505\"", "USD", "has more decimals than USD allows (2)", "12.50"),
    ] {
        let body = format!(r#"{{"amount":{sent},"currency":"{currency}"}}"#);
        let reply = app.post_bytes(&format!("/accounts/{account}/deposits"), body).await;
        let problem = reply.invalid(&["amount"]);
        let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("{sent} {wrong}")), "{sent}: {message}");
        assert!(
            message.contains(&format!("for example \"{example}\"")),
            "{sent}: {message}"
        );
        assert!(!message.contains("send"), "an order to send something else: {message}");
    }
}

/// A6: Of a number that is an amount, the message has the very string to send: the same amount, in the digits that were sent.
#[tokio::test]
async fn a_usable_number_is_answered_with_the_string_to_send() {
    let app = App::start().await;
    let account = app.open("USD").await;
    for (sent, currency, right) in [
        ("12.5", "USD", "12.50"),
        ("1.5e2", "USD", "150.00"),
        ("100000000000000.01", "USD", "100000000000000.01"),
        ("999999999999999.99", "USD", "999999999999999.99"),
        ("12.50000", "USD", "12.50"),
        ("500", "JPY", "500"),
        ("0.001", "KWD", "0.001"),
    ] {
        let body = format!(r#"{{"amount":{sent},"currency":"{currency}"}}"#);
        let reply = app.post_bytes(&format!("/accounts/{account}/deposits"), body).await;
        let expected = format!("must be a decimal string, not the JSON number {sent}: send \"{right}\"");
        assert_eq!(reply.invalid(&["amount"])["errors"][0]["message"], expected);
    }
}

/// A6: The same for the amounts of a refund, whose currency is not in the request.
#[tokio::test]
async fn the_amounts_of_a_refund_are_plain_decimal_strings() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let path = format!("/payments/{}/refunds", app.pay(&payer, &payee, "10.00").await.created());
    for field in ["amount", "expected_refunded_amount"] {
        for value in [
            json!(1),
            json!(9.5),
            json!(true),
            json!([]),
            json!("1e3"),
            json!("1,00"),
            json!(" 1"),
        ] {
            let problem = app
                .post(&path, &new_key(), &json!({(field): value}))
                .await
                .invalid(&[field]);
            let message = problem["errors"][0]["message"].as_str().unwrap_or_default();
            assert!(message.contains('"'), "{value}: {message}");
        }
    }
    app.post(&path, &new_key(), &json!({"expected_refunded_amount": "-1"}))
        .await
        .invalid(&["expected_refunded_amount"]);
    assert_eq!(app.balance(&payer).await, "0.00");
    assert_books_balance(&app.database);
}

/// A8: The documented maximum can be held; one unit beyond is refused, and so is a balance that would pass it. Without this
/// NUMERIC overflows: a 500, or money lost.
#[tokio::test]
async fn the_largest_amount_and_balance_are_as_documented() {
    let app = App::start().await;
    for (currency, most, smallest, beyond) in [
        ("CLF", "999999999999999.9999", "0.0001", "1000000000000000"),
        ("USD", "999999999999999.99", "0.01", "1000000000000000.00"),
        ("JPY", "999999999999999", "1", "1000000000000000"),
    ] {
        let account = account_in(&app, currency).await;
        app.deposit_in(&account, beyond, currency).await.invalid(&["amount"]);
        app.deposit_in(&account, &"9".repeat(400), currency)
            .await
            .invalid(&["amount"]);
        app.deposit_in(&account, most, currency).await.created();
        assert_eq!(app.balance(&account).await, most);
        app.deposit_in(&account, smallest, currency)
            .await
            .problem(422, "balance_overflow");
        let other = account_in(&app, currency).await;
        app.pay_in(&account, &other, &json!(most), currency).await.created();
        assert_eq!(app.balance(&other).await, most);
    }
    assert_books_balance(&app.database);
}

/// A8: A credit that would lift a balance over the maximum is refused, and everybody keeps what they had. All money of a tenant
/// comes from its external account, which has the same limit: only a fault in the books could bring a payee that far, and
/// then this is the last line before NUMERIC overflows.
#[tokio::test]
async fn a_payment_never_lifts_a_balance_over_the_maximum() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("1.00").await, app.open("USD").await);
    app.database.run_unguarded(&format!(
        "UPDATE accounts SET balance = 999999999999999.99 WHERE id = '{payee}'"
    ));
    app.pay(&payer, &payee, "0.01").await.problem(422, "balance_overflow");
    app.database
        .run_unguarded(&format!("UPDATE accounts SET balance = 0 WHERE id = '{payee}'"));
    assert_eq!(app.balance(&payer).await, "1.00");
    assert_books_balance(&app.database);
}

/// A9: Ten digits before the point are an everyday amount in rupiah. Without this `NUMERIC(15,9)` overflows at a million.
#[tokio::test]
async fn amounts_in_rupiah_are_large() {
    let app = App::start().await;
    let (payer, payee) = (app.open("IDR").await, app.open("IDR").await);
    app.deposit_in(&payer, "5000000000", "IDR").await.created();
    let paid = app.pay_in(&payer, &payee, &json!("5000000000"), "IDR").await;
    paid.created();
    assert_eq!(paid.text("amount"), "5000000000.00");
    assert_eq!(app.balance(&payee).await, "5000000000.00");
    assert_books_balance(&app.database);
}
