//! Where commands wait for a worker: bounded, and everybody is told how the attempt ended.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::transaction::{Answered, Failure, Slot, Step};
use crate::idempotency::{Request, Verdict};
use crate::storage::StorageError;

/// A command on its way through the engine.
pub(super) struct Job {
    /// What is asked, and the place for the answer.
    pub slot: Slot,
    /// Did an attempt with it fail before?
    pub suspect: bool,
    reply: Reply,
}

/// Where the outcome of an attempt goes. Of all clones the first that tells is heard.
#[derive(Clone)]
pub(super) struct Reply(Arc<Mutex<Option<Caller>>>);

type Caller = oneshot::Sender<Result<Answered, Failure>>;

/// Where commands wait.
pub(super) struct Queue {
    jobs: Sender<Job>,
    unanswered: Unanswered,
}

/// Why a command was not answered.
pub(super) enum QueueError {
    /// No room.
    Full,
    /// The workers are gone.
    Stopped,
    /// The attempt failed.
    Failed(Failure),
}

impl Queue {
    /// A queue for so many, and the end from which workers take.
    pub fn new(queue_max: usize) -> (Self, Receiver<Job>) {
        let (jobs, receiver) = crossbeam_channel::bounded(queue_max);
        let unanswered = Unanswered::default();
        (Self { jobs, unanswered }, receiver)
    }

    /// How many commands wait for a worker.
    pub fn length(&self) -> usize {
        self.jobs.len()
    }

    /// How long the command has waited that waits longest for the end of its attempt, in the queue or at a worker.
    pub fn longest_wait(&self) -> Duration {
        self.unanswered.longest_wait()
    }

    /// Has a command run and waits for the answer.
    pub async fn run(&self, request: Request, suspect: bool) -> Result<Answered, QueueError> {
        let _unanswered = self.unanswered.enter(request.id);
        let (caller, answer) = oneshot::channel();
        let job = Job {
            slot: Slot::new(request),
            suspect,
            reply: Reply(Arc::new(Mutex::new(Some(caller)))),
        };
        self.jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => QueueError::Full,
            TrySendError::Disconnected(_) => QueueError::Stopped,
        })?;
        answer
            .await
            .map_err(|_| QueueError::Stopped)?
            .map_err(QueueError::Failed)
    }
}

impl Job {
    /// To tell the outcome in case that the job itself does not come back.
    pub fn reply(&self) -> Reply {
        self.reply.clone()
    }

    /// Is the key past its tombstone, and only the clean-up has not come by yet?
    pub fn is_free(&self) -> bool {
        matches!(self.slot.answered, Some(Answered::Known(Verdict::Free)))
    }

    /// Tells how it ended.
    pub fn finish(self, outcome: Result<(), Failure>) {
        let unanswered = || Failure {
            step: Step::Execute,
            took: Duration::ZERO,
            error: StorageError::Broken("a command was committed without an answer".to_owned()),
        };
        self.reply
            .tell(outcome.and_then(|()| self.slot.answered.ok_or_else(unanswered)));
    }
}

impl Reply {
    /// Nobody may be waiting any more: the client hung up. That changes nothing.
    pub fn tell(&self, outcome: Result<Answered, Failure>) {
        let caller = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(caller.map(|caller| caller.send(outcome)));
    }
}

/// The commands whose attempt has not ended, by the time since when.
#[derive(Default)]
struct Unanswered(Mutex<BTreeSet<(Instant, Uuid)>>);

struct Entered<'a> {
    all: &'a Unanswered,
    one: (Instant, Uuid),
}

impl Unanswered {
    fn enter(&self, request: Uuid) -> Entered<'_> {
        let one = (Instant::now(), request);
        self.set().insert(one);
        Entered { all: self, one }
    }

    fn longest_wait(&self) -> Duration {
        self.set().first().map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    fn set(&self) -> std::sync::MutexGuard<'_, BTreeSet<(Instant, Uuid)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.all.set().remove(&self.one);
    }
}
