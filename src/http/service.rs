//! What all handlers share.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use diesel::{PgConnection, QueryResult};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use metrics_exporter_prometheus::PrometheusHandle;

use super::Authenticator;
use super::anybody::Readiness;
use super::turns::Turns;
use crate::api::{Code, Problem};
use crate::domain::TenantId;
use crate::engine::Engine;
use crate::storage::{Database, StorageError};

/// How the HTTP side behaves.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Longest wait for an answer.
    pub answer_timeout: Duration,
    /// How many reads of one tenant may run at once.
    pub reads_per_tenant: usize,
    /// Requests a second that one tenant may make; `None`: any number.
    pub rate_limit: Option<NonZeroU32>,
    /// Serve although a crash of PostgreSQL's machine can lose what was confirmed?
    pub allow_unsafe_durability: bool,
}

/// What all handlers share.
pub struct Service {
    /// Where writes go.
    pub engine: Arc<Engine>,
    /// Who may call.
    pub authenticator: Arc<Authenticator>,
    /// What /metrics shows.
    pub metrics: PrometheusHandle,
    /// For what tenants read.
    database: Database,
    /// For what must not wait behind it.
    reserved: Database,
    readiness: Readiness,
    turns: Turns,
    answer_timeout: Duration,
    /// An entry, of some dozen bytes, for each tenant that came: only an operator makes tenants.
    limiter: Option<DefaultKeyedRateLimiter<TenantId>>,
}

impl Service {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        settings: &HttpSettings,
        engine: Arc<Engine>,
        authenticator: Arc<Authenticator>,
        database: Database,
        reserved: Database,
        metrics: PrometheusHandle,
    ) -> Self {
        let limiter = settings
            .rate_limit
            .map(|rate| RateLimiter::keyed(Quota::per_second(rate)));
        Self {
            engine,
            authenticator,
            metrics,
            database,
            reserved,
            readiness: Readiness::new(settings.allow_unsafe_durability),
            turns: Turns::new(settings.reads_per_tenant),
            answer_timeout: settings.answer_timeout,
            limiter,
        }
    }

    /// Runs a read of the tenant on the pool, off the async threads, when it is the tenant's turn.
    ///
    /// # Errors
    /// `rate_limited`, `unavailable` or `internal_error`.
    pub async fn read<T: Send + 'static>(
        &self,
        tenant: TenantId,
        work: impl FnOnce(&mut PgConnection) -> QueryResult<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = self.turns.wait_for(tenant).await.ok_or_else(|| {
            Problem::new(
                Code::RateLimited,
                "the tenant has too many reads under way; this one did not get its turn in time",
            )
        })?;
        // The turn ends with the work, which goes on when the caller has hung up.
        let in_turn = move |connection: &mut PgConnection| {
            let found = work(connection);
            drop(turn);
            found
        };
        read(&self.database, self.answer_timeout, in_turn).await
    }

    /// Does the database answer, and keep what it confirms?
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn ready(&self) -> Result<(), Problem> {
        self.readiness.check(&self.reserved, self.answer_timeout).await
    }

    /// Counts a request of the tenant.
    ///
    /// # Errors
    /// `rate_limited`.
    pub fn admit(&self, tenant: TenantId) -> Result<(), Problem> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.check_key(&tenant).map_err(|too_early| {
            let wait = too_early.wait_time_from(DefaultClock::default().now());
            let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
            Problem::new(
                Code::RateLimited,
                "the tenant has made too many requests in this second",
            )
            .with_retry_after(seconds)
        })
    }
}

/// Runs a read on the pool, off the async threads; the one place that turns its errors into problems.
pub(super) async fn read<T: Send + 'static>(
    database: &Database,
    timeout: Duration,
    work: impl FnOnce(&mut PgConnection) -> QueryResult<T> + Send + 'static,
) -> Result<T, Problem> {
    let database = database.clone();
    let reading = actix_web::web::block(move || database.read(work));
    let unavailable = |reason: &str| {
        tracing::warn!(reason, "a read failed");
        Problem::new(Code::Unavailable, "the database can't be read just now")
    };
    match tokio::time::timeout(timeout, reading).await {
        Ok(Ok(Ok(value))) => Ok(value),
        Ok(Ok(Err(StorageError::Broken(bug)))) => {
            tracing::error!(%bug, "a read failed because of a bug");
            Err(Problem::new(
                Code::InternalError,
                "the stored data could not be understood",
            ))
        }
        Ok(Ok(Err(error))) => Err(unavailable(&error.to_string())),
        Ok(Err(error)) => Err(unavailable(&error.to_string())),
        Err(_) => Err(unavailable("no answer in time")),
    }
}
