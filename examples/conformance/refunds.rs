//! Refunds: never more than was paid, and nothing half done.

use serde_json::json;

use crate::ask::{at_once, new_key};
use crate::caller::Service;
use crate::card::{Case, Checked, case};
use crate::reply::Replies;

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "R1",
            "of 50 refunds of 60.00 at once over a payment of 100.00, one is made",
            race,
        ),
        case(
            "R2",
            "a refund of nothing or less is refused, and its key is still free",
            nothing_or_less,
        ),
        case(
            "R5",
            "what is refunded in full is not refunded again under another key",
            full_three_times,
        ),
        case("R10", "a payment is refunded in five parts under five keys", five_parts),
        case("R11", "two refunds of the same amount are two refunds", equal_amounts),
        case(
            "R13",
            "expected_refunded_amount stops who decided on old figures",
            expected_amount,
        ),
        case(
            "R15",
            "a payee who has spent the money can't give it back, and nothing is half done",
            spent,
        ),
        case(
            "R16",
            "a cent too much is a refusal, and looks like one",
            a_cent_too_much,
        ),
        case(
            "R18",
            "a refund has its payment's currency: a currency in the body is refused",
            currency_in_body,
        ),
    ]
}

async fn race(service: Service) -> Checked {
    let paid = service.api.paid("100.00").await?;
    let refund = |turn| service.instance(turn).refund(&paid.id).with(json!({"amount": "60.00"}));
    let replies = at_once((0..50).map(refund)).await?;

    let made = replies.count(|reply| reply.created_now().is_ok());
    let refused = replies.count(|reply| {
        let problem = reply.refused(422, "refund_exceeds_remaining");
        problem.is_ok_and(|problem| problem["refundable_amount"] == "40.00")
    });
    replies.must(
        (made, refused) == (1, 49),
        "1 × 201; 49 × 422 refund_exceeds_remaining with \"refundable_amount\":\"40.00\"",
    )?;
    let payment = service.api.get(format!("/payments/{}", paid.id)).await?;
    payment.has("refunded_amount", "60.00")?;
    payment.has("status", "partially_refunded")?;
    service.api.balance_is(&paid.payer, "60.00").await
}

async fn nothing_or_less(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    for amount in ["-1.00", "0.00", "-0"] {
        let key = new_key();
        let refund = api.refund(&paid.id).under(&key);
        let refused = refund.clone().with(json!({"amount": amount})).await?;
        refused.refused(422, "validation_failed")?;
        refund.with(json!({"amount": "1.00"})).await?.created_now()?;
    }
    api.balance_is(&paid.payer, "3.00").await
}

async fn full_three_times(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    api.refund(&paid.id).await?.created()?;
    for _ in 0..2 {
        api.refund(&paid.id).await?.refused(422, "refund_exceeds_remaining")?;
    }
    api.balance_is(&paid.payer, "100.00").await?;
    api.balance_is(&paid.payee, "0.00").await
}

async fn five_parts(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    for _ in 0..5 {
        api.refund(&paid.id).with(json!({"amount": "20.00"})).await?.created()?;
    }
    let payment = api.get(format!("/payments/{}", paid.id)).await?;
    payment.has("status", "refunded")?;
    payment.has("refunded_amount", "100.00")
}

async fn equal_amounts(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    for _ in 0..2 {
        let refund = api.refund(&paid.id).with(json!({"amount": "10.00"})).await?;
        refund.created_now()?;
    }
    api.balance_is(&paid.payer, "20.00").await
}

async fn expected_amount(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    let refund = || {
        let body = json!({"amount": "10.00", "expected_refunded_amount": "0.00"});
        api.refund(&paid.id).with(body)
    };
    refund().await?.created()?;
    let late = refund().await?;
    let problem = late.refused(412, "refunded_amount_changed")?;
    late.must(
        problem["refunded_amount"] == "10.00",
        r#"412 with "refunded_amount":"10.00""#,
    )?;
    api.balance_is(&paid.payer, "10.00").await
}

async fn spent(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    api.withdraw(&paid.payee, "0.01", "USD").await?.created()?;
    api.refund(&paid.id).await?.refused(402, "insufficient_funds")?;
    let payment = api.get(format!("/payments/{}", paid.id)).await?;
    payment.has("refunded_amount", "0.00")?;
    payment.has("status", "succeeded")?;
    let refunds = api.get(format!("/payments/{}/refunds", paid.id)).await?;
    refunds.must(refunds.data()?.is_empty(), "no refund")?;
    api.balance_is(&paid.payee, "99.99").await
}

async fn a_cent_too_much(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    let refused = api.refund(&paid.id).with(json!({"amount": "100.01"})).await?;
    refused.refused(422, "refund_exceeds_remaining")?;
    api.balance_is(&paid.payer, "0.00").await
}

async fn currency_in_body(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("100.00").await?;
    let refused = api.refund(&paid.id).with(json!({"currency": "EUR"})).await?;
    refused.refused(400, "unknown_parameter")?;
    api.balance_is(&paid.payer, "0.00").await
}
