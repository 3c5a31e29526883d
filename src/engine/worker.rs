//! A few threads, each with a session of its own, that run what waits in the queue in batches.
//!
//! A batch is whatever waits: one command when the service is idle, up to `batch_max` under load. One command is the
//! N = 1 case of a batch, there is no other path. If a batch fails, its commands run one at a time, so that only the culprit
//! fails; when to try that one again is for [`Engine`](super::Engine) to say. A suspect (a command that failed before) never joins others.

use std::convert::Infallible;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::queue::{Job, Queue};
use super::session::{Attempt, Attempted, Session};
use super::transaction::Failure;
use crate::idempotency::Retention;
use crate::storage::DatabaseSettings;

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

/// The threads.
pub struct Workers {
    threads: Vec<JoinHandle<()>>,
    /// Closed when the last of them has ended.
    ended: Receiver<Infallible>,
}

impl Workers {
    /// Waits until the engine is dropped and all that is queued has run, but not longer than `limit`. `false`: something is still running.
    #[must_use]
    pub fn join(self, limit: Duration) -> bool {
        let ended = self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected);
        for thread in self.threads.into_iter().filter(JoinHandle::is_finished) {
            if thread.join().is_err() {
                tracing::error!("a worker of the engine panicked");
            }
        }
        ended
    }
}

pub(super) fn start(settings: &WorkerSettings) -> std::io::Result<(Queue, Workers)> {
    let (queue, jobs) = Queue::new(settings.queue_max);
    let (alive, ended) = crossbeam_channel::bounded(0);
    let threads = (0..settings.workers).map(|number| {
        let worker = Worker {
            batch_max: settings.batch_max,
            jobs: jobs.clone(),
            session: Session::start(settings.clone(), format!("session-{number}"))?,
            _alive: alive.clone(),
        };
        std::thread::Builder::new()
            .name(format!("engine-{number}"))
            .spawn(move || worker.run())
    });
    let threads = threads.collect::<Result<_, _>>()?;
    Ok((queue, Workers { threads, ended }))
}

struct Worker {
    batch_max: usize,
    jobs: Receiver<Job>,
    session: Session,
    _alive: Sender<Infallible>,
}

impl Worker {
    fn run(mut self) {
        while let Ok(first) = self.jobs.recv() {
            let mut suspects = Vec::new();
            let mut batch = Vec::with_capacity(self.batch_max);
            for job in std::iter::once(first).chain(self.jobs.try_iter().take(self.batch_max - 1)) {
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

    fn run_batch(&mut self, batch: Vec<Job>) {
        if batch.is_empty() {
            return;
        }
        metrics::histogram!("payonce_batch_size").record(u32::try_from(batch.len()).unwrap_or(u32::MAX));
        let Attempted { batch, outcome } = self.session.run(Attempt { batch, alone: false });
        match outcome {
            Ok(()) => {
                let (free, settled): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(Job::is_free);
                finish_all(settled, &Ok(()));
                self.run_alone(free);
            }
            Err(failure) if batch.len() <= 1 || failure.error.meets_everybody() => finish_all(batch, &Err(failure)),
            Err(failure) => {
                tracing::warn!(error = %failure.error, commands = batch.len(), "a batch failed: its commands run one at a time");
                self.run_alone(batch);
            }
        }
    }

    fn run_alone(&mut self, jobs: Vec<Job>) {
        let mut jobs = jobs.into_iter();
        while let Some(job) = jobs.next() {
            let batch = vec![job];
            let Attempted { batch, outcome } = self.session.run(Attempt { batch, alone: true });
            finish_all(batch, &outcome);
            if matches!(&outcome, Err(failure) if failure.error.meets_everybody()) {
                finish_all(jobs.by_ref(), &outcome);
            }
        }
    }
}

fn finish_all(jobs: impl IntoIterator<Item = Job>, outcome: &Result<(), Failure>) {
    for job in jobs {
        job.finish(outcome.clone());
    }
}
