//! `payonce serve`: puts the parts together and runs them until it is told to stop.
//!
//! On SIGTERM or SIGINT it accepts nothing more, finishes what was accepted, and ends.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{SignalKind, signal};

use super::{Fatal, cleanup};
use crate::config::ServeArgs;
use crate::engine::{Engine, Workers};
use crate::http::{Authenticator, Service, envelope, routes};
use crate::redis_hint::RedisHint;
use crate::storage::{Database, run_migrations};

/// How long a client may take to send the head of a request. A body is bounded by its size and the keep-alive.
const CLIENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Seconds; a payment takes milliseconds.
#[expect(clippy::disallowed_types, reason = "Prometheus buckets are floats; no money is near")]
const LATENCY_BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

#[expect(clippy::disallowed_types, reason = "Prometheus buckets are floats; no money is near")]
const BATCH_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// A service that runs.
pub struct Running {
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Await it to wait for the end; its handle stops it.
    pub server: Server,
    workers: Workers,
}

/// Migrates, then starts everything.
///
/// # Errors
/// A sentence that says what is missing.
pub fn start(args: &ServeArgs) -> Result<Running, Fatal> {
    let database_settings = args.database.settings();
    for migration in run_migrations(&database_settings)? {
        tracing::info!(%migration, "migrated");
    }
    let database = Database::new(&database_settings);
    let hint = args
        .redis()
        .map(RedisHint::new)
        .transpose()
        .map_err(|error| format!("REDIS_URL: {error}"))?;
    let (engine, workers) = Engine::start(&args.workers(), args.wait(), database.clone(), hint)?;
    let http = args.http();
    let authenticator = Authenticator::start(database_settings.clone(), database.clone(), http.read_timeout)?;
    let service = Data::new(Service::new(
        &http,
        engine,
        authenticator,
        database,
        metrics_registry()?,
    ));
    cleanup::start_background(&database_settings, args.cleanup_interval)?;

    let server = HttpServer::new(move || {
        App::new()
            .app_data(Data::clone(&service))
            .wrap(from_fn(envelope))
            .configure(routes)
    })
    .workers(usize::try_from(args.http_workers)?)
    .client_request_timeout(CLIENT_REQUEST_TIMEOUT)
    .keep_alive(KEEP_ALIVE)
    .shutdown_timeout(args.shutdown_timeout.as_secs())
    .shutdown_signal(told_to_stop())
    .bind(&args.listen)
    .map_err(|error| format!("LISTEN: can't listen on {}: {error}", args.listen))?;
    let addresses = server.addrs();
    Ok(Running {
        addresses,
        server: server.run(),
        workers,
    })
}

/// Runs until it is told to stop.
///
/// # Errors
/// A sentence that says what is missing.
pub fn run(args: &ServeArgs) -> Result<(), Fatal> {
    actix_web::rt::System::new().block_on(async {
        let Running {
            addresses,
            server,
            workers,
        } = start(args)?;
        for address in addresses {
            tracing::info!(%address, "listening");
            println!("payonce listens on http://{address}, Swagger UI on http://{address}/swagger-ui/");
        }
        server.await?;
        // The handlers are done, and with them the last user of the engine: what is queued runs out.
        workers.join();
        tracing::info!("stopped");
        Ok(())
    })
}

/// SIGTERM or SIGINT. Left to itself, actix would drop the connections of requests that are under way on SIGINT.
async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // The signals then end the process, as they do by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// One registry a process.
fn metrics_registry() -> Result<PrometheusHandle, Fatal> {
    static REGISTRY: std::sync::OnceLock<PrometheusHandle> = std::sync::OnceLock::new();
    if let Some(handle) = REGISTRY.get() {
        return Ok(handle.clone());
    }
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), LATENCY_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("payonce_batch_size".to_owned()), BATCH_BUCKETS)?
        .install_recorder()?;
    describe_metrics();
    Ok(REGISTRY.get_or_init(|| handle).clone())
}

/// All metric names, with their meaning.
fn describe_metrics() {
    metrics::describe_histogram!(
        "payonce_http_request_seconds",
        "Time from request to answer, by method, route and status"
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
    metrics::describe_counter!("payonce_redis_hints_total", "What Redis said: seen, new, failed");
    metrics::describe_counter!(
        "payonce_keys_erased_total",
        "Idempotency keys whose response was erased"
    );
    metrics::describe_counter!("payonce_keys_forgotten_total", "Idempotency keys that were deleted");
}
