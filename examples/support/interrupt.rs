//! Ctrl-C and TERM, for programs that clean up by dropping what they do.

use tokio::signal::unix::{SignalKind, signal};

use crate::Outcome;

/// As a shell reports a program that Ctrl-C has ended.
pub const INTERRUPTED: u8 = 130;

/// Returns when this program is told to end.
pub async fn interrupted() -> Outcome {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
