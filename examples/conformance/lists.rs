//! Lists: every row once, and only one's own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::ask::at_once;
use crate::caller::Service;
use crate::card::{Case, Checked, case};
use crate::reply::{Replies, Reply};

const PAYMENTS: usize = 200;

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "X7",
            "pages of seven while rows are added: every row once, newest first",
            pages,
        ),
        case(
            "X13",
            "another tenant sees, lists, refunds and closes nothing of ours",
            other_tenant,
        ),
    ]
}

async fn pages(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account_with("1000.00").await?, api.account("USD").await?);
    let pay = |turn| service.instance(turn).pay(&payer, &payee, "1.00");
    let replies = at_once((0..PAYMENTS).map(pay)).await?;
    replies.must(replies.count(|reply| reply.status == 201) == PAYMENTS, "each one 201")?;
    let there: Vec<String> = replies.iter().map(Reply::created).collect::<Checked<_>>()?;

    let first = format!("/payments?account_id={payer}&limit=7");
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut times = Vec::new();
    let mut cursor = None;
    loop {
        let path = cursor.map_or(first.clone(), |cursor: String| format!("{first}&cursor={cursor}"));
        let page = api.get(path).await?;
        let payments = page.data()?;
        page.must(payments.len() <= 7, "at most seven rows")?;
        for payment in payments {
            times.push(payment["created_at"].as_str().unwrap_or_default().to_owned());
            *seen
                .entry(payment["id"].as_str().unwrap_or_default().to_owned())
                .or_default() += 1;
        }
        let Value::String(next) = page.member("next_cursor") else {
            break;
        };
        cursor = Some(next);
        pay(1).await?.created()?;
    }
    let lost = there.iter().filter(|id| !seen.contains_key(*id)).count();
    let doubled = seen.values().filter(|times| **times > 1).count();
    let all = api.get(first).await?;
    all.must(
        (lost, doubled) == (0, 0),
        format!("every row once on the pages from here on; {lost} were lost and {doubled} doubled"),
    )?;
    all.must(
        times.is_sorted_by(|newer, older| newer >= older),
        "newest first, on all pages together",
    )
}

async fn other_tenant(service: Service) -> Checked {
    let (api, stranger) = (&service.api, service.other_tenant()?);
    let paid = api.paid("10.00").await?;
    let (payer, payment) = (&paid.payer, &paid.id);
    for path in [
        format!("/accounts/{payer}"),
        format!("/accounts/{payer}/entries"),
        format!("/accounts/{payer}/balance"),
        format!("/payments/{payment}"),
        format!("/payments/{payment}/refunds"),
    ] {
        stranger.get(path).await?.refused(404, "not_found")?;
    }
    let own = stranger.account("USD").await?;
    for ask in [
        stranger.refund(payment),
        stranger.set(&paid.payee, "close"),
        stranger.set(&paid.payee, "freeze"),
        stranger.deposit(payer, "1.00", "USD"),
        stranger.withdraw(&paid.payee, "1.00", "USD"),
        stranger.pay(&paid.payee, &own, "1.00"),
        stranger.pay(&own, &paid.payee, "1.00"),
    ] {
        ask.await?.refused(404, "not_found")?;
    }
    let list = stranger.get(format!("/payments?account_id={payer}")).await?;
    list.must(list.status == 404 || list.data()?.is_empty(), "nothing")?;

    for _ in 0..2 {
        api.refund(payment).with(json!({"amount": "1.00"})).await?.created()?;
    }
    let ours = api.get("/accounts?limit=1").await?;
    let Value::String(cursor) = ours.member("next_cursor") else {
        return Err(ours.wrong("a next_cursor: there are at least two accounts"));
    };
    let theirs = stranger.get(format!("/accounts?limit=1&cursor={cursor}")).await?;
    let useless = theirs.status == 400 || theirs.data()?.iter().all(|account| account["id"] != *payer);
    theirs.must(useless, "400, or nothing of ours")?;
    api.balance_is(&paid.payee, "8.00").await
}
