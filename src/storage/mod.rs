//! All the SQL. One file a table, and one function is one statement for a whole batch.
//!
//! The functions return Diesel's own result; [`StorageError`] says what an error means, and only the two places that
//! end a unit of work ask it: the engine's transaction, and [`Database::read`].

pub mod accounts;
pub mod answer_due;
pub mod api_keys;
pub mod audit;
mod batch_query;
pub mod connection;
pub mod entries;
pub mod error;
pub mod guarantees;
pub mod idempotency_keys;
pub mod laws;
pub mod migrations;
pub mod payment_list;
pub mod payments;
pub mod refunds;
mod rows;
mod schema;
pub mod transfers;

pub use answer_due::AnswerDue;
pub use connection::{Database, DatabaseSettings, connect};
pub use error::StorageError;
pub use migrations::run_migrations;
pub use rows::Position;
