//! A connection on a thread of its own, which can be given up.
//!
//! libpq blocks until PostgreSQL answers, and nothing in this process can interrupt it. So a worker does not talk to PostgreSQL
//! itself: it hands a batch to this thread and waits for it to come back. If an answer is overdue, the worker gives the thread up,
//! with its connection and its batch, and goes on with another.
//!
//! A thread that was given up can't answer anybody: only the worker can, and it has told all callers already that the outcome is unknown.
//! Whatever the thread may still commit is under its keys, where a retry finds it. When it comes back at last, it finds nobody,
//! closes its connection and ends.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Select, Sender, TryRecvError};
use diesel::PgConnection;
use diesel::r2d2::R2D2Connection;

use super::queue::Job;
use super::transaction::{self, Failure, Step};
use super::worker::WorkerSettings;
use crate::storage::connection::{connect_watched, set_lock_timeout};
use crate::storage::{AnswerDue, DatabaseSettings, StorageError, idempotency_keys};

/// How long a command that runs alone because something is wrong waits for a lock. Short: it keeps a whole worker waiting,
/// and comes again anyway.
pub(super) const ALONE_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Most threads, and connections, that a worker has, those that it gave up included: with that many it waits for one of them to come
/// back. A server that answers nobody would get more and more of them, each perhaps with locks.
pub const SESSIONS_OF_A_WORKER: usize = 4;

/// How often a worker looks whether an answer is overdue.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A batch to be run.
pub(super) struct Attempt {
    /// Its commands.
    pub batch: Vec<Job>,
    /// Does it have little patience, since it is one command with which something is wrong?
    pub alone: bool,
}

/// A batch that was run.
pub(super) struct Attempted {
    /// Its commands; none if the thread was given up: then they are answered.
    pub batch: Vec<Job>,
    /// How it ended.
    pub outcome: Result<(), Failure>,
}

/// What a worker has of it.
pub(super) struct Session {
    settings: WorkerSettings,
    name: String,
    thread: Option<Thread>,
    given_up: Vec<Receiver<Attempted>>,
}

struct Thread {
    attempts: Sender<Attempt>,
    done: Receiver<Attempted>,
    due: AnswerDue,
}

impl Session {
    /// Starts the thread; it connects when there is something to do.
    pub fn start(settings: WorkerSettings, name: String) -> std::io::Result<Self> {
        let mut session = Self {
            settings,
            name,
            thread: None,
            given_up: Vec::new(),
        };
        session.thread = Some(session.start_thread()?);
        Ok(session)
    }

    /// Has a batch run.
    pub fn run(&mut self, attempt: Attempt) -> Attempted {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => match self.replace() {
                Ok(thread) => thread,
                Err(error) => {
                    let outcome = Err(Failure::before_claim(StorageError::Unreachable(error.to_string())));
                    let batch = attempt.batch;
                    return Attempted { batch, outcome };
                }
            },
        };
        let replies: Vec<_> = attempt.batch.iter().map(Job::reply).collect();
        if let Some(attempted) = thread.run(attempt) {
            self.thread = Some(thread);
            return attempted;
        }
        self.given_up.push(thread.done);
        metrics::counter!("payonce_sessions_given_up_total").increment(1);
        let failure = Failure::unanswered();
        tracing::error!(session = self.name, commands = replies.len(), error = %failure.error, "gave up a session");
        for reply in replies {
            reply.tell(Err(failure.clone()));
        }
        Attempted {
            batch: Vec::new(),
            outcome: Err(failure),
        }
    }

    /// Another thread, as soon as there may be one.
    fn replace(&mut self) -> std::io::Result<Thread> {
        self.given_up
            .retain(|done| matches!(done.try_recv(), Err(TryRecvError::Empty)));
        if self.given_up.len() + 1 >= SESSIONS_OF_A_WORKER {
            let mut any = Select::new();
            for done in &self.given_up {
                any.recv(done);
            }
            let back = any.ready();
            self.given_up.swap_remove(back);
        }
        self.start_thread()
    }

    fn start_thread(&self) -> std::io::Result<Thread> {
        let (attempts, orders) = crossbeam_channel::bounded(1);
        let (done, results) = crossbeam_channel::bounded(1);
        let due = AnswerDue::default();
        let inside = Inside {
            settings: self.settings.clone(),
            due: due.clone(),
            connection: None,
            lock_timeout: self.settings.database.lock_timeout,
        };
        std::thread::Builder::new()
            .name(self.name.clone())
            .spawn(move || inside.serve(&orders, &done))?;
        Ok(Thread {
            attempts,
            done: results,
            due,
        })
    }
}

impl Thread {
    /// `None`: no answer in time, or the thread is gone. Either way the batch is beyond reach.
    fn run(&self, attempt: Attempt) -> Option<Attempted> {
        self.attempts.send(attempt).ok()?;
        loop {
            match self.done.recv_timeout(LOOK_EVERY) {
                Ok(attempted) => return Some(attempted),
                Err(RecvTimeoutError::Timeout) if !self.due.is_overdue() => {}
                Err(_) => return None,
            }
        }
    }
}

/// What is on the thread.
struct Inside {
    settings: WorkerSettings,
    due: AnswerDue,
    connection: Option<PgConnection>,
    /// What the session is set to.
    lock_timeout: Duration,
}

impl Inside {
    /// Until the worker is gone, or has given this up.
    fn serve(mut self, attempts: &Receiver<Attempt>, done: &Sender<Attempted>) {
        for Attempt { mut batch, alone } in attempts {
            let outcome = self.attempt(&mut batch, alone);
            if done.send(Attempted { batch, outcome }).is_err() {
                return;
            }
        }
    }

    fn attempt(&mut self, batch: &mut [Job], alone: bool) -> Result<(), Failure> {
        let patience = if alone {
            ALONE_LOCK_TIMEOUT
        } else {
            self.settings.database.lock_timeout
        };
        self.set_patience(patience);
        self.run(batch)?;
        match batch {
            [job] if alone && job.is_free() => self.forget_and_run(job),
            _ => Ok(()),
        }
    }

    fn run(&mut self, batch: &mut [Job]) -> Result<(), Failure> {
        let connection = match self.connection.take() {
            Some(connection) => self.connection.insert(connection),
            None => self.connection.insert(self.connect()?),
        };
        let slots = batch.iter_mut().map(|job| &mut job.slot).collect();
        let outcome = transaction::run(connection, slots, self.settings.retention);
        let lost = outcome.is_err() && (connection.is_broken() || connection.ping().is_err());
        let elsewhere = matches!(&outcome, Err(failure) if matches!(failure.error, StorageError::Unreachable(_)));
        if lost || elsewhere {
            self.connection = None;
        }
        outcome
    }

    /// The key is past its tombstone, only the clean-up has not come by yet: deletes it and runs the command as the first.
    fn forget_and_run(&mut self, job: &mut Job) -> Result<(), Failure> {
        let request = &job.slot.request;
        if let Some(connection) = &mut self.connection {
            idempotency_keys::forget_key(connection, request.tenant, &request.key)
                .map_err(|error| Failure::before_claim(StorageError::before_commit(&error)))?;
        }
        self.run(std::slice::from_mut(job))
    }

    fn connect(&self) -> Result<PgConnection, Failure> {
        let settings = DatabaseSettings {
            lock_timeout: self.lock_timeout,
            ..self.settings.database.clone()
        };
        connect_watched(&settings, &self.due).map_err(Failure::before_claim)
    }

    /// A connection that can't be told is a lost one; the next attempt opens another.
    fn set_patience(&mut self, patience: Duration) {
        let changed = std::mem::replace(&mut self.lock_timeout, patience) != patience;
        if changed
            && let Some(connection) = &mut self.connection
            && set_lock_timeout(connection, patience).is_err()
        {
            self.connection = None;
        }
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

    fn unanswered() -> Self {
        Self {
            step: Step::Commit,
            took: Duration::ZERO,
            error: StorageError::NoAnswer,
        }
    }
}
