//! The metrics of the process: their names, meanings and buckets, and the registry that counts them.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::Fatal;

/// Seconds; a payment takes milliseconds.
#[expect(clippy::disallowed_types, reason = "Prometheus buckets are floats; no money is near")]
const LATENCY_BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

#[expect(clippy::disallowed_types, reason = "Prometheus buckets are floats; no money is near")]
const BATCH_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// How often the samples of histograms are sorted into their buckets. Until then each is kept by itself, at some 17
/// bytes: this bounds the memory they take when nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The registry, one for the process; the first call makes it.
///
/// # Errors
/// If it can't be installed.
pub fn registry() -> Result<PrometheusHandle, Fatal> {
    static REGISTRY: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = REGISTRY.get() {
        return Ok(handle.clone());
    }
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), LATENCY_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("payonce_batch_size".to_owned()), BATCH_BUCKETS)?
        .install_recorder()?;
    describe();
    keep_up(handle.clone())?;
    Ok(REGISTRY.get_or_init(|| handle).clone())
}

fn keep_up(handle: PrometheusHandle) -> std::io::Result<()> {
    let keep_up_for_ever = move || {
        loop {
            std::thread::sleep(UPKEEP_INTERVAL);
            handle.run_upkeep();
        }
    };
    std::thread::Builder::new()
        .name("metrics-upkeep".to_owned())
        .spawn(keep_up_for_ever)
        .map(drop)
}

/// All metric names, with their meaning.
fn describe() {
    metrics::describe_histogram!(
        "payonce_http_request_seconds",
        "Time from request to answer, by method, route and status"
    );
    metrics::describe_counter!(
        "payonce_http_refused_total",
        "Connections that were ended because what came was no HTTP, or not in time"
    );
    metrics::describe_histogram!("payonce_batch_size", "Commands in one transaction");
    metrics::describe_gauge!("payonce_queue_length", "Commands waiting for a worker");
    metrics::describe_counter!(
        "payonce_retries_total",
        "Commands run again because their transaction rolled back"
    );
    metrics::describe_counter!(
        "payonce_broken_total",
        "Commands rolled back because of a bug: alarm on any"
    );
    metrics::describe_counter!(
        "payonce_given_up_total",
        "Commands answered 503 because the database failed, by reason: alarm on rolled_back"
    );
    metrics::describe_counter!(
        "payonce_sessions_given_up_total",
        "Sessions given up because PostgreSQL did not answer: alarm on any"
    );
    metrics::describe_counter!("payonce_redis_hints_total", "What Redis said: seen, new, failed");
    metrics::describe_gauge!(
        "payonce_redis_circuit_open",
        "1 while Redis is not asked, because it failed: repeats take the write path"
    );
    metrics::describe_counter!(
        "payonce_keys_erased_total",
        "Idempotency keys whose response was erased"
    );
    metrics::describe_counter!("payonce_keys_forgotten_total", "Idempotency keys that were deleted");
}
