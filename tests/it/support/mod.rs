//! What the tests are written with: an [`App`] (the service with a database of its own), its [`Client`]s, and the faults.

pub mod app;
pub mod books;
pub mod client;
pub mod commands;
pub mod database;
pub mod proxy;
pub mod raw;

pub use app::{App, Instance};
pub use books::assert_books_balance;
pub use client::{Client, Reply, new_key};
pub use database::{Role, TestDatabase};
pub use proxy::Proxy;
pub use raw::Raw;
