//! The subcommands, one file each.

pub mod api_key;
pub mod audit;
pub mod cleanup;
pub mod log;
pub mod metrics;
pub mod serve;

/// What ends a command early: a sentence for the person who called it.
pub type Fatal = Box<dyn std::error::Error + Send + Sync>;
