//! Every setting: its name, default, unit and allowed range. They come from the environment or from flags of the same name;
//! a wrong one stops the start with a sentence that names it.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;

use crate::engine::{SESSIONS_OF_A_WORKER, WaitSettings, WorkerSettings};
use crate::http::HttpSettings;
use crate::http::server::ServerSettings;
use crate::idempotency::Retention;
use crate::redis_hint::RedisSettings;
use crate::storage::DatabaseSettings;
use crate::storage::connection::RESERVED_CONNECTIONS;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// Where PostgreSQL is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// PostgreSQL: postgres://user:password@host:port/database
    #[arg(long, env, hide_env_values = true)]
    pub database_url: String,
    /// Longest wait for a lock in a batch: 10ms to 10s
    #[arg(long, env, default_value = "500ms", value_parser = |text: &str| duration(text, Duration::from_millis(10), Duration::from_secs(10)))]
    pub lock_timeout: Duration,
    /// Longest run of a statement: 100ms to 60s
    #[arg(long, env, default_value = "5s", value_parser = |text: &str| duration(text, Duration::from_millis(100), Duration::from_secs(60)))]
    pub statement_timeout: Duration,
    /// How long a session that went silent inside a transaction keeps its locks: 100ms to 60s
    #[arg(long, env, default_value = "2s", value_parser = |text: &str| duration(text, Duration::from_millis(100), Duration::from_secs(60)))]
    pub idle_in_transaction_timeout: Duration,
    /// Connections for what tenants read, half of them for one tenant: 1 to 100
    #[arg(long, env, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub read_pool_size: u32,
    /// Longest run of a statement of a read: 100ms to 60s
    #[arg(long, env, default_value = "2s", value_parser = |text: &str| duration(text, Duration::from_millis(100), Duration::from_secs(60)))]
    pub read_timeout: Duration,
}

/// How the service runs.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// PostgreSQL.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// How long keys are remembered.
    #[command(flatten)]
    pub retention: RetentionArgs,
    /// Address to listen on; port 0 takes a free one and prints it
    #[arg(long, env, default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Redis: redis://host:port; unset: no hints
    #[arg(long, env, hide_env_values = true)]
    pub redis_url: Option<String>,
    /// Longest wait for Redis: 1ms to 100ms
    #[arg(long, env, default_value = "10ms", value_parser = |text: &str| duration(text, Duration::from_millis(1), Duration::from_millis(100)))]
    pub redis_timeout: Duration,
    /// How long a key counts as hot in Redis: 1s to 1h
    #[arg(long, env, default_value = "60s", value_parser = |text: &str| duration(text, Duration::from_secs(1), Duration::from_secs(HOUR)))]
    pub redis_window: Duration,
    /// Longest wait for an equal request that is still running: 100ms to 60s
    #[arg(long, env, default_value = "5s", value_parser = |text: &str| duration(text, Duration::from_millis(100), Duration::from_secs(60)))]
    pub idempotency_wait: Duration,
    /// Longest wait for any answer: 100ms to 120s
    #[arg(long, env, default_value = "8s", value_parser = |text: &str| duration(text, Duration::from_millis(100), Duration::from_secs(120)))]
    pub answer_timeout: Duration,
    /// Threads that run commands, each with a connection: 1 to 64
    #[arg(long, env, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub engine_workers: u32,
    /// Most commands in one transaction: 1 to 1000
    #[arg(long, env, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub batch_max: u32,
    /// Most commands waiting; one more is answered 503: 1 to 100000
    #[arg(long, env, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub queue_max: u32,
    /// Requests a second that one tenant may make; unset: any number
    #[arg(long, env)]
    pub rate_limit: Option<NonZeroU32>,
    /// Threads that talk HTTP: 1 to 64
    #[arg(long, env, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub http_workers: u32,
    /// Most connections of clients: 16 to 1000000; unset: 4096, or fewer if the limit of open files is low
    #[arg(long, env, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub max_connections: Option<u32>,
    /// Serve although `fsync` or `full_page_writes` is off in PostgreSQL, so that a crash can lose what was confirmed
    #[arg(long, env)]
    pub allow_unsafe_durability: bool,
    /// How often expired keys are cleaned up: 1s to 1d; 0 for never
    #[arg(long, env, default_value = "60s", value_parser = |text: &str| duration_or_zero(text, Duration::from_secs(1), Duration::from_secs(DAY)))]
    pub cleanup_interval: Duration,
    /// How long a stop waits for requests that are under way: 1s to 10m; 0: not at all
    #[arg(long, env, default_value = "30s", value_parser = |text: &str| duration_or_zero(text, Duration::from_secs(1), Duration::from_secs(600)))]
    pub shutdown_timeout: Duration,
}

/// How long keys are remembered.
#[derive(Debug, Clone, Copy, Args)]
pub struct RetentionArgs {
    /// How long a response is replayed: 1h to 30d
    #[arg(long, env, default_value = "24h", value_parser = |text: &str| duration(text, Duration::from_secs(HOUR), Duration::from_secs(30 * DAY)))]
    pub idempotency_ttl: Duration,
    /// How long the key answers 410 after that: 1h to 3650d; 0: the key is free again at once
    #[arg(long, env, default_value = "90d", value_parser = |text: &str| duration_or_zero(text, Duration::from_secs(HOUR), Duration::from_secs(3650 * DAY)))]
    pub idempotency_tombstone_ttl: Duration,
}

impl DatabaseArgs {
    /// The settings of the storage layer.
    #[must_use]
    pub fn settings(&self) -> DatabaseSettings {
        DatabaseSettings {
            url: self.database_url.clone(),
            connect_timeout: Duration::from_secs(3),
            statement_timeout: self.statement_timeout,
            lock_timeout: self.lock_timeout,
            idle_in_transaction_timeout: self.idle_in_transaction_timeout,
            read_pool_size: self.read_pool_size,
            read_timeout: self.read_timeout,
            pool_timeout: Duration::from_secs(1),
        }
    }
}

impl ServeArgs {
    /// The settings of the engine's workers.
    #[must_use]
    pub fn workers(&self) -> WorkerSettings {
        WorkerSettings {
            database: self.database.settings(),
            retention: Retention {
                response: self.retention.idempotency_ttl,
                tombstone: self.retention.idempotency_tombstone_ttl,
            },
            workers: count(self.engine_workers),
            batch_max: count(self.batch_max),
            queue_max: count(self.queue_max),
        }
    }

    /// How long callers wait.
    #[must_use]
    pub fn wait(&self) -> WaitSettings {
        WaitSettings {
            duplicate: self.idempotency_wait,
            answer: self.answer_timeout,
            attempt: self.answer_timeout.min(self.database.statement_timeout),
        }
    }

    /// The settings of the HTTP side.
    #[must_use]
    pub fn http(&self) -> HttpSettings {
        HttpSettings {
            answer_timeout: self.answer_timeout,
            // Some are left for others, whatever one tenant reads.
            reads_per_tenant: count(self.database.read_pool_size.div_ceil(2)),
            rate_limit: self.rate_limit,
            allow_unsafe_durability: self.allow_unsafe_durability,
        }
    }

    /// The settings of the server.
    #[must_use]
    pub fn server(&self) -> ServerSettings {
        ServerSettings {
            listen: self.listen.clone(),
            workers: count(self.http_workers),
            max_connections: self.max_connections.map(count),
            // One more listens for revoked API keys, one announces itself, one cleans up.
            database_connections: count(self.engine_workers) * SESSIONS_OF_A_WORKER
                + count(self.database.read_pool_size + RESERVED_CONNECTIONS)
                + 3,
            shutdown_timeout: self.shutdown_timeout,
        }
    }

    /// The settings of the Redis hint, if there is one.
    #[must_use]
    pub fn redis(&self) -> Option<RedisSettings> {
        let url = self.redis_url.clone().filter(|url| !url.is_empty())?;
        Some(RedisSettings {
            url,
            timeout: self.redis_timeout,
            window: self.redis_window,
        })
    }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Reads `500ms`, `5s`, `10m`, `24h`, `90d`.
fn read_duration(text: &str) -> Option<Duration> {
    let unit = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(HOUR)?)),
        "d" => Some(Duration::from_secs(number.checked_mul(DAY)?)),
        _ => None,
    }
}

fn duration(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let duration = read_duration(text).ok_or("must be a whole number with a unit: 500ms, 5s, 10m, 24h, 90d")?;
    if (least..=most).contains(&duration) {
        return Ok(duration);
    }
    Err(format!("must be between {least:?} and {most:?}"))
}

fn duration_or_zero(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        other => duration(other, least, most).map_err(|error| format!("{error}, or 0")),
    }
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
