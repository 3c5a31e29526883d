//! `payonce cleanup`, and the same in the background of `serve`: erases responses past their window, deletes tombstones past theirs.
//!
//! In small batches, each a transaction of its own, and `SKIP LOCKED`, so that payments never wait for it and several instances
//! share the work. Whether a key counts as expired does not depend on it.

use std::time::Duration;

use super::Fatal;
use crate::storage::{DatabaseSettings, StorageError, connect, idempotency_keys};

/// Keys in one transaction.
const BATCH: usize = 500;

/// What a clean-up did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cleaned {
    /// Responses erased.
    pub erased: usize,
    /// Keys deleted.
    pub forgotten: usize,
}

/// Cleans up until nothing is left to do.
///
/// # Errors
/// What the database says; what was cleaned up until then stays so.
pub fn clean_up(settings: &DatabaseSettings) -> Result<Cleaned, StorageError> {
    let mut connection = connect(settings)?;
    let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
    let mut cleaned = Cleaned::default();
    let broken = |error: diesel::result::Error| StorageError::before_commit(&error);
    loop {
        let erased = idempotency_keys::erase(&mut connection, limit).map_err(broken)?;
        let forgotten = idempotency_keys::forget(&mut connection, limit).map_err(broken)?;
        cleaned.erased += erased;
        cleaned.forgotten += forgotten;
        metrics::counter!("payonce_keys_erased_total").increment(u64::try_from(erased).unwrap_or(0));
        metrics::counter!("payonce_keys_forgotten_total").increment(u64::try_from(forgotten).unwrap_or(0));
        if erased < BATCH && forgotten < BATCH {
            return Ok(cleaned);
        }
    }
}

/// Cleans up once and says what was done.
///
/// # Errors
/// A sentence that says what went wrong.
pub fn run(settings: &DatabaseSettings) -> Result<(), Fatal> {
    let Cleaned { erased, forgotten } = clean_up(settings)?;
    println!("{erased} stored responses erased, {forgotten} keys forgotten");
    Ok(())
}

/// Cleans up every `interval` for as long as the process lives; never, if that is zero.
///
/// # Errors
/// If the thread can't be started.
pub fn start_background(settings: &DatabaseSettings, interval: Duration) -> std::io::Result<()> {
    if interval.is_zero() {
        return Ok(());
    }
    let settings = settings.clone();
    let clean_up_for_ever = move || {
        loop {
            std::thread::sleep(interval);
            match clean_up(&settings) {
                Ok(cleaned) if cleaned == Cleaned::default() => {}
                Ok(cleaned) => tracing::info!(?cleaned, "cleaned up"),
                Err(error) => tracing::warn!(%error, "the clean-up failed; it will be tried again"),
            }
        }
    };
    std::thread::Builder::new()
        .name("clean-up".to_owned())
        .spawn(clean_up_for_ever)
        .map(drop)
}
