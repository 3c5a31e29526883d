//! What `/metrics` says, each of it with its meaning, and what it costs: memory that strangers can't make grow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use proc_macro2::{TokenStream, TokenTree};

use crate::support::{App, Raw};
use crate::tidy::sources;

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

/// The macros that count, and those that describe.
const MACROS: [[&str; 2]; 3] = [
    ["counter", "describe_counter"],
    ["gauge", "describe_gauge"],
    ["histogram", "describe_histogram"],
];

/// The names that are given to these macros. Tokens are looked through and not syntax: a metric may be counted inside of another macro.
fn collect_names(path: &str, tokens: TokenStream, names: &mut BTreeMap<String, BTreeSet<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for token in &tokens {
        if let TokenTree::Group(group) = token {
            collect_names(path, group.stream(), names);
        }
    }
    for call in tokens.windows(3) {
        let [
            TokenTree::Ident(name),
            TokenTree::Punct(mark),
            TokenTree::Group(arguments),
        ] = call
        else {
            continue;
        };
        let name = name.to_string();
        if mark.as_char() == '!' && MACROS.iter().flatten().any(|known| *known == name) {
            let first = arguments.stream().into_iter().next().map(|first| first.to_string());
            let metric = first.as_deref().and_then(|it| it.strip_prefix('"')?.strip_suffix('"'));
            let metric = metric.unwrap_or_else(|| panic!("{path}: {name}!({first:?}…): the name has to be a literal"));
            names.entry(name).or_default().insert(metric.to_owned());
        }
    }
}

/// A metric without a description is one that nobody knows how to read; a description without a metric is an alarm that never rings,
/// and each is one misspelt name. A histogram without buckets of its own kind can't be added up over instances.
#[test]
fn every_metric_is_described_and_every_description_is_of_one() {
    let (mut names, sources) = (BTreeMap::new(), sources());
    for (path, source) in &sources {
        collect_names(path, source.parse().expect("Rust"), &mut names);
    }
    for [counts, describes] in MACROS {
        assert_eq!(names[counts], names[describes], "{counts}!, and {describes}!");
        assert!(
            names[counts].iter().all(|name| name.starts_with("payonce_")),
            "{names:?}"
        );
    }
    let registry = &sources["src/commands/metrics.rs"];
    for histogram in &names["histogram"] {
        let own_buckets = registry.contains(&format!("Matcher::Full(\"{histogram}\""));
        assert!(
            own_buckets || histogram.ends_with("_seconds"),
            "{histogram} has no buckets"
        );
    }
}
