//! Requests that are running in this process, by key. An equal one that arrives meanwhile takes no place in the queue and no
//! connection: it waits for the outcome of the one that runs.
//!
//! The table is bounded by what runs: who is in it waits in the queue, is in a worker's batch, or pauses for a moment before it needs a
//! place in the queue again. Who follows costs a connection of HTTP, and those are bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::outcome::{EngineError, Outcome};
use crate::idempotency::{Request, RequestHash};
use crate::storage::idempotency_keys::KeyId;

type Board = Arc<Mutex<HashMap<KeyId, Flight>>>;

/// All requests under way.
#[derive(Default)]
pub(super) struct Flights(Board);

/// A request under way, as seen by those who wait for it.
#[derive(Clone)]
pub(super) struct Flight {
    /// What it means.
    pub hash: RequestHash,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// Who runs it. If this is dropped before it landed (a panic, a shutdown), those who wait are told.
pub(super) struct Pilot {
    board: Board,
    key: KeyId,
    outcome: watch::Sender<Option<Outcome>>,
}

/// What became of an attempt to start.
pub(super) enum Boarding {
    /// Nobody else runs under this key.
    First(Flight, Pilot),
    /// Somebody has just started.
    Taken,
}

fn key_of(request: &Request) -> KeyId {
    (request.tenant, request.key.clone())
}

impl Flights {
    /// The request that runs under the same key.
    pub fn find(&self, request: &Request) -> Option<Flight> {
        let flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flights.get(&key_of(request)).cloned()
    }

    /// Starts, unless somebody runs under the same key already.
    pub fn board(&self, request: &Request) -> Boarding {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key_of(request);
        if flights.contains_key(&key) {
            return Boarding::Taken;
        }
        let (sender, receiver) = watch::channel(None);
        let flight = Flight {
            hash: request.hash,
            outcome: receiver,
        };
        flights.insert(key.clone(), flight.clone());
        Boarding::First(
            flight,
            Pilot {
                board: Arc::clone(&self.0),
                key,
                outcome: sender,
            },
        )
    }
}

impl Flight {
    /// The outcome, once there is one.
    pub async fn outcome(&self) -> Outcome {
        let mut receiver = self.outcome.clone();
        let landed = receiver.wait_for(Option::is_some).await;
        let outcome = landed.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err(EngineError::Unavailable("the request was given up".to_owned())))
    }
}

impl Pilot {
    /// Tells all who wait.
    pub fn land(self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.board
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}
