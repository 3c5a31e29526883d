//! Balances under concurrency: never below zero, never stuck, never lost.

use futures_util::future::try_join_all;
use serde_json::json;

use crate::ask::at_once;
use crate::caller::Service;
use crate::card::{Case, Checked, case};
use crate::reply::Replies;

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "C1",
            "of 50 payments of 100.00 at once from 1000.00, ten are made",
            overdraft,
        ),
        case(
            "C1e",
            "no entry of such an account has a balance below zero after it, and none is missing",
            entries,
        ),
        case("C6", "payments in circles, A→B, B→A, A→B→C→A, block nobody", circles),
        case("C12", "50 payers pay one payee at once", one_payee),
        case(
            "C14",
            "50 payments at once from and to the same two accounts are 50 effects",
            hot_accounts,
        ),
        case("C15", "nobody pays itself, in whichever letter case", oneself),
        case("C18", "an account with money in it is not closed", close_with_money),
        case(
            "C18r",
            "a payer whose account was closed gets no refund",
            refund_to_closed,
        ),
        case(
            "C18p",
            "a payment that races a close leaves no money in a closed account",
            payment_races_close,
        ),
    ]
}

async fn overdraft(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account_with("1000.00").await?, api.account("USD").await?);
    let pay = |turn| service.instance(turn).pay(&payer, &payee, "100.00");
    let replies = at_once((0..50).map(pay)).await?;
    let made = replies.count(|reply| reply.created_now().is_ok());
    let refused = replies.count(|reply| reply.refused(402, "insufficient_funds").is_ok());
    replies.must((made, refused) == (10, 40), "10 × 201; 40 × 402 insufficient_funds")?;
    api.balance_is(&payer, "0.00").await?;
    api.balance_is(&payee, "1000.00").await
}

async fn entries(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account_with("1000.00").await?, api.account("USD").await?);
    at_once((0..50).map(|turn| service.instance(turn).pay(&payer, &payee, "100.00"))).await?;
    let entries = api.get(format!("/accounts/{payer}/entries?limit=100")).await?;
    let balances: Vec<_> = entries
        .data()?
        .iter()
        .map(|entry| entry["balance_after"].clone())
        .collect();
    let right: Vec<_> = (0..=10)
        .map(|hundreds| json!(format!("{}.00", hundreds * 100)))
        .collect();
    entries.must(balances == right, format!("newest first, balances after of {right:?}"))
}

async fn circles(service: Service) -> Checked {
    let api = &service.api;
    let open = || api.account_with("1000.00");
    let (a, b, c) = &tokio::try_join!(open(), open(), open())?;
    let ways = [(a, b), (b, a), (a, b), (b, c), (c, a)];
    for _ in 0..4 {
        let turns = ways.iter().cycle().take(65).enumerate();
        let replies = at_once(turns.map(|(turn, (payer, payee))| service.instance(turn).pay(payer, payee, "1.00")));
        let replies = replies.await?;
        let made = replies.count(|reply| reply.created_now().is_ok());
        replies.must(made == replies.len(), "each one 201")?;
    }
    // Of five payments A makes two and gets two, B makes two and gets two, C makes one and gets one.
    for account in [a, b, c] {
        api.balance_is(account, "1000.00").await?;
    }
    Ok(())
}

async fn one_payee(service: Service) -> Checked {
    let api = &service.api;
    let payee = api.account("USD").await?;
    let payers = try_join_all((0..50).map(|_| api.account_with("1.00"))).await?;
    let turns = payers.iter().enumerate();
    let replies = at_once(turns.map(|(turn, payer)| service.instance(turn).pay(payer, &payee, "1.00"))).await?;
    let made = replies.count(|reply| reply.created_now().is_ok());
    replies.must(made == 50, "each one 201")?;
    api.balance_is(&payee, "50.00").await
}

async fn hot_accounts(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account_with("50.00").await?, api.account("USD").await?);
    let replies = at_once((0..50).map(|turn| service.instance(turn).pay(&payer, &payee, "1.00"))).await?;
    let made = replies.count(|reply| reply.created_now().is_ok());
    replies.must(made == 50, "each one 201")?;
    api.balance_is(&payer, "0.00").await?;
    api.balance_is(&payee, "50.00").await
}

async fn oneself(service: Service) -> Checked {
    let api = &service.api;
    let account = api.account_with("10.00").await?;
    for other_spelling in [account.clone(), account.to_uppercase()] {
        let refused = api.pay(&account, &other_spelling, "1.00").await?;
        refused.refused(422, "same_account")?;
    }
    api.balance_is(&account, "10.00").await
}

async fn close_with_money(service: Service) -> Checked {
    let api = &service.api;
    let account = api.account_with("0.01").await?;
    api.set(&account, "close").await?.refused(409, "account_not_empty")?;
    api.withdraw(&account, "0.01", "USD").await?.created()?;
    api.set(&account, "close").await?.has("status", "closed")?;
    api.deposit(&account, "1.00", "USD")
        .await?
        .refused(409, "account_closed")?;
    Ok(())
}

async fn refund_to_closed(service: Service) -> Checked {
    let api = &service.api;
    let paid = api.paid("10.00").await?;
    api.set(&paid.payer, "close").await?.ok()?;
    api.refund(&paid.id).await?.refused(409, "account_closed")?;
    api.balance_is(&paid.payee, "10.00").await
}

async fn payment_races_close(service: Service) -> Checked {
    let api = &service.api;
    let payer = api.account_with("20.00").await?;
    for turn in 0..20 {
        let payee = api.account("USD").await?;
        let close = service.instance(1).set(&payee, "close");
        let pay = api.pay(&payer, &payee, "1.00");
        let race = if turn % 2 == 0 { [pay, close] } else { [close, pay] };
        let replies = at_once(race).await?;
        let paid = replies.count(|reply| reply.status == 201) == 1;
        let closed = replies.count(|reply| reply.status == 200) == 1;
        let refused = replies.count(|reply| matches!(reply.code().as_str(), "account_closed" | "account_not_empty"));
        replies.must(
            paid != closed && refused == 1,
            "either paid and 409 account_not_empty, or closed and 409 account_closed",
        )?;
        let account = api.get(format!("/accounts/{payee}")).await?;
        account.has("balance", if paid { "1.00" } else { "0.00" })?;
        account.has("status", if closed { "closed" } else { "active" })?;
    }
    Ok(())
}
