//! One key is one effect, however often and however fast it is sent.

use futures_util::future::try_join_all;
use serde_json::json;

use crate::ask::{at_once, new_key};
use crate::caller::Service;
use crate::card::{Case, Checked, case};
use crate::reply::{Replies, Reply};

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "I1",
            "200 equal requests at once: one effect, one first answer, 199 replays of it",
            a_storm,
        ),
        case(
            "I2",
            "a key is not reused for another amount or at another address",
            another_request,
        ),
        case(
            "I4",
            "a change of any one field under a key is noticed; another spelling is no change",
            each_field,
        ),
        case("I7", "who loses the race for a key gets the winner's answer", losers),
        case(
            "I9",
            "equal keys in a burst: replayed, or refused if the content differs; others untouched",
            a_burst,
        ),
        case(
            "I14",
            "a refusal is kept under its key, even when there is money later",
            kept_refusal,
        ),
        case("I16", "two equal bodies under two keys are two payments", two_keys),
        case(
            "I21",
            "a repetition of what took the last money is not told that there is none",
            the_last_money,
        ),
    ]
}

/// All 201 and alike, byte for byte, and only one of them not marked as a replay.
fn one_first_answer(replies: &[Reply]) -> Checked {
    let first = replies.iter().find(|reply| reply.created_now().is_ok());
    let replays = replies.count(|reply| first.is_some_and(|first| reply.replays(first).is_ok()));
    let right = format!("1 × 201; {} × the same bytes marked as a replay", replies.len() - 1);
    replies.must(first.is_some() && replays == replies.len() - 1, right)
}

async fn a_storm(service: Service) -> Checked {
    let (payer, payee) = payer_and_payee(&service, "100.00").await?;
    let pay = service.api.pay(&payer, &payee, "10.00");
    let replies = at_once((0..200).map(|turn| pay.clone().by(service.instance(turn)))).await?;
    one_first_answer(&replies)?;
    service.api.balance_is(&payer, "90.00").await?;
    service.api.balance_is(&payee, "10.00").await
}

async fn another_request(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = payer_and_payee(&service, "100.00").await?;
    let key = new_key();
    let pay = api.pay(&payer, &payee, "10.00").under(&key);
    let payment = pay.clone().await?.created()?;
    for other in [
        pay.with(json!({"amount": "11.00"})),
        api.refund(&payment),
        api.deposit(&payer, "10.00", "USD"),
        api.set(&payee, "freeze"),
        api.open("USD"),
    ] {
        other.under(&key).await?.refused(422, "idempotency_key_reused")?;
    }
    api.balance_is(&payer, "90.00").await?;
    let payee = api.get(format!("/accounts/{payee}")).await?;
    payee.has("status", "active")?;
    payee.has("balance", "10.00")
}

async fn each_field(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = payer_and_payee(&service, "100.00").await?;
    let other = api.account_with("100.00").await?;
    let pay = api.pay(&payer, &payee, "12.50");
    let pay = pay.with(json!({"description": "a", "reference": "b", "metadata": {"c": "d"}}));
    let first = pay.clone().await?;
    first.created()?;

    for change in [
        json!({"payer_account_id": other}),
        json!({"payee_account_id": other}),
        json!({"amount": "12.51"}),
        json!({"currency": "EUR"}),
        json!({"description": "A"}),
        json!({"reference": "b "}),
        json!({"metadata": {"c": "D"}}),
        json!({"metadata": {"c": "d", "e": "f"}}),
        json!({"metadata": {}}),
    ] {
        let refused = pay.clone().with(change).await?;
        refused.refused(422, "idempotency_key_reused")?;
    }
    for member in ["description", "reference", "metadata"] {
        let refused = pay.clone().leaving_out(member).await?;
        refused.refused(422, "idempotency_key_reused")?;
    }

    let spelled_otherwise = format!(
        r#" {{"metadata":{{"c":"\u0064"}}, "reference":"b","description":"a","currency":"USD","amount":"12.5",
            "payee_account_id":"{}","payer_account_id":"{}" }} "#,
        payee.to_uppercase(),
        payer
    );
    pay.with_body(spelled_otherwise).await?.replays(&first)?;
    api.balance_is(&payer, "87.50").await?;
    api.balance_is(&other, "100.00").await
}

async fn losers(service: Service) -> Checked {
    let (payer, payee) = payer_and_payee(&service, "40.00").await?;
    let twice = (0..40).map(|_| {
        let pay = service.api.pay(&payer, &payee, "1.00");
        at_once([pay.clone(), pay.by(service.instance(1))])
    });
    for replies in try_join_all(twice).await? {
        one_first_answer(&replies)?;
    }
    service.api.balance_is(&payer, "0.00").await?;
    service.api.balance_is(&payee, "40.00").await
}

async fn a_burst(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = payer_and_payee(&service, "100.00").await?;
    let key = new_key();
    let one = |amount: &str| api.pay(&payer, &payee, amount).under(&key);
    let same = [one("1.00"), one("1.00"), one("1.00"), one("2.00")];
    let others = (0..20).map(|_| api.pay(&payer, &payee, "3.00"));
    let replies = at_once(same.into_iter().chain(others)).await?;
    let (same, others) = replies.split_at(4);

    let made = same.count(|reply| reply.created_now().is_ok());
    let replays = same.count(|reply| reply.status == 201 && reply.is_replay());
    let reused = same.count(|reply| reply.refused(422, "idempotency_key_reused").is_ok());
    // Which of the two contents came first is for the service to say.
    let of_content_one = (made, replays, reused) == (1, 2, 1);
    let of_content_two = (made, replays, reused) == (1, 0, 3);
    same.must(
        of_content_one || of_content_two,
        "1 × 201, replays of it, and 422 idempotency_key_reused for the other content",
    )?;
    let untouched = others.count(|reply| reply.created_now().is_ok());
    others.must(untouched == others.len(), "each one 201 of its own")?;
    let left = if of_content_one { "39.00" } else { "38.00" };
    api.balance_is(&payer, left).await
}

async fn kept_refusal(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = payer_and_payee(&service, "5.00").await?;
    let pay = api.pay(&payer, &payee, "10.00");
    let refused = pay.clone().await?;
    refused.refused(402, "insufficient_funds")?;
    api.deposit(&payer, "10.00", "USD").await?.created()?;
    pay.clone().await?.replays(&refused)?;
    pay.under(&new_key()).await?.created_now()?;
    api.balance_is(&payee, "10.00").await
}

async fn two_keys(service: Service) -> Checked {
    let (payer, payee) = payer_and_payee(&service, "10.00").await?;
    for _ in 0..2 {
        let pay = service.api.pay(&payer, &payee, "1.00");
        pay.await?.created_now()?;
    }
    service.api.balance_is(&payee, "2.00").await
}

async fn the_last_money(service: Service) -> Checked {
    for _ in 0..10 {
        let (payer, payee) = payer_and_payee(&service, "100.00").await?;
        let pay = service.api.pay(&payer, &payee, "100.00");
        let replies = at_once([pay.clone(), pay.by(service.instance(1))]).await?;
        one_first_answer(&replies)?;
        service.api.balance_is(&payee, "100.00").await?;
    }
    Ok(())
}

async fn payer_and_payee(service: &Service, amount: &str) -> Checked<(String, String)> {
    let payer = service.api.account_with(amount).await?;
    Ok((payer, service.api.account("USD").await?))
}
