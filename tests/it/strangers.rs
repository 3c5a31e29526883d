//! Who brings no API key that is known: whatever he asks, and how often, connections are left for the others.

use futures_util::future::join_all;

use crate::support::app::{address_in, until};
use crate::support::{App, Proxy, TestDatabase};

/// Look-ups of API keys that nobody knows have one connection, all of them together. Without this who makes keys up keeps the
/// look-ups of real ones, and the probes, waiting until the instance counts as dead.
#[tokio::test]
async fn made_up_api_keys_leave_connections_to_others() {
    let app = App::setup()
        .flag("--lock-timeout=10s")
        .flag("--statement-timeout=60s")
        .flag("--answer-timeout=60s")
        .start()
        .await;
    let nobody_is_looked_up = app.database.hold("LOCK TABLE api_keys");
    let strangers: Vec<_> = (0..40)
        .map(|number| {
            let stranger = app.with_api_key(&format!("payonce_stranger_{number}"));
            tokio::spawn(async move { stranger.get("/accounts").await })
        })
        .collect();
    until("a look-up to wait", || app.database.waiting() > 0).await;
    for _ in 0..20 {
        assert_eq!(app.get("/health/ready").await.status, 200);
        assert_eq!(app.database.waiting(), 1);
    }
    drop(nobody_is_looked_up);
    for reply in join_all(strangers).await {
        reply.expect("no panic").problem(401, "unauthenticated");
    }
}

/// Probes have one connection, all of them together. Without this who floods the probe, which asks for no key, keeps the look-ups of
/// API keys waiting.
#[tokio::test]
async fn probes_leave_connections_to_others() {
    let database = TestDatabase::new();
    let proxy = Proxy::start(address_in(&database.url));
    let app = App::setup()
        .flag("--lock-timeout=10s")
        .flag("--answer-timeout=1s")
        .start_on(database, Some(&proxy.address().to_string()))
        .await;
    // So that there is more than one connection to take.
    let nobody_is_looked_up = app.database.hold("LOCK TABLE api_keys");
    let stranger = app.with_api_key("payonce_stranger");
    let stranger = tokio::spawn(async move { stranger.get("/accounts").await });
    until("a look-up to wait", || app.database.waiting() > 0).await;
    app.until_ready().await;
    drop(nobody_is_looked_up);
    stranger.await.expect("no panic");

    proxy.hold_replies();
    let before = app.database.word("clock_timestamp()");
    let probes = join_all((0..10).map(|_| app.get("/health/ready"))).await;
    for probe in probes {
        probe.problem(503, "unavailable");
    }
    // That is what a connection is asked before it is used.
    let asked = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND query = 'SELECT 1' AND query_start > '{before}'"
    );
    assert_eq!(app.database.number(&asked), 1);
    proxy.pass();
    app.until_ready().await;
}
