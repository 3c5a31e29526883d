//! Probes, metrics, and what a problem's `Link` leads to.

use payonce::api::Code;
use serde_json::json;

use crate::support::{App, assert_books_balance};

/// The process is alive, and ready as long as the database answers. Without this an orchestrator sends money to an instance
/// that can't take it.
#[tokio::test]
async fn an_instance_is_ready_while_the_database_answers() {
    let app = App::start().await;
    assert_eq!(app.read("/health/live").await, json!({"status": "live"}));
    assert_eq!(app.read("/health/ready").await, json!({"status": "ready"}));
    app.database.lock_out();
    let reply = app.get("/health/ready").await;
    reply.problem(503, "unavailable");
    assert!(reply.header("Retry-After").is_some());
    assert_eq!(app.read("/health/live").await, json!({"status": "live"}));
    app.database.let_in();
    app.until_ready().await;
}

/// `/metrics` is Prometheus text and counts what was answered, by route and not by address. Without this every
/// account's id becomes a time series.
#[tokio::test]
async fn metrics_are_prometheus_text_by_route() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    app.pay(&payer, &payee, "1.00").await.created();
    app.read(&format!("/accounts/{payer}")).await;
    let reply = app.get("/metrics").await;
    assert_eq!(reply.status, 200);
    assert!(
        reply
            .header("Content-Type")
            .is_some_and(|value| value.starts_with("text/plain; version=0.0.4"))
    );
    let text = String::from_utf8(reply.body).expect("UTF-8");
    let counted = r#"payonce_http_request_seconds_count{method="POST",route="/payments",status="201"} 1"#;
    assert!(text.lines().any(|line| line == counted), "{text}");
    assert!(text.contains(r#"route="/accounts/{id}""#), "{text}");
    assert!(!text.contains(&payer), "{text}");
    for name in ["payonce_batch_size_count", "payonce_queue_length"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "no {name}: {text}");
    }
    assert_books_balance(&app.database);
}

/// Every code of the table has a page that says what it means and what to do; others have none.
#[tokio::test]
async fn every_problem_code_has_a_page() {
    let app = App::start().await;
    for code in Code::ALL {
        let row = code.row();
        let reply = app.get(&format!("/problems/{}", row.code)).await;
        let text = String::from_utf8(reply.body).expect("UTF-8");
        assert_eq!(reply.status, 200);
        for part in [row.code, row.title, &code.advice()] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    app.get("/problems/nonsense").await.problem(404, "not_found");
}

/// Every answer names its request, each another one. Without this a complaint can't be found in the log.
#[tokio::test]
async fn every_answer_has_a_request_id_of_its_own() {
    let app = App::start().await;
    let mut seen = std::collections::BTreeSet::new();
    for path in [
        "/health/live",
        "/accounts",
        "/accounts/nonsense",
        "/nowhere",
        "/swagger-ui/",
        "/metrics",
    ] {
        let reply = app.get(path).await;
        let id = reply.header("X-Request-Id").expect("X-Request-Id").to_owned();
        assert!(uuid::Uuid::parse_str(&id).is_ok(), "{id}");
        assert!(seen.insert(id), "{path}");
    }
}

/// What is read is true at the moment only, so nobody may keep it. Without this a proxy answers with yesterday's balance.
#[tokio::test]
async fn what_is_read_is_not_cached() {
    let app = App::start().await;
    let account = app.open("USD").await;
    for path in [
        format!("/accounts/{account}"),
        "/accounts".to_owned(),
        "/health/ready".to_owned(),
    ] {
        assert_eq!(app.get(&path).await.header("Cache-Control"), Some("no-store"), "{path}");
    }
}
