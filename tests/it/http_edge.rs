//! The edge of HTTP: what clients, balancers and proxies do that no test of payments would think of.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use crate::support::client::payment;
use crate::support::{App, Raw, assert_books_balance, new_key};

/// Every address that answers `GET`, with what is there.
async fn readable(app: &App) -> Vec<String> {
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let key = new_key();
    let paid = app.pay_under(&key, &payer, &payee, "1.00").await.created();
    let refund = app.refund(&paid, None).await.created();
    let deposit = app.deposit(&payer, "1.00").await.created();
    let withdrawal = app.withdraw(&payer, "1.00").await.created();
    let mut paths: Vec<String> = [
        "/",
        "/accounts",
        "/payments",
        "/health/live",
        "/health/ready",
        "/metrics",
    ]
    .into_iter()
    .chain(["/problems/not_found", "/openapi.json", "/swagger-ui", "/swagger-ui/"])
    .map(str::to_owned)
    .collect();
    paths.extend([
        format!("/accounts/{payer}"),
        format!("/accounts/{payer}/entries"),
        format!("/accounts/{payer}/balance"),
        format!("/payments/{paid}"),
        format!("/payments/{paid}/refunds"),
        format!("/refunds/{refund}"),
        format!("/deposits/{deposit}"),
        format!("/withdrawals/{withdrawal}"),
        format!("/idempotency-keys/{key}"),
        format!("/payments/{}", Uuid::now_v7()),
        "/accounts?colour=blue".to_owned(),
        "/nowhere".to_owned(),
    ]);
    paths
}

/// `HEAD` is `GET` without the body: same status, same headers, nothing after them. Without this a balancer that probes with
/// `HEAD` marks the service down.
#[tokio::test]
async fn head_is_answered_as_get_without_a_body() {
    let app = App::start().await;
    let mut connection = Raw::connect(&app).await;
    for path in readable(&app).await {
        let lines = format!(
            "{path} HTTP/1.1\r\nHost: payonce\r\nAuthorization: Bearer {}\r\n\r\n",
            app.api_key
        );
        connection.send(format!("GET {lines}")).await;
        let get = connection.reply().await.expect("an answer");
        connection.send(format!("HEAD {lines}")).await;
        let head = connection.head_reply().await.expect("an answer");
        assert_eq!(head.status, get.status, "{path}");
        for name in ["content-type", "location", "cache-control", "link"] {
            assert_eq!(head.header(name), get.header(name), "{path}: {name}");
        }
        if path != "/metrics" {
            assert_eq!(head.header("content-length"), get.header("content-length"), "{path}");
        }
        assert!(head.header("x-request-id").is_some(), "{path}");
    }
    // A body after a HEAD would stand here, in the place of the next answer.
    connection
        .send("GET /health/live HTTP/1.1\r\nHost: payonce\r\n\r\n")
        .await;
    assert_eq!(
        connection.reply().await.expect("an answer").json(),
        json!({"status": "live"})
    );
}

/// A path that takes only `POST` has nothing to show, so nothing for `HEAD` either, and says so.
#[tokio::test]
async fn head_where_nothing_can_be_read_is_not_allowed() {
    let app = App::start().await;
    let reply = app
        .send(app.request(reqwest::Method::HEAD, &format!("/accounts/{}/close", Uuid::now_v7())))
        .await;
    assert_eq!((reply.status, reply.header("Allow")), (405, Some("POST")));
}

/// Who opens the bare address in a browser sees what there is. Without this the first thing a newcomer meets is an error.
#[tokio::test]
async fn the_bare_address_leads_to_swagger_ui() {
    let app = App::start().await;
    for path in ["/", "/swagger-ui"] {
        let mut connection = Raw::connect(&app).await;
        connection
            .send(format!("GET {path} HTTP/1.1\r\nHost: payonce\r\n\r\n"))
            .await;
        let reply = connection.reply().await.expect("an answer");
        assert_eq!((reply.status, reply.header("Location")), (307, Some("/swagger-ui/")));
    }
    let posted = app.post("/", &new_key(), &json!({})).await;
    posted.problem(405, "method_not_allowed");
}

/// No coding is undone here, so none is accepted. Without this a compressed body is "not JSON", and a plain one that claims to
/// be compressed is executed.
#[tokio::test]
async fn a_body_under_a_content_coding_is_refused() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let key = new_key();
    let request = || app.post_request("/payments", &key, &payment(&payer, &payee, "1.00"));
    for coding in ["gzip", "deflate", "br", "GZIP", "identity, gzip", "gzip;q=0", ""] {
        let reply = app.send(request().header("Content-Encoding", coding)).await;
        reply.problem(415, "unsupported_media_type");
        assert_eq!(reply.header("Accept-Encoding"), Some("identity"), "{coding:?}");
    }
    let twice = request()
        .header("Content-Encoding", "identity")
        .header("Content-Encoding", "gzip");
    app.send(twice).await.problem(415, "unsupported_media_type");
    assert_eq!(app.balance(&payer).await, "10.00");

    // A wrong media type is something else, and must not say that it is the coding.
    let reply = app
        .send(
            app.request(reqwest::Method::POST, "/payments")
                .header("Idempotency-Key", &key)
                .header("Content-Type", "text/xml")
                .body("<pay/>"),
        )
        .await;
    reply.problem(415, "unsupported_media_type");
    assert_eq!(reply.header("Accept-Encoding"), None);

    let plain = app.send(request().header("Content-Encoding", "Identity")).await;
    plain.created();
    assert!(!plain.is_replay());
    assert_books_balance(&app.database);
}

/// A body that does not arrive whole, because it stalls or is cut short, is no mistake of the request: sent again, under the same
/// key, it succeeds. Without this a client gives up on a payment because a line was slow.
#[tokio::test]
async fn a_body_that_does_not_arrive_whole_may_be_sent_again() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let body = payment(&payer, &payee, "1.00").to_string();
    let half = body.get(..body.len() / 2).expect("ASCII");
    let length = format!("Content-Length: {}\r\n", body.len());
    for (cut, lines, sent) in [
        (true, length.as_str(), half.to_owned()),
        (false, length.as_str(), half.to_owned()),
        (
            true,
            "Transfer-Encoding: chunked\r\n",
            format!("{:x}\r\n{half}\r\n", half.len()),
        ),
    ] {
        let key = new_key();
        let mut connection = Raw::connect(&app).await;
        let head = Raw::post_head(&app, "/payments", &key, lines);
        connection.send(head + &sent).await;
        if cut {
            connection.stream.shutdown().await.expect("closed for writing");
        }
        let reply = connection.reply().await.expect("an answer");
        let problem = reply.problem(408, "request_timeout");
        assert_eq!(problem["retryable"], json!(true));
        assert!(!reply.shown().contains("None"), "{}", reply.shown());
        assert_eq!(reply.header("Connection"), Some("close"));
        assert!(connection.rest().await.is_empty(), "closed after it");
        let again = app.pay_under(&key, &payer, &payee, "1.00").await;
        again.created();
        assert!(!again.is_replay());
    }
    assert_books_balance(&app.database);
}

/// Java's default client and `curl --http2` offer an upgrade with their first request. Without this the connection ends without a
/// word after the answer, the next request on it fails, and nobody knows whether it was executed.
#[tokio::test]
async fn an_offered_upgrade_never_ends_a_connection_unannounced() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let body = payment(&payer, &payee, "1.00").to_string();
    let length = format!("Content-Length: {}\r\n", body.len());
    for offer in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: upgrade\r\n",
        "Connection: keep-alive, Upgrade\r\nUpgrade: TLS/1.0\r\n",
        "Upgrade: h2c\r\n",
    ] {
        let mut connection = Raw::connect(&app).await;
        let head = Raw::post_head(&app, "/payments", &new_key(), &format!("{length}{offer}"));
        connection.send(head + &body).await;
        let paid = connection.reply().await.expect("an answer");
        paid.created();
        assert_eq!(paid.header("Upgrade"), None);
        match paid.header("Connection") {
            Some("close") => assert!(connection.rest().await.is_empty(), "{offer}"),
            None => {
                let head = Raw::post_head(&app, "/payments", &new_key(), &length);
                connection.send(head + &body).await;
                connection
                    .reply()
                    .await
                    .expect("an answer on the same connection")
                    .created();
            }
            other => panic!("{offer}: Connection: {other:?}"),
        }
    }
    assert_books_balance(&app.database);
}

/// An offer of WebSocket turns the body into a stream without an end, for the HTTP library. Without this such a request hangs until
/// the body's time is over.
#[tokio::test]
async fn an_offer_of_websocket_is_refused_at_once() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let body = payment(&payer, &payee, "1.00").to_string();
    let mut connection = Raw::connect(&app).await;
    let lines = format!(
        "Content-Length: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        body.len()
    );
    let head = Raw::post_head(&app, "/payments", &new_key(), &lines);
    connection.send(head + &body).await;
    let reply = connection.reply().await.expect("an answer");
    reply.problem(400, "malformed_request");
    assert_eq!(reply.header("Connection"), Some("close"));
    assert_eq!(app.balance(&payer).await, "10.00");
}

/// The first head of a connection has a time limit, and each later one, too. Without this a thousand clients that dribble leave no
/// connection for anybody.
#[tokio::test]
async fn a_second_head_that_dribbles_ends_its_connection() {
    let app = App::start().await;
    let mut connection = Raw::connect(&app).await;
    connection
        .send("GET /health/live HTTP/1.1\r\nHost: payonce\r\n\r\n")
        .await;
    assert_eq!(connection.reply().await.expect("an answer").status, 200);
    connection.send("GET /health/live HTTP/1.1\r\nHost:").await;
    assert!(connection.rest().await.is_empty(), "closed without an answer");
}

/// With many clients connected there is still room for the database. Without this whoever opens connections takes from the
/// service what it needs to reach PostgreSQL.
#[tokio::test]
async fn connections_leave_room_for_the_database() {
    let app = App::setup().flag("--max-connections=16").start().await;
    let mut connections = Vec::new();
    for _ in 0..200 {
        connections.push(Raw::connect(&app).await);
    }
    // The first few are served, the others wait to be accepted until some of them are gone.
    drop(connections);
    app.until_ready().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    app.pay(&payer, &payee, "1.00").await.created();
    assert_books_balance(&app.database);
}
