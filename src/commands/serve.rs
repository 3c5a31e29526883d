//! `payonce serve`: puts the parts together and runs them until it is told to stop.
//!
//! On SIGTERM or SIGINT it accepts nothing more, finishes what was accepted, and ends. What hangs keeps it for as long as
//! `SHUTDOWN_TIMEOUT` says, and not beyond a second signal.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use actix_web::dev::Server;
use actix_web::web::Data;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{SignalKind, signal};

use super::{Fatal, cleanup, metrics};
use crate::config::ServeArgs;
use crate::engine::{Engine, Workers};
use crate::http::{Authenticator, Service, server};
use crate::redis_hint::RedisHint;
use crate::storage::{Database, StorageError, connect, guarantees, run_migrations};

/// How long a stop waits for idle workers to end, however little of `SHUTDOWN_TIMEOUT` is left.
const LAST_GRACE: Duration = Duration::from_millis(500);

/// A service that runs.
pub struct Running {
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Await it to wait for the end; its handle stops it.
    pub server: Server,
    workers: Workers,
    /// When it was told to stop.
    told_at: Arc<OnceLock<Instant>>,
}

/// Migrates, then starts everything.
///
/// # Errors
/// A sentence that says what is missing.
pub fn start(args: &ServeArgs) -> Result<Running, Fatal> {
    let database_settings = args.database.settings();
    insist_on_durability(args)?;
    for migration in run_migrations(&database_settings)? {
        tracing::info!(%migration, "migrated");
    }
    let (database, reserved) = (
        Database::for_tenants(&database_settings),
        Database::reserved(&database_settings),
    );
    let hint = args
        .redis()
        .map(RedisHint::new)
        .transpose()
        .map_err(|error| format!("REDIS_URL: {error}"))?;
    let (engine, workers) = Engine::start(&args.workers(), args.wait(), reserved.clone(), hint)?;
    let http = args.http();
    let authenticator = Authenticator::start(&database_settings, reserved.clone(), http.answer_timeout)?;
    let service = Data::new(Service::new(
        &http,
        engine,
        authenticator,
        database,
        reserved,
        metrics::registry()?,
    ));
    cleanup::start_background(&database_settings, args.cleanup_interval)?;

    let told_at = Arc::new(OnceLock::new());
    let (addresses, server) = server::start(&args.server(), &service, told_to_stop(Arc::clone(&told_at)))?;
    Ok(Running {
        addresses,
        server,
        workers,
        told_at,
    })
}

/// To confirm a payment that a crash can lose is worse than not to start.
fn insist_on_durability(args: &ServeArgs) -> Result<(), Fatal> {
    let mut connection = connect(&args.database.settings())?;
    let volatility = guarantees::volatility(&mut connection).map_err(|error| StorageError::before_commit(&error))?;
    match volatility {
        None => Ok(()),
        Some(why) if args.allow_unsafe_durability => {
            tracing::warn!("{why}; ALLOW_UNSAFE_DURABILITY is set");
            Ok(())
        }
        Some(why) => Err(format!("{why}, or set ALLOW_UNSAFE_DURABILITY=true where nothing is at stake").into()),
    }
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
            told_at,
        } = start(args)?;
        for address in addresses {
            tracing::info!(%address, "listening");
            println!("payonce listens on http://{address}, Swagger UI on http://{address}/swagger-ui/");
        }
        server.await?;
        // The handlers are done, and with them the last user of the engine: what is queued runs out.
        let stopping = told_at.get().map_or(Duration::ZERO, Instant::elapsed);
        let left = args.shutdown_timeout.saturating_sub(stopping).max(LAST_GRACE);
        if !workers.join(left) {
            return Err("stopped while PostgreSQL had commands and did not answer: what became of them is found under their keys".into());
        }
        tracing::info!("stopped");
        Ok(())
    })
}

/// SIGTERM or SIGINT; notes when. Left to itself, actix would drop the connections of requests that are under way on SIGINT.
async fn told_to_stop(told_at: Arc<OnceLock<Instant>>) {
    let (Ok(()), Ok(mut terminate), Ok(mut interrupt)) = (
        end_at_the_second_signal(),
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        // The signals then end the process, as they do by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    told_at.get_or_init(Instant::now);
}

/// It is the signal handler that ends the process, for there may be no thread left that does not hang.
fn end_at_the_second_signal() -> std::io::Result<()> {
    let told = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag down, and raises it.
        flag::register_conditional_default(signal, Arc::clone(&told))?;
        flag::register(signal, Arc::clone(&told))?;
    }
    Ok(())
}
