//! The writes of a batch: one statement for each table that it touches, in the order of the foreign keys.

use diesel::{PgConnection, QueryResult};

use crate::domain::Books;
use crate::storage::{accounts, payments, refunds, transfers};

/// Writes what is new and what has changed. Where there is nothing to write, nothing is sent.
pub(super) fn persist(connection: &mut PgConnection, books: &Books) -> QueryResult<()> {
    accounts::insert(connection, books.new_accounts())?;
    accounts::write(connection, books.changed_accounts())?;
    transfers::insert(connection, books.transfers())?;
    payments::insert(connection, books.new_payments())?;
    payments::write_refunded(connection, books.changed_payments())?;
    refunds::insert(connection, books.refunds())
}
