//! `payonce audit`: proves the books, law by law. PostgreSQL does the sums; nothing is loaded but the first row that breaks a law.

use std::process::ExitCode;
use std::time::Duration;

use super::Fatal;
use crate::storage::audit::{LAWS, prepare};
use crate::storage::{DatabaseSettings, StorageError, connect};

/// An audit reads everything: no payment waits for it, and it may take long.
const NO_LIMIT: Duration = Duration::ZERO;

/// Checks all laws; says which are broken, with the first row of each.
///
/// # Errors
/// What the database says.
pub fn broken_laws(settings: &DatabaseSettings) -> Result<Vec<String>, StorageError> {
    let mut connection = connect(&DatabaseSettings {
        statement_timeout: NO_LIMIT,
        ..settings.clone()
    })?;
    prepare(&mut connection).map_err(|error| StorageError::before_commit(&error))?;
    let mut broken = Vec::new();
    for law in LAWS {
        let first = law
            .first_broken(&mut connection)
            .map_err(|error| StorageError::before_commit(&error))?;
        broken.extend(first.map(|row| format!("{}: {row}", law.law)));
    }
    Ok(broken)
}

/// Prints what is broken; exit status 1 if anything is.
///
/// # Errors
/// A sentence that says what went wrong.
pub fn run(settings: &DatabaseSettings) -> Result<ExitCode, Fatal> {
    let broken = broken_laws(settings)?;
    if broken.is_empty() {
        println!("the books are right: {} laws hold", LAWS.len());
        return Ok(ExitCode::SUCCESS);
    }
    for law in &broken {
        println!("BROKEN {law}");
    }
    println!("{} of {} laws are broken", broken.len(), LAWS.len());
    Ok(ExitCode::FAILURE)
}
