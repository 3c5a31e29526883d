//! Amounts: exact in their currency, or refused. Nothing is rounded and nothing guessed.

use serde_json::{Value, json};

use crate::caller::Service;
use crate::card::{Case, Checked, case};
use crate::reply::Reply;

/// The largest amount and balance, in a currency that has three decimals: no currency in circulation has more.
const LARGEST: (&str, &str) = ("999999999999999.999", "KWD");

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "A1",
            "a currency without decimals is paid and refunded in whole units, and in nothing else",
            yen,
        ),
        case("A3", "as many decimals as the currency has, never rounded", decimals),
        case(
            "A4",
            "a currency is an ISO 4217 code of something that can be paid, in capitals",
            currencies,
        ),
        case(
            "A6",
            "what is not a plain decimal string is refused, and the right form shown",
            forms,
        ),
        case("A8", "the largest amount is accepted, and nothing passes it", largest),
        case("A9", "five billion rupiah are an ordinary amount", rupiah),
    ]
}

async fn yen(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account("JPY").await?, api.account("JPY").await?);
    api.deposit(&payer, "500", "JPY").await?.has("amount", "500")?;
    let pay = |amount: &str| api.pay(&payer, &payee, amount).with(json!({"currency": "JPY"}));
    invalid_amount(&pay("500.5").await?)?;
    let payment = pay("500").await?;
    payment.has("amount", "500")?;
    let payment = payment.created()?;
    api.refund(&payment).await?.has("amount", "500")?;
    api.balance_is(&payer, "500").await
}

async fn decimals(service: Service) -> Checked {
    let api = &service.api;
    let dinar = api.account("KWD").await?;
    api.deposit(&dinar, "1.234", "KWD").await?.has("amount", "1.234")?;
    invalid_amount(&api.deposit(&dinar, "1.2345", "KWD").await?)?;
    api.balance_is(&dinar, "1.234").await?;
    let dollar = api.account("USD").await?;
    invalid_amount(&api.deposit(&dollar, "1.005", "USD").await?)?;
    api.deposit(&dollar, "1.5", "USD").await?.has("amount", "1.50")?;
    api.balance_is(&dollar, "1.50").await
}

async fn currencies(service: Service) -> Checked {
    let account = service.api.account("USD").await?;
    for code in ["usd", "US", "USDD", "XXX", ""] {
        let opened = service.api.open(code).await?;
        opened.refused(422, "validation_failed")?;
        let deposit = service.api.deposit(&account, "1.00", code).await?;
        deposit.refused(422, "validation_failed")?;
    }
    service.api.balance_is(&account, "0.00").await
}

async fn forms(service: Service) -> Checked {
    let api = &service.api;
    let account = api.account("USD").await?;
    for amount in [
        "99.8",
        "1e3",
        "true",
        "null",
        "[]",
        "{}",
        "\"1e3\"",
        "\"NaN\"",
        "\" 1.00\"",
        "\"1,000.00\"",
        "\"٣\"",
        "\"+1.00\"",
        "\"\"",
    ] {
        let body = format!(r#"{{"amount":{amount},"currency":"USD"}}"#);
        let refused = api.deposit(&account, "", "USD").with_body(body).await?;
        refused.refused_as_one_of(&[400, 422])?;
        let shown = String::from_utf8_lossy(&refused.body).to_string();
        let shows_the_form = shown.split("\\\"").any(is_plain_decimal);
        refused.must(
            shows_the_form,
            "a message with an amount in the right form, such as \"12.50\"",
        )?;
    }
    api.balance_is(&account, "0.00").await
}

fn is_plain_decimal(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

async fn largest(service: Service) -> Checked {
    let (api, (amount, currency)) = (&service.api, LARGEST);
    let account = api.account(currency).await?;
    api.deposit(&account, amount, currency).await?.has("amount", amount)?;
    let beyond = api.deposit(&account, "1000000000000000.000", currency).await?;
    let passing = api.deposit(&account, "0.001", currency).await?;
    // Given back before anything is checked, so that it lies nowhere if a check fails.
    let left = api.get(format!("/accounts/{account}")).await?;
    api.withdraw(&account, amount, currency).await?.created()?;

    beyond.refused(422, "validation_failed")?;
    passing.refused(422, "balance_overflow")?;
    left.has("balance", amount)
}

async fn rupiah(service: Service) -> Checked {
    let account = service.api.account("IDR").await?;
    let deposit = service.api.deposit(&account, "5000000000", "IDR").await?;
    deposit.has("amount", "5000000000.00")?;
    service.api.balance_is(&account, "5000000000.00").await
}

/// 422 that names the amount.
fn invalid_amount(reply: &Reply) -> Checked {
    let problem = reply.refused(422, "validation_failed")?;
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    let named: Vec<&Value> = errors.iter().map(|error| &error["field"]).collect();
    reply.must(
        named == ["amount"],
        r#"422 validation_failed with "errors" about "amount""#,
    )
}
