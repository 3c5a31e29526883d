//! One tenant's slow reads take nothing from others: not their reads, not their payments, not the probes.

use futures_util::future::join_all;
use uuid::Uuid;

use crate::support::app::{until, until_async};
use crate::support::database::Held;
use crate::support::{App, Client, assert_books_balance};

/// Whoever reads a refund waits until this is dropped; as slow as a read can be.
fn slow_refunds(app: &App) -> Held {
    app.database.hold("LOCK TABLE refunds IN ACCESS EXCLUSIVE MODE")
}

/// Reads that take for ever unless somebody limits them.
async fn patient_app() -> App {
    App::setup()
        .flag("--lock-timeout=10s")
        .flag("--statement-timeout=60s")
        .flag("--read-timeout=30s")
        .flag("--answer-timeout=30s")
        .start()
        .await
}

async fn read_refund(client: Client) -> u16 {
    client.get(&format!("/refunds/{}", Uuid::now_v7())).await.status
}

/// Sixteen readers of one tenant, who come again at once. Without a limit for each tenant they have all connections; without connections
/// for API keys and probes nobody's key is known any more, no payment is made, and the instance is taken out of service.
#[tokio::test]
async fn the_slow_reads_of_one_tenant_hold_nobody_else_up() {
    let app = patient_app().await;
    let quiet = app.tenant("tenant-b");
    let (payer, payee) = (quiet.open_with("100.00").await, quiet.open("USD").await);
    let slow = slow_refunds(&app);
    let noise: Vec<_> = (0..16)
        .map(|_| {
            let client = app.client.clone();
            tokio::spawn(async move {
                let mut statuses = Vec::new();
                for _ in 0..3 {
                    statuses.push(read_refund(client.clone()).await);
                }
                statuses
            })
        })
        .collect();
    until("its turns to be taken", || app.database.waiting() == 2).await;
    for _ in 0..8 {
        quiet.read(&format!("/accounts/{payer}")).await;
        app.read("/health/ready").await;
        // A key that the instance has not seen: it must be looked up.
        app.tenant("tenant-b").pay(&payer, &payee, "1.00").await.created();
        assert_eq!(app.database.waiting(), 2, "half of the connections");
    }
    // Its own payments are not reads.
    app.open_with("1.00").await;
    // What waits for too long is refused, so that nobody waits in vain.
    until_async("somebody to be refused", async || {
        app.metric(
            "payonce_http_request_seconds_count",
            r#"route="/refunds/{id}",status="429""#,
        )
        .await
            > 0
    })
    .await;
    drop(slow);
    for statuses in join_all(noise).await {
        for status in statuses.unwrap() {
            assert!([404, 429].contains(&status), "{status}");
        }
    }
    assert_eq!(read_refund(app.client.clone()).await, 404);
    assert_books_balance(&app.database);
}

/// The refusal says that it is the tenant's own doing, and when to come again.
#[tokio::test]
async fn a_read_that_does_not_get_its_turn_is_429_with_retry_after() {
    let app = patient_app().await;
    let slow = slow_refunds(&app);
    let reading: Vec<_> = (0..2).map(|_| tokio::spawn(read_refund(app.client.clone()))).collect();
    until("its turns to be taken", || app.database.waiting() == 2).await;
    let refused = app.get("/accounts").await;
    refused.problem(429, "rate_limited");
    assert!(refused.header("Retry-After").is_some());
    drop(slow);
    for status in join_all(reading).await {
        assert_eq!(status.unwrap(), 404);
    }
    app.list("/accounts").await;
}

/// A client that hangs up does not give its turn back before the database has: or hanging up would be the way to all connections.
#[tokio::test]
async fn who_hangs_up_keeps_the_turn_until_the_read_has_ended() {
    let app = patient_app().await;
    let slow = slow_refunds(&app);
    for number in 1..=2 {
        let reading = tokio::spawn(read_refund(app.client.clone()));
        until("the read", || app.database.waiting() == number).await;
        reading.abort();
    }
    app.get("/accounts").await.problem(429, "rate_limited");
    assert_eq!(app.database.waiting(), 2);
    drop(slow);
    until_async("the turns to come back", async || {
        app.get("/accounts").await.status == 200
    })
    .await;
}

/// `READ_TIMEOUT`: what takes longer is given up by the database itself, and its connection is free for the next.
#[tokio::test]
async fn a_read_that_takes_too_long_is_given_up() {
    let app = App::setup()
        .flag("--lock-timeout=10s")
        .flag("--statement-timeout=60s")
        .flag("--read-timeout=200ms")
        .start()
        .await;
    let slow = slow_refunds(&app);
    for _ in 0..8 {
        let given_up = app.get(&format!("/refunds/{}", Uuid::now_v7())).await;
        given_up.problem(503, "unavailable");
        assert!(given_up.header("Retry-After").is_some());
        assert_eq!(app.database.waiting(), 0, "it goes on without anybody who waits for it");
    }
    app.list("/accounts").await;
    drop(slow);
}
