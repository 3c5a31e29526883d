//! What anybody may ask the database, with an API key that nobody knows or with none: whose key is this, and, do you answer? Each
//! question has one connection at most, so whoever floods it leaves the others to those who are known.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::service::read;
use crate::api::{Code, Problem};
use crate::storage::{Database, guarantees};

/// Lets one ask, in the order of arrival. Who waits costs a connection of HTTP, and those are bounded.
pub(super) struct OneAtATime(Arc<Semaphore>);

/// It is its holder's turn until this is dropped: that is for the work on the connection to do, which goes on when the caller has
/// hung up.
pub(super) type Turn = OwnedSemaphorePermit;

impl Default for OneAtATime {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl OneAtATime {
    /// Waits for its turn.
    pub async fn turn(&self, timeout: Duration) -> Result<Turn, Problem> {
        let turn = tokio::time::timeout(timeout, Arc::clone(&self.0).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            Problem::new(
                Code::Unavailable,
                "too many unknown callers are waiting for an answer of the database",
            )
        })
    }
}

/// Does the database answer, and keep what it confirms? One question is enough for all who were waiting when it was asked.
pub(super) struct Readiness {
    turns: OneAtATime,
    /// When it was asked last, and what came of it.
    last: Mutex<Option<(Instant, Result<(), Problem>)>>,
    allow_unsafe_durability: bool,
}

impl Readiness {
    pub fn new(allow_unsafe_durability: bool) -> Self {
        Self {
            turns: OneAtATime::default(),
            last: Mutex::default(),
            allow_unsafe_durability,
        }
    }

    /// Asks, or has the answer of a question that was asked since.
    pub async fn check(&self, database: &Database, timeout: Duration) -> Result<(), Problem> {
        let came = Instant::now();
        let turn = self.turns.turn(timeout).await?;
        if let Some((asked, outcome)) = &*self.last.lock().unwrap_or_else(PoisonError::into_inner)
            && *asked >= came
        {
            return outcome.clone();
        }
        let asked = Instant::now();
        let volatility = read(database, timeout.saturating_sub(came.elapsed()), move |connection| {
            let volatility = guarantees::volatility(connection);
            drop(turn);
            volatility
        })
        .await;
        let outcome = volatility.and_then(|volatility| match volatility {
            Some(why) if !self.allow_unsafe_durability => Err(Problem::new(Code::Unavailable, why)),
            _ => Ok(()),
        });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, outcome.clone()));
        outcome
    }
}
