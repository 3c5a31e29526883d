//! What is relied upon in PostgreSQL, and what its settings can make of it.
//!
//! | setting | or else | so |
//! |---|---|---|
//! | `server_encoding` is `UTF8` | lengths are counted in bytes, and valid names are refused by constraints | a session is refused |
//! | `session_replication_role` is `origin` | triggers and foreign keys are off: the ledger is not append-only any more | it is set, or the session is refused |
//! | `synchronous_commit` is not `off` | what is answered can be lost if PostgreSQL crashes | it is set to `on`; all other values keep what is on this machine's disk, and stay |
//! | `fsync`, `full_page_writes` are on | what is answered can be lost, or the books corrupted, if the machine crashes | `serve` does not start, and is not ready |
//!
//! The first three are looked at in each session, for an `ALTER ROLE` or `ALTER DATABASE` reaches it when it begins.

use diesel::connection::SimpleConnection;
use diesel::sql_types::Text;
use diesel::{PgConnection, QueryResult, QueryableByName, RunQueryDsl, sql_query};

use super::StorageError;

#[derive(QueryableByName)]
struct Session {
    #[diesel(sql_type = Text)]
    replication_role: String,
    #[diesel(sql_type = Text)]
    encoding: String,
}

#[derive(QueryableByName)]
struct Setting {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Makes sure of what each session relies upon.
///
/// # Errors
/// [`StorageError::Unfit`] with a sentence that names the setting; [`StorageError::Unreachable`].
pub(super) fn secure(connection: &mut PgConnection) -> Result<(), StorageError> {
    let unreachable = |error: diesel::result::Error| StorageError::Unreachable(error.to_string());
    // Set in any case: else the session would follow when the server's default is changed.
    let session: Session = sql_query(
        "SELECT current_setting('session_replication_role') AS replication_role, \
                current_setting('server_encoding') AS encoding, \
                set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
                    WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
    )
    .get_result(connection)
    .map_err(unreachable)?;
    let Session {
        replication_role,
        encoding,
    } = session;
    if encoding != "UTF8" {
        return Err(StorageError::Unfit(format!(
            "server_encoding is {encoding} and must be UTF8: make the database anew with \
             CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )));
    }
    if replication_role != "origin"
        && connection
            .batch_execute("SET session_replication_role = origin")
            .is_err()
    {
        return Err(StorageError::Unfit(format!(
            "session_replication_role is {replication_role}, which switches triggers and foreign keys off, and must be origin: \
             ALTER ROLE or ALTER DATABASE … RESET session_replication_role"
        )));
    }
    Ok(())
}

/// Does what is committed survive a crash of the machine? If not: the sentence that says why.
///
/// # Errors
/// Diesel's.
pub fn volatility(connection: &mut PgConnection) -> QueryResult<Option<String>> {
    let off: Vec<Setting> = sql_query(
        "SELECT name FROM unnest(ARRAY['fsync', 'full_page_writes']) AS name WHERE current_setting(name) <> 'on'",
    )
    .load(connection)?;
    let names: Vec<_> = off.into_iter().map(|setting| setting.name).collect();
    let (verb, it) = if names.len() == 1 {
        ("is", "it")
    } else {
        ("are", "them")
    };
    Ok((!names.is_empty()).then(|| {
        format!(
            "{} {verb} off: a crash of PostgreSQL's machine can lose payments that were confirmed; switch {it} on",
            names.join(" and ")
        )
    }))
}
