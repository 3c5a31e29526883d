//! The log: to stderr, so that what a command prints can be piped. `RUST_LOG` sets the level.

use std::io::IsTerminal;

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// What is logged unless `RUST_LOG` says otherwise.
const DEFAULT: &str = "info";

/// The HTTP library reports every client that breaks the protocol as an error. Such a report is one of [`Level::DEBUG`] here, and is
/// counted: otherwise anybody who connects fills the log, and trips the alarms on it.
const HTTP_LIBRARY: &str = "actix_http";

/// Starts the log of the process.
pub fn start(json: bool) {
    let directives = std::env::var("RUST_LOG").unwrap_or_default();
    let filter = EnvFilter::try_new(&directives).ok().filter(|_| !directives.is_empty());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(DEFAULT));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let lines = if json { lines.json().boxed() } else { lines.boxed() };
    let noise_wanted = wants_debug(&directives);
    let quiet = filter_fn(move |metadata| noise_wanted || !is_noise(metadata));
    let noise = filter_fn(is_noise).with_max_level_hint(LevelFilter::ERROR);
    tracing_subscriber::registry()
        .with(lines.with_filter(quiet).with_filter(filter))
        .with(RefusedByHttpLibrary.with_filter(noise))
        .init();
}

/// Does `RUST_LOG` ask for the HTTP library's reports of level debug?
fn wants_debug(directives: &str) -> bool {
    let targets: Option<Targets> = directives.parse().ok();
    targets.is_some_and(|targets| targets.would_enable(HTTP_LIBRARY, &Level::DEBUG))
}

fn is_noise(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::ERROR && metadata.target().starts_with(HTTP_LIBRARY)
}

/// Counts what the HTTP library refused by itself.
struct RefusedByHttpLibrary;

impl<S: Subscriber> Layer<S> for RefusedByHttpLibrary {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        metrics::counter!("payonce_http_refused_total").increment(1);
    }
}
