//! Many at once: nothing is lost, nothing is doubled, nobody is told a lie, and nobody waits for each other in a circle.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::app::until;
use crate::support::{App, Client, Instance, Reply, assert_books_balance, new_key};

fn with_status(replies: &[Reply], status: u16) -> usize {
    replies.iter().filter(|reply| reply.status == status).count()
}

/// All entries of an account.
async fn entries(client: &Client, account: &str) -> Vec<Value> {
    let (mut entries, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client
            .get(&format!("/accounts/{account}/entries?limit=100{cursor}"))
            .await
            .json();
        entries.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return entries,
        }
    }
}

/// C1: who reads the balance first and writes it later pays out what is not there (Flexcoin lost everything that way).
#[tokio::test]
async fn payments_at_once_on_two_instances_never_overdraw_an_account() {
    let app = App::setup().instances(2).start().await;
    let (payer, payee) = (app.open_with("1000.00").await, app.open("USD").await);
    let replies = join_all((0..50).map(|number| {
        let (client, payer, payee) = (app.on(number % 2), &payer, &payee);
        async move { client.pay(payer, payee, "100.00").await }
    }))
    .await;
    assert_eq!((with_status(&replies, 201), with_status(&replies, 402)), (10, 40));
    for refused in replies.iter().filter(|reply| reply.status == 402) {
        refused.problem(402, "insufficient_funds");
    }
    assert_eq!(
        (app.balance(&payer).await, app.balance(&payee).await),
        ("0.00".to_owned(), "1000.00".to_owned())
    );
    let entries = entries(&app, &payer).await;
    assert_eq!(entries.len(), 11);
    assert!(
        entries
            .iter()
            .all(|entry| !entry["balance_after"].as_str().unwrap().starts_with('-'))
    );
    assert_books_balance(&app.database);
}

/// R1: refunds that race for one payment. Each looks possible on its own; together they give back 3,000 for 100.
#[tokio::test]
async fn refunds_at_once_on_two_instances_never_exceed_the_payment_with_redis_and_without() {
    for redis in [true, false] {
        let setup = App::setup().instances(2);
        let app = if redis {
            setup.start().await
        } else {
            setup.without_redis().start().await
        };
        let (payer, payee) = (app.open_with("100.00").await, app.open_with("5000.00").await);
        let paid = app.pay(&payer, &payee, "100.00").await.created();
        let replies = join_all((0..50).map(|number| {
            let (client, paid) = (app.on(number % 2), &paid);
            async move { client.refund(paid, Some("60.00")).await }
        }))
        .await;
        assert_eq!((with_status(&replies, 201), with_status(&replies, 422)), (1, 49));
        for refused in replies.iter().filter(|reply| reply.status != 201) {
            let problem = refused.problem(422, "refund_exceeds_remaining");
            assert_eq!(problem["refundable_amount"], json!("40.00"));
        }
        let payment = app.get(&format!("/payments/{paid}")).await;
        assert_eq!(payment.text("refunded_amount"), "60.00");
        assert_eq!(payment.text("status"), "partially_refunded");
        assert_eq!(app.balance(&payer).await, "60.00");
        assert_books_balance(&app.database);
    }
}

/// C6: without one global order of locks two payments in opposite directions wait for each other, and PostgreSQL kills one.
#[tokio::test]
async fn payments_in_circles_on_two_instances_make_no_deadlock_and_no_5xx() {
    let mut app = App::setup().instances(2).flag("--engine-workers=4").start().await;
    let mut accounts = Vec::new();
    for _ in 0..3 {
        accounts.push(app.open_with("100.00").await);
    }
    let [a, b, c] = &accounts[..] else { unreachable!() };
    let paid = app.pay(a, b, "1.00").await.created();
    let end = Instant::now() + Duration::from_secs(5);
    let clients = (0..32_usize).map(|number| {
        let (client, paid) = (app.on(number % 2), &paid);
        async move {
            let mut replies = Vec::new();
            let routes = [(a, b), (b, a), (b, c), (c, a), (a, c), (c, b)];
            for step in number.. {
                if Instant::now() > end {
                    break;
                }
                let (payer, payee) = routes[step % routes.len()];
                replies.push(match step % 7 {
                    6 => client.refund(paid, Some("0.01")).await,
                    5 => client.deposit(payer, "0.01").await,
                    _ => client.pay(payer, payee, "1.00").await,
                });
            }
            replies
        }
    });
    let replies = join_all(clients).await.concat();
    assert!(replies.len() > 100, "only {} in five seconds", replies.len());
    for reply in &replies {
        assert!([201, 402, 422].contains(&reply.status), "{}", reply.shown());
    }
    // A session hands over what it has counted when it ends.
    app.instances.iter_mut().for_each(Instance::kill);
    let sessions =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    until("all sessions to end", || app.database.number(sessions) == 0).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(app.database.number(deadlocks), 0);
    assert_books_balance(&app.database);
}

/// C12: one shop that everybody pays to. Its row is locked for every payment; they must queue up, not fail.
#[tokio::test]
async fn everything_to_one_payee_succeeds_and_is_not_much_slower_than_to_many() {
    let app = App::setup().instances(2).start().await;
    let mut payers = Vec::new();
    for _ in 0..16 {
        payers.push(app.open_with("1000.00").await);
    }
    let payee = app.open("USD").await;
    let mut others = Vec::new();
    for _ in 0..16 {
        others.push(app.open("USD").await);
    }
    let run = async |one: bool| {
        let started = Instant::now();
        let replies = join_all(payers.iter().enumerate().map(|(number, payer)| {
            let (client, to) = (app.on(number % 2), if one { &payee } else { &others[number] });
            async move {
                for _ in 0..20 {
                    client.pay(payer, to, "1.00").await.created();
                }
            }
        }));
        replies.await;
        started.elapsed()
    };
    let spread = run(false).await;
    let hot = run(true).await;
    assert_eq!(app.balance(&payee).await, "320.00");
    assert!(
        hot < spread * 5 + Duration::from_secs(2),
        "to one payee {hot:?}, spread {spread:?}"
    );
    assert_books_balance(&app.database);
}

/// C14: a hot account on both sides: 50 clients pay in and out of it.
#[tokio::test]
async fn fifty_clients_on_one_hot_account_have_fifty_effects() {
    let app = App::setup().instances(2).start().await;
    let hot = app.open_with("1000.00").await;
    let mut accounts = Vec::new();
    for _ in 0..25 {
        accounts.push(app.open_with("10.00").await);
    }
    let replies = join_all((0..50_usize).map(|number| {
        let (client, hot, other) = (app.on(number % 2), &hot, &accounts[number / 2]);
        async move {
            if number % 4 < 2 {
                client.pay(hot, other, "3.00").await
            } else {
                client.pay(other, hot, "2.00").await
            }
        }
    }))
    .await;
    assert_eq!(
        with_status(&replies, 201),
        50,
        "{:?}",
        replies.iter().map(Reply::shown).collect::<Vec<_>>()
    );
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 50);
    assert_eq!(entries(&app, &hot).await.len(), 51);
    assert_eq!(app.balance(&hot).await, "970.00");
    assert_books_balance(&app.database);
}

/// C18 in the race: who closes an account while it is paid to must not lock money in.
#[tokio::test]
async fn a_payment_that_races_a_close_never_leaves_money_in_a_closed_account() {
    let app = App::setup().instances(2).start().await;
    let payer = app.open_with("100.00").await;
    for _ in 0..15 {
        let payee = app.open("USD").await;
        let (here, there) = (app.on(0), app.on(1));
        let (paid, closed) = tokio::join!(here.pay(&payer, &payee, "1.00"), there.set(&payee, "close"));
        match (paid.status, closed.status) {
            (201, 409) => drop(closed.problem(409, "account_not_empty")),
            (409, 200) => drop(paid.problem(409, "account_closed")),
            other => panic!("{other:?}"),
        }
    }
    assert_books_balance(&app.database);
}

/// The first account in a currency also opens the tenant's external one. Two requests that do so at once must not
/// trip over each other: each external account is in two unique indexes.
#[tokio::test]
async fn the_first_accounts_of_a_currency_can_be_opened_at_once() {
    const CURRENCIES: [&str; 24] = [
        "AED", "ARS", "AUD", "BRL", "CAD", "CHF", "CLP", "CNY", "CZK", "DKK", "EGP", "EUR", "GBP", "HKD", "HUF", "IDR",
        "INR", "JPY", "KRW", "KWD", "MXN", "NOK", "NZD", "PLN",
    ];
    let app = App::setup().instances(2).flag("--engine-workers=4").start().await;
    for round in 0..12 {
        let tenant = app.tenant(&format!("tenant-{round}"));
        let replies = join_all((0..CURRENCIES.len() * 4).map(|number| {
            let client = tenant.at(&app.instances[number % 2]);
            let body = json!({"currency": CURRENCIES[number / 4], "name": "A"});
            async move { client.post("/accounts", &new_key(), &body).await }
        }))
        .await;
        for reply in &replies {
            assert_eq!(reply.status, 201, "{}", reply.shown());
        }
    }
    let external = "SELECT count(*) FROM accounts WHERE kind = 'external'";
    assert_eq!(app.database.number(external), 24 * 12);
    assert_books_balance(&app.database);
}
