//! Who has a key: asked when a claim has waited in vain.
//!
//! That it waited does not tell, for it may have waited for the table. So here the table's lock comes first, and then there is nothing left
//! that a claim could wait for but the transaction that has its key. PostgreSQL's own word for what happened depends on its
//! language, and Diesel does not tell the code.

use std::time::{Duration, Instant};

use diesel::r2d2::R2D2Connection;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::{Connection, PgConnection, QueryResult};

use crate::idempotency::{Request, Retention};
use crate::storage::connection::set_lock_timeout;
use crate::storage::idempotency_keys;

/// How long each of the two locks is waited for.
const PATIENCE: Duration = Duration::from_millis(10);

/// Has another transaction, which has not ended, claimed this request's key? If that can't be found out: `false`.
#[expect(
    clippy::disallowed_methods,
    reason = "it always rolls back, and with it the claim and the session's patience"
)]
pub(super) fn is_claimed_elsewhere(connection: &mut PgConnection, request: &Request, retention: Retention) -> bool {
    let mut asked = None;
    let outcome = connection.transaction(|connection| -> QueryResult<()> {
        set_lock_timeout(connection, PATIENCE)?;
        idempotency_keys::lock_for_claims(connection)?;
        asked = Some(Instant::now());
        idempotency_keys::claim(connection, std::iter::once(request), retention)?;
        Err(Error::RollbackTransaction)
    });
    let refused = matches!(outcome, Err(Error::DatabaseError(DatabaseErrorKind::Unknown, _)));
    refused && !connection.is_broken() && asked.is_some_and(|asked| asked.elapsed() >= PATIENCE)
}
