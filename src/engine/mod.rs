//! The engine: every command goes through here, and through one [`transaction`].
//!
//! [`Engine::execute`] joins a request to an equal one that is already running ([`flights`]), answers a hot repeat with one read
//! if Redis hints at one, and hands everything else to the [`worker`]s, which run what waits in batches.
//! Which road a request takes changes how fast the answer comes, never what it is.

mod flights;
mod holder;
mod outcome;
mod persist;
mod queue;
mod session;
pub mod transaction;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use self::flights::{Boarding, Flight, Flights};
use self::holder::is_claimed_elsewhere;
use self::outcome::settle;
pub use self::outcome::{Answer, EngineError, Outcome};
use self::queue::{Queue, QueueError};
use self::session::ALONE_LOCK_TIMEOUT;
pub use self::session::SESSIONS_OF_A_WORKER;
use self::transaction::{Answered, Failure, Step};
pub use self::worker::{WorkerSettings, Workers};
use crate::idempotency::{Record, Request, Retention, judge};
use crate::redis_hint::RedisHint;
use crate::storage::{Database, StorageError, idempotency_keys};

/// How often a command that rolled back at once (a deadlock, a serialization failure, a lost connection) is run again.
const QUICK_RETRIES: u32 = 4;

/// The wait before the first of them; it doubles each time up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Also the rhythm in which a command that waits for somebody's lock looks again.
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// How long a command that gives up waits for its turn to find out why.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// How long callers wait.
#[derive(Debug, Clone, Copy)]
pub struct WaitSettings {
    /// For an equal request that is still running, here or on another instance (`IDEMPOTENCY_WAIT`).
    pub duplicate: Duration,
    /// For any answer (`ANSWER_TIMEOUT`). After it the outcome is unknown to the caller, who asks again under the same key.
    pub answer: Duration,
    /// For the end of one attempt, the time in the queue included. If that takes longer, the engine does not get on.
    pub attempt: Duration,
}

/// Runs commands, each at most once.
pub struct Engine {
    queue: Queue,
    flights: Flights,
    hint: Option<RedisHint>,
    database: Database,
    wait: WaitSettings,
    retention: Retention,
    /// One at a time: for a moment a look may wait on a connection that others need, and many commands can give up at once.
    looks: Arc<Semaphore>,
}

impl Engine {
    /// Starts the workers. They end when the engine is dropped and the queue is empty; [`Workers::join`] waits for that.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(
        settings: &WorkerSettings,
        wait: WaitSettings,
        database: Database,
        hint: Option<RedisHint>,
    ) -> std::io::Result<(Arc<Self>, Workers)> {
        let (queue, workers) = worker::start(settings)?;
        let engine = Self {
            queue,
            flights: Flights::default(),
            hint,
            database,
            wait,
            retention: settings.retention,
            looks: Arc::new(Semaphore::new(1)),
        };
        Ok((Arc::new(engine), workers))
    }

    /// Measures what can only be measured at the moment somebody asks for it.
    pub fn measure(&self) {
        let waiting = u32::try_from(self.queue.length()).unwrap_or(u32::MAX);
        metrics::gauge!("payonce_queue_length").set(waiting);
    }

    /// How long the oldest command has waited, if that is longer than any should: then the engine does not get on.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        Some(self.queue.longest_wait()).filter(|wait| *wait > self.wait.attempt)
    }

    /// Answers a request: executes it if it is the first under its key, replays the stored response if it is not.
    ///
    /// The caller may stop waiting at any time; a command that has started runs to its end all the same.
    ///
    /// # Errors
    /// An [`EngineError`]; asking again under the same key is always safe.
    pub async fn execute(self: &Arc<Self>, request: Request) -> Outcome {
        // One limit around all roads: each of them may meet a database that hangs.
        tokio::time::timeout(self.wait.answer, self.join_or_lead(request))
            .await
            .unwrap_or_else(|_| Err(unavailable("no answer in time; it may still be executed")))
    }

    async fn join_or_lead(self: &Arc<Self>, request: Request) -> Outcome {
        loop {
            if let Some(flight) = self.flights.find(&request) {
                match self.follow(flight, &request).await {
                    Some(outcome) => return outcome,
                    None => continue,
                }
            }
            if let Some(outcome) = self.look_up_if_hot(&request).await {
                return outcome;
            }
            if let Boarding::First(flight, pilot) = self.flights.board(&request) {
                let engine = Arc::clone(self);
                tokio::spawn(async move { pilot.land(engine.lead(request).await) });
                return flight.outcome().await;
            }
        }
    }

    /// Waits for an equal request that runs in this process. `None`: it did not settle this request's question.
    async fn follow(&self, flight: Flight, request: &Request) -> Option<Outcome> {
        match tokio::time::timeout(self.wait.duplicate, flight.outcome()).await {
            Err(_) => Some(Err(EngineError::InUse)),
            Ok(Ok(answer)) => {
                let record = Record::Live {
                    hash: flight.hash,
                    claimed_by: None,
                    response: answer.response,
                };
                settle(judge(record, request))
            }
            Ok(Err(EngineError::Reused)) if flight.hash != request.hash => None,
            Ok(Err(error)) => Some(Err(error)),
        }
    }

    /// If Redis believes to have seen the key, its response is looked up with one read. No luck: the request goes on as any other.
    async fn look_up_if_hot(&self, request: &Request) -> Option<Outcome> {
        if !self.hint.as_ref()?.probably_seen(request).await {
            return None;
        }
        let (database, wanted) = (self.database.clone(), request.clone());
        let read = move || database.read(|connection| idempotency_keys::find(connection, std::iter::once(&wanted)));
        let found = tokio::task::spawn_blocking(read).await.ok()?.ok()?;
        let record = found.into_values().next()?;
        settle(judge(record, request))
    }

    async fn give_up(&self, request: Request, failure: &Failure, waited_for_lock: bool) -> EngineError {
        let reason = match &failure.error {
            StorageError::RolledBack(_) if waited_for_lock => "lock",
            // A command that fails so at once, over and over, may be a bug that PostgreSQL found: `StorageError` says why it can't be told.
            StorageError::RolledBack(_) | StorageError::Broken(_) => "rolled_back",
            StorageError::OutcomeUnknown(_) => "connection_lost",
            StorageError::Unreachable(_) => "unreachable",
            StorageError::Unfit(_) => "unfit",
            StorageError::NoAnswer => "no_answer",
        };
        tracing::warn!(request_id = %request.id, reason, error = %failure.error, "gave up on a command");
        metrics::counter!("payonce_given_up_total", "reason" => reason).increment(1);
        let waited_for_claim = waited_for_lock && failure.step == Step::Claim;
        if waited_for_claim && self.is_in_use(request).await {
            return EngineError::InUse;
        }
        unavailable(told(&failure.error))
    }

    /// Has somebody else the key, and not only a lock that the claim waited for as well?
    async fn is_in_use(&self, request: Request) -> bool {
        let Ok(Ok(turn)) = tokio::time::timeout(LONGEST_LOOK, Arc::clone(&self.looks).acquire_owned()).await else {
            return false;
        };
        let (database, retention) = (self.database.clone(), self.retention);
        let look = move || {
            let found = database.read(|connection| Ok(is_claimed_elsewhere(connection, &request, retention)));
            drop(turn);
            found
        };
        matches!(tokio::task::spawn_blocking(look).await, Ok(Ok(true)))
    }

    /// Has a command run until it is answered, or can't be.
    async fn lead(&self, request: Request) -> Outcome {
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut quick_retries = 0;
        let mut suspect = false;
        loop {
            let failure = match self.queue.run(request.clone(), suspect).await {
                Ok(Answered::First(response)) => {
                    return Ok(Answer {
                        response,
                        replayed: false,
                    });
                }
                Ok(Answered::Known(verdict)) => {
                    return settle(verdict).unwrap_or_else(|| Err(unavailable("the key is being forgotten just now")));
                }
                // "Overloaded" promises that nothing was executed. After a failed attempt that is not certain.
                Err(QueueError::Full) if suspect => return Err(unavailable("too much work is waiting to try again")),
                Err(QueueError::Full) => return Err(EngineError::Overloaded),
                Err(QueueError::Stopped) => return Err(unavailable("the service is stopping")),
                Err(QueueError::Failed(failure)) => failure,
            };
            let waited_for_lock = failure.waited_for_lock(ALONE_LOCK_TIMEOUT);
            let again = match &failure.error {
                StorageError::Broken(bug) => {
                    tracing::error!(request_id = %request.id, %bug, "rolled back because of a bug");
                    metrics::counter!("payonce_broken_total").increment(1);
                    return Err(EngineError::Broken);
                }
                StorageError::Unreachable(_) | StorageError::Unfit(_) | StorageError::NoAnswer => false,
                _ if waited_for_lock => started.elapsed() < self.wait.duplicate,
                _ => quick_retries < QUICK_RETRIES,
            };
            if !again {
                return Err(self.give_up(request, &failure, waited_for_lock).await);
            }
            metrics::counter!("payonce_retries_total").increment(1);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            quick_retries += u32::from(!waited_for_lock);
            suspect = true;
        }
    }
}

/// What a caller is told of the database error that the last attempt met. Its own words, which may name hosts and users, are
/// for the log. That this attempt did nothing is no reason to say that nothing was executed: an earlier one may have committed.
fn told(error: &StorageError) -> &'static str {
    match error {
        StorageError::Unreachable(_) => "the database is out of reach",
        StorageError::Unfit(_) => "the database is not set up as this service needs it",
        StorageError::OutcomeUnknown(_) => "the connection to the database was lost during the commit",
        StorageError::NoAnswer => "the database does not answer; what becomes of the attempt is unknown",
        StorageError::RolledBack(_) | StorageError::Broken(_) => "the last attempt was rolled back",
    }
}

fn unavailable(reason: &str) -> EngineError {
    EngineError::Unavailable(reason.to_owned())
}

impl Failure {
    /// Did it fail because somebody else held a lock all the time it was prepared to wait?
    fn waited_for_lock(&self, patience: Duration) -> bool {
        matches!(self.error, StorageError::RolledBack(_)) && self.took >= patience
    }
}
