//! "Probably seen before", from Redis. A hint, never an answer.
//!
//! `SET key hash NX PX <window>` before queueing. If the key was already there, the request is probably a repeat, and one
//! read of PostgreSQL finds its response without the write path. A hint that is wrong, stale or left over from a crash
//! costs that one read and nothing else; without Redis every repeat takes the write path, and is answered just the same.
//!
//! A hung or broken Redis must not slow payments down: a reply is waited for a few milliseconds, and after
//! [`FAILURES_TO_OPEN`] failures in a row nobody asks for [`PAUSE`] (a circuit breaker). Then one request tries again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ExistenceCheck, SetExpiry, SetOptions};

use crate::idempotency::Request;

/// Failures in a row after which Redis is left alone for a while.
const FAILURES_TO_OPEN: u32 = 3;

/// For how long.
const PAUSE: Duration = Duration::from_secs(2);

/// How the hint is kept.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// `redis://host:port/db`.
    pub url: String,
    /// How long a reply may take: a few milliseconds, for every payment may wait as long.
    pub timeout: Duration,
    /// How long a key counts as hot.
    pub window: Duration,
}

/// Knows which keys were asked for lately; or believes to.
pub struct RedisHint {
    client: Client,
    settings: RedisSettings,
    breaker: Mutex<Breaker>,
}

/// One for all keys: nothing in it grows.
#[derive(Default)]
struct Breaker {
    connection: Option<MultiplexedConnection>,
    failures: u32,
    open_until: Option<Instant>,
}

impl RedisHint {
    /// Reads the address; connects only when first asked.
    ///
    /// # Errors
    /// If the address makes no sense.
    pub fn new(settings: RedisSettings) -> redis::RedisResult<Self> {
        let client = Client::open(settings.url.as_str())?;
        Ok(Self {
            client,
            settings,
            breaker: Mutex::default(),
        })
    }

    /// Was this key probably asked for before? Notes that it has been now. Whatever goes wrong, the answer is "no".
    pub async fn probably_seen(&self, request: &Request) -> bool {
        if self.is_open() {
            return false;
        }
        match tokio::time::timeout(self.settings.timeout, self.ask(request)).await {
            Ok(Ok(seen)) => {
                self.worked();
                metrics::counter!("payonce_redis_hints_total", "outcome" => if seen { "seen" } else { "new" })
                    .increment(1);
                seen
            }
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(_) => self.failed("no reply in time"),
        }
    }

    async fn ask(&self, request: &Request) -> redis::RedisResult<bool> {
        let mut connection = self.connect().await?;
        let milliseconds = u64::try_from(self.settings.window.as_millis()).unwrap_or(u64::MAX);
        let new: Option<String> = redis::AsyncCommands::set_options(
            &mut connection,
            format!("payonce:{}:{}", request.tenant, request.key),
            request.hash.to_string(),
            SetOptions::default()
                .conditional_set(ExistenceCheck::NX)
                .with_expiration(SetExpiry::PX(milliseconds)),
        )
        .await?;
        Ok(new.is_none())
    }

    /// The one connection, which all requests share. It is opened here and nowhere else: the client library may
    /// neither reconnect nor send anything a second time on its own.
    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        if let Some(connection) = self.breaker().connection.clone() {
            return Ok(connection);
        }
        let limits = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.timeout))
            .set_response_timeout(Some(self.settings.timeout));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&limits)
            .await?;
        self.breaker().connection = Some(connection.clone());
        Ok(connection)
    }

    /// Is Redis to be left alone? When the pause is over one request may try; for the others it goes on.
    fn is_open(&self) -> bool {
        let mut breaker = self.breaker();
        match breaker.open_until {
            Some(until) if Instant::now() < until => true,
            Some(_) => {
                breaker.open_until = Some(Instant::now() + PAUSE);
                false
            }
            None => false,
        }
    }

    fn worked(&self) {
        let mut breaker = self.breaker();
        if breaker.open_until.take().is_some() {
            tracing::info!("redis answers again: duplicates are filtered early again");
            metrics::gauge!("payonce_redis_circuit_open").set(0);
        }
        breaker.failures = 0;
    }

    fn failed(&self, reason: &str) -> bool {
        metrics::counter!("payonce_redis_hints_total", "outcome" => "failed").increment(1);
        let mut breaker = self.breaker();
        breaker.connection = None;
        breaker.failures = breaker.failures.saturating_add(1);
        if breaker.failures == FAILURES_TO_OPEN {
            tracing::warn!(
                reason,
                pause_seconds = PAUSE.as_secs(),
                "redis fails: going on without its hints"
            );
        }
        if breaker.failures >= FAILURES_TO_OPEN {
            breaker.open_until = Some(Instant::now() + PAUSE);
            metrics::gauge!("payonce_redis_circuit_open").set(1);
        }
        false
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
