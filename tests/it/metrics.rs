//! What `/metrics` costs: memory that strangers can't make grow.

use std::fmt::Write;

use crate::support::{App, Raw};

/// Requests that are sent before an answer is read; the service takes up to 16 of a connection in advance.
const AT_ONCE: usize = 16;

/// How many time series `/metrics` shows.
async fn series(app: &App) -> usize {
    let text = String::from_utf8(app.get("/metrics").await.body).expect("UTF-8");
    text.lines().filter(|line| !line.starts_with('#')).count()
}

/// Sends requests that somebody without an API key has made up, each another.
async fn made_up(app: &App, numbers: std::ops::Range<usize>) {
    let mut connection = Raw::connect(app).await;
    for first in numbers.clone().step_by(AT_ONCE) {
        let numbers = first..numbers.end.min(first + AT_ONCE);
        let mut requests = String::new();
        for number in numbers.clone() {
            let (method, path) = match number % 4 {
                0 => (format!("M{number}"), "/payments".to_owned()),
                1 => (format!("M{number}"), format!("/nowhere/{number}?q={number}")),
                2 => ("GET".to_owned(), format!("/problems/code_{number}")),
                _ => ("GET".to_owned(), format!("/nowhere-{number}/")),
            };
            write!(requests, "{method} {path} HTTP/1.1\r\nHost: host-{number}\r\n\r\n").expect("a text");
        }
        connection.send(requests).await;
        for _ in numbers {
            let reply = connection.reply().await.expect("an answer");
            assert!(matches!(reply.status, 404 | 405), "{}", reply.shown());
        }
    }
}

/// Every value of a label is kept for ever. Without this anybody on the network fills the memory with invented methods.
#[tokio::test]
async fn what_strangers_make_up_is_no_label() {
    let app = App::start().await;
    made_up(&app, 0..100).await;
    let before = series(&app).await;
    made_up(&app, 100..10_100).await;
    // The look at /metrics itself is counted from the second time on.
    app.get("/metrics").await;
    let grown = series(&app).await.saturating_sub(before);
    let one_histogram = 16;
    assert!(grown <= one_histogram, "{grown} time series more");
}
