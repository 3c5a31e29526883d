//! `payonce serve`: puts the parts together and runs them until it is told to stop.
//!
//! On SIGTERM or SIGINT it accepts nothing more, finishes what was accepted, and ends.

use std::net::SocketAddr;

use actix_web::dev::Server;
use actix_web::web::Data;
use tokio::signal::unix::{SignalKind, signal};

use super::{Fatal, cleanup, metrics};
use crate::config::ServeArgs;
use crate::engine::{Engine, Workers};
use crate::http::{Authenticator, Service, server};
use crate::redis_hint::RedisHint;
use crate::storage::{Database, run_migrations};

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
    let authenticator = Authenticator::start(&database_settings, database.clone(), http.read_timeout)?;
    let service = Data::new(Service::new(
        &http,
        engine,
        authenticator,
        database,
        metrics::registry()?,
    ));
    cleanup::start_background(&database_settings, args.cleanup_interval)?;

    let (addresses, server) = server::start(&args.server(), &service, told_to_stop())?;
    Ok(Running {
        addresses,
        server,
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
