//! A few threads, each with a connection of its own, that run what waits in the queue in batches.
//!
//! A batch is whatever waits: one command when the service is idle, up to `batch_max` under load. One command is the
//! N = 1 case of a batch, there is no other path. If a batch fails, its commands run one at a time, so that only the culprit
//! fails; when to try that one again is for [`Engine`](super::Engine) to say. A suspect (a command that failed before) never joins others.

use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use diesel::PgConnection;
use diesel::r2d2::R2D2Connection;
use tokio::sync::oneshot;

use super::transaction::{self, Answered, Failure, Slot, Step};
use crate::idempotency::{Request, Retention, Verdict};
use crate::storage::connection::set_lock_timeout;
use crate::storage::{DatabaseSettings, StorageError, connect, idempotency_keys};

/// How long a command that runs alone because something is wrong waits for a lock. Short: it keeps a whole worker waiting,
/// and comes again anyway.
pub(super) const ALONE_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// How the engine runs.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The workers' connections.
    pub database: DatabaseSettings,
    /// How long keys are remembered.
    pub retention: Retention,
    /// Number of threads. More than cores is slower.
    pub workers: usize,
    /// Most commands in one transaction.
    pub batch_max: usize,
    /// Most commands waiting; one more is refused at once.
    pub queue_max: usize,
}

struct Job {
    slot: Slot,
    suspect: bool,
    reply: oneshot::Sender<Result<Answered, Failure>>,
}

/// Where commands wait.
pub(super) struct Queue(Sender<Job>);

/// Why a command was not answered.
pub(super) enum QueueError {
    /// No room.
    Full,
    /// The workers are gone.
    Stopped,
    /// It was rolled back.
    Failed(Failure),
}

impl Queue {
    /// How many commands wait for a worker.
    pub fn length(&self) -> usize {
        self.0.len()
    }

    /// Has a command run and waits for the answer.
    pub async fn run(&self, request: Request, suspect: bool) -> Result<Answered, QueueError> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            slot: Slot::new(request),
            suspect,
            reply,
        };
        self.0.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => QueueError::Full,
            TrySendError::Disconnected(_) => QueueError::Stopped,
        })?;
        answer
            .await
            .map_err(|_| QueueError::Stopped)?
            .map_err(QueueError::Failed)
    }
}

/// The threads.
pub struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    /// Waits until the engine is dropped and all that is queued has run.
    pub fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a worker of the engine panicked");
            }
        }
    }
}

pub(super) fn start(settings: &WorkerSettings) -> std::io::Result<(Queue, Workers)> {
    let (sender, receiver) = crossbeam_channel::bounded(settings.queue_max);
    let threads = (0..settings.workers).map(|number| {
        let worker = Worker {
            settings: settings.clone(),
            jobs: receiver.clone(),
            connection: None,
        };
        std::thread::Builder::new()
            .name(format!("engine-{number}"))
            .spawn(move || worker.run())
    });
    Ok((Queue(sender), Workers(threads.collect::<Result<_, _>>()?)))
}

struct Worker {
    settings: WorkerSettings,
    jobs: Receiver<Job>,
    connection: Option<PgConnection>,
}

impl Worker {
    fn run(mut self) {
        while let Ok(first) = self.jobs.recv() {
            let mut suspects = Vec::new();
            let mut batch = Vec::with_capacity(self.settings.batch_max);
            for job in std::iter::once(first).chain(self.jobs.try_iter().take(self.settings.batch_max - 1)) {
                if job.suspect {
                    suspects.push(job);
                } else {
                    batch.push(job);
                }
            }
            self.run_batch(batch);
            self.run_alone(suspects);
        }
    }

    fn run_batch(&mut self, mut batch: Vec<Job>) {
        if batch.is_empty() {
            return;
        }
        metrics::histogram!("payonce_batch_size").record(u32::try_from(batch.len()).unwrap_or(u32::MAX));
        match self.attempt(&mut batch) {
            Ok(()) => {
                let (free, settled): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(|job| job.slot.is_free());
                for job in settled {
                    job.finish(Ok(()));
                }
                self.run_alone(free);
            }
            Err(failure) if batch.len() == 1 || matches!(failure.error, StorageError::Unreachable(_)) => {
                for job in batch {
                    job.finish(Err(failure.clone()));
                }
            }
            Err(failure) => {
                tracing::warn!(error = %failure.error, commands = batch.len(), "a batch failed: its commands run one at a time");
                self.run_alone(batch);
            }
        }
    }

    fn run_alone(&mut self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        self.set_patience(ALONE_LOCK_TIMEOUT);
        for job in jobs {
            let mut alone = [job];
            let mut outcome = self.attempt(&mut alone);
            if outcome.is_ok() && alone.iter().any(|job| job.slot.is_free()) {
                outcome = self.forget_and_attempt(&mut alone);
            }
            let [job] = alone;
            job.finish(outcome);
        }
        self.set_patience(self.settings.database.lock_timeout);
    }

    /// The key is past its tombstone, only the clean-up has not come by yet: deletes it and runs the command as the first.
    fn forget_and_attempt(&mut self, alone: &mut [Job; 1]) -> Result<(), Failure> {
        let [
            Job {
                slot: Slot { request, .. },
                ..
            },
        ] = &*alone;
        if let Some(connection) = &mut self.connection {
            idempotency_keys::forget_key(connection, request.tenant, &request.key)
                .map_err(|error| Failure::before_claim(StorageError::before_commit(&error)))?;
        }
        self.attempt(alone)
    }

    fn attempt(&mut self, batch: &mut [Job]) -> Result<(), Failure> {
        let connection = match self.connection.take() {
            Some(connection) => self.connection.insert(connection),
            None => self
                .connection
                .insert(connect(&self.settings.database).map_err(Failure::before_claim)?),
        };
        let slots = batch.iter_mut().map(|job| &mut job.slot).collect();
        let outcome = transaction::run(connection, slots, self.settings.retention);
        let lost = outcome.is_err() && (connection.is_broken() || connection.ping().is_err());
        if lost
            || matches!(
                &outcome,
                Err(Failure {
                    error: StorageError::Unreachable(_),
                    ..
                })
            )
        {
            self.connection = None;
        }
        outcome
    }

    /// A connection that can't be told is a lost one; the next attempt opens another.
    fn set_patience(&mut self, patience: Duration) {
        if let Some(connection) = &mut self.connection
            && set_lock_timeout(connection, patience).is_err()
        {
            self.connection = None;
        }
    }
}

impl Job {
    /// Nobody may be waiting any more: the client hung up. That changes nothing.
    fn finish(self, outcome: Result<(), Failure>) {
        let unanswered = || Failure {
            step: Step::Execute,
            took: Duration::ZERO,
            error: StorageError::Broken("a command was committed without an answer".to_owned()),
        };
        let reply = outcome.and_then(|()| self.slot.answered.ok_or_else(unanswered));
        drop(self.reply.send(reply));
    }
}

impl Slot {
    fn is_free(&self) -> bool {
        matches!(self.answered, Some(Answered::Known(Verdict::Free)))
    }
}

impl Failure {
    fn before_claim(error: StorageError) -> Self {
        Self {
            step: Step::Begin,
            took: Duration::ZERO,
            error,
        }
    }

    /// Did it fail because somebody else held a lock all the time it was prepared to wait?
    pub(super) fn waited_for_lock(&self, patience: Duration) -> bool {
        matches!(self.error, StorageError::RolledBack(_)) && self.took >= patience
    }
}
