//! `payonce serve`: puts the parts together and runs them until it is told to stop.
//!
//! On SIGTERM or SIGINT it accepts nothing more, finishes what was accepted, and ends.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use tokio::signal::unix::{SignalKind, signal};

use super::{Fatal, cleanup, metrics};
use crate::config::ServeArgs;
use crate::engine::{Engine, Workers};
use crate::http::{Authenticator, Service, envelope, routes};
use crate::redis_hint::RedisHint;
use crate::storage::{Database, run_migrations};

/// How long a client may take to send the head of a request. A body is bounded by its size and the keep-alive.
const CLIENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

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
        metrics::registry()?,
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
