//! What a database error means: the one reader of Diesel's errors.
//!
//! Diesel tells lock time-outs, deadlocks and cancelled statements apart only by the server's words, which depend on
//! its language. So the question here is never "which error?" but "did it certainly roll back?", because the claim of the key rolls back
//! with the rest: whatever certainly rolled back can be run again, and whatever may have been committed can be run again under its key.
//!
//! The price: a data exception (class 22) or a column that is not there (class 42) counts as [`StorageError::RolledBack`], as a deadlock
//! does, and its caller is told to try again although that is in vain. That it fails alone each time, at once, does not tell it from a server
//! that cancels each time, at once. So no valid command may lead to one: texts are checked before and the database is UTF8, amounts have their
//! range, and tests compare the schema with the code. And `payonce_given_up_total{reason="rolled_back"}` is there to alarm on.

use diesel::result::{DatabaseErrorKind, Error};

/// What a database error means for the work that met it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// A constraint fired that the rules should have made impossible, or a row makes no sense: a bug. It was rolled back.
    #[error("a bug: {0}")]
    Broken(String),
    /// Rolled back for certain: a lock or statement time-out, a deadlock, a serialization failure, a lost connection.
    #[error("rolled back: {0}")]
    RolledBack(String),
    /// The connection was lost while the commit was under way: it may or may not have happened.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// PostgreSQL has not answered in a time in which it answers or is not there: what happens is unknown, and may still be to come.
    #[error("PostgreSQL does not answer")]
    NoAnswer,
    /// The database is not as this service needs it, so nothing has happened. The sentence names the setting.
    #[error("the database can't be used: {0}")]
    Unfit(String),
    /// There was no connection, so nothing has happened.
    #[error("out of reach: {0}")]
    Unreachable(String),
}

impl StorageError {
    /// Would whoever tries next meet it, too, whatever he wants?
    #[must_use]
    pub fn meets_everybody(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unfit(_) | Self::NoAnswer)
    }

    /// The meaning of an error before `COMMIT` was sent.
    #[must_use]
    pub fn before_commit(error: &Error) -> Self {
        match error {
            Error::DatabaseError(kind, info) => match kind {
                DatabaseErrorKind::UniqueViolation
                | DatabaseErrorKind::ForeignKeyViolation
                | DatabaseErrorKind::RestrictViolation
                | DatabaseErrorKind::NotNullViolation
                | DatabaseErrorKind::CheckViolation
                | DatabaseErrorKind::ExclusionViolation => {
                    let constraint = info.constraint_name().unwrap_or("no constraint named");
                    Self::Broken(format!("{} ({constraint})", info.message()))
                }
                // A standby, or a primary that has just become one: another host may be the primary now.
                DatabaseErrorKind::ReadOnlyTransaction => Self::Unreachable(info.message().to_owned()),
                _ => Self::RolledBack(info.message().to_owned()),
            },
            Error::RollbackErrorOnCommit { commit_error, .. } => Self::before_commit(commit_error),
            Error::BrokenTransactionManager => Self::RolledBack(error.to_string()),
            other => Self::Broken(other.to_string()),
        }
    }

    /// The meaning of an error once `COMMIT` may have been sent.
    #[must_use]
    pub fn at_commit(error: &Error) -> Self {
        let certainly_rolled_back = matches!(error, Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _));
        match Self::before_commit(error) {
            Self::RolledBack(message) if !certainly_rolled_back => Self::OutcomeUnknown(message),
            // Deferred constraints are checked at commit, and refuse it.
            other => other,
        }
    }
}
