//! The integration tests: one binary, one file a feature. Real PostgreSQL, real Redis, the real program over HTTP.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "a test stops at the first surprise, and tells one story from begin to end"
)]

mod support;

mod accounts;
mod amounts;
mod auth;
mod balance_at;
mod currencies;
mod entries;
mod every_command;
mod health;
mod http_edge;
mod limits;
mod metrics;
mod movements;
mod names;
mod mutations;
mod openapi;
mod pagination;
mod payments;
mod problems;
mod refunds;
mod revocation;
mod strangers;
mod tenants;
mod text;

// Idempotency, concurrency, faults and the database.
mod idempotency_replay;
mod idempotency_reuse;
mod idempotency_expiry;
mod idempotency_lookup;
mod idempotency_key_header;
mod review_checklist;
mod batch;
mod concurrency;
mod constraints;
mod migrations;
mod sql;
mod crash;
mod crash_matrix;
mod database_down;
mod hung_sessions;
mod locks;
mod guarantees;
mod overload;
mod noisy_tenant;
mod redis;
mod audit;
mod cleanup;
mod clock;
mod cli;
mod settings;
mod tidy;
