//! When the answer that a connection waits for is overdue.
//!
//! libpq blocks until PostgreSQL answers. A server that was stopped, a disk that hangs, or a proxy that swallows replies never
//! does, and TCP does not notice: the other side's kernel still acknowledges. PostgreSQL's own limits don't help either, for it is
//! PostgreSQL that keeps them; and none of them ends a commit that waits for its standby. So somebody else has to watch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diesel::connection::InstrumentationEvent;
use diesel::{Connection, PgConnection};

/// Shared by a connection and whoever watches it from another thread.
#[derive(Debug, Clone, Default)]
pub struct AnswerDue(Arc<Mutex<Option<Instant>>>);

impl AnswerDue {
    /// Should the answer have come by now? Never while nothing is asked.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        let due = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        due.is_some_and(|due| due < Instant::now())
    }

    /// Something is asked that has to be answered within `limit`.
    pub(super) fn within(&self, limit: Duration) {
        self.set(Some(Instant::now() + limit));
    }

    /// From now on each statement of this connection has to be answered within `limit`.
    pub(super) fn watch(&self, connection: &mut PgConnection, limit: Duration) {
        self.set(None);
        let due = self.clone();
        connection.set_instrumentation(move |event: InstrumentationEvent<'_>| match event {
            InstrumentationEvent::StartQuery { .. } => due.within(limit),
            _ => due.set(None),
        });
    }

    fn set(&self, due: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = due;
    }
}
