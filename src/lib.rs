//! **payonce**: the payment service that never charges twice.
//!
//! Read it from top to bottom; a module imports only what stands above it. ARCHITECTURE.md says why it is built this way.
//!
//! | module | what it is |
//! |---|---|
//! | [`money`] | currencies and amounts, exact |
//! | [`domain`] | what a payment is, and all the rules of money: pure |
//! | [`idempotency`] | keys, request hashes, stored responses, and what a known key means: pure |
//! | [`api`] | JSON in and out, and the table of error codes: pure |
//! | [`storage`] | all the SQL |
//! | [`redis_hint`] | "probably seen before" |
//! | [`engine`] | the transaction, and the batches it runs |
//! | [`http`] | routes, extraction, headers |
//! | [`config`] | every setting |
//! | [`commands`] | the subcommands |
//!
//! `api`, `storage` and `redis_hint` do not know each other. GETs read straight from `storage`; every write goes
//! through `engine`, and there through one function: [`engine::transaction::run`].

pub mod money;
pub mod domain;
pub mod idempotency;
pub mod api;
pub mod storage;
pub mod redis_hint;
pub mod engine;
pub mod http;
pub mod config;
pub mod commands;
