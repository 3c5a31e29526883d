//! `make conformance`: does a payment service keep the contract? Asked over HTTP alone, of any address.
//!
//! Each case is a fault that really happened in a system like this one, named by its id in the collection they come from:
//! R refunds, I idempotency, C concurrency and balances, A amounts, X texts and lists. Nothing here knows how the service is
//! built. Every case opens accounts of its own and leaves all others alone, so the service may be in use meanwhile.
//!
//! Read a family (`refunds.rs`, say): its table is the rules, and below it each rule is a function. The words they are
//! written in are in `caller.rs`, `ask.rs` and `reply.rs`. `self_test.rs` shows that the cases can fail.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON is indexed without a panic: what is not there is null"
)]

mod amounts;
mod ask;
mod balances;
mod caller;
mod card;
mod idempotency;
mod key_header;
mod lists;
mod naive;
mod problems;
mod raw;
mod refunds;
mod reply;
mod retries;
mod self_test;
mod texts;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::caller::{Caller, Service};
use crate::card::{Card, Case};

/// The run could not take place: nothing is known about the service.
const NOT_RUN: u8 = 2;

/// Runs the conformance cases against a payment service and prints the score card.
#[derive(Parser)]
#[command(name = "conformance")]
struct Arguments {
    /// Address of the service, such as `http://127.0.0.1:8080`
    #[arg(long, env = "URL", hide_env_values = true, required_unless_present = "self_test")]
    url: Option<String>,
    /// An API key that may read and write
    #[arg(long, env = "API_KEY", hide_env_values = true, required_unless_present = "self_test")]
    api_key: Option<String>,
    /// Address of a second instance of the same service
    #[arg(long, env = "URL_B", hide_env_values = true)]
    url_b: Option<String>,
    /// Another API key of the same tenant, as after a rotation
    #[arg(long, env = "API_KEY_ROTATED", hide_env_values = true)]
    api_key_rotated: Option<String>,
    /// An API key of another tenant
    #[arg(long, env = "API_KEY_OTHER_TENANT", hide_env_values = true)]
    api_key_other_tenant: Option<String>,
    /// An API key that may only read
    #[arg(long, env = "API_KEY_READ_ONLY", hide_env_values = true)]
    api_key_read_only: Option<String>,
    /// An API key that was revoked
    #[arg(long, env = "API_KEY_REVOKED", hide_env_values = true)]
    api_key_revoked: Option<String>,
    /// Only the cases with these ids
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the score card to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show instead that the cases can fail: run them against small services with one known flaw each
    #[arg(long)]
    self_test: bool,
}

/// Every case, in the order of the card.
fn all_cases() -> Vec<Case> {
    [
        refunds::cases(),
        key_header::cases(),
        idempotency::cases(),
        retries::cases(),
        balances::cases(),
        amounts::cases(),
        texts::cases(),
        lists::cases(),
        problems::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let run = if arguments.self_test {
        self_test::run().await
    } else {
        examine(arguments).await
    };
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("conformance: {reason}");
            ExitCode::from(NOT_RUN)
        }
    }
}

/// Did every case that could be run pass?
async fn examine(arguments: Arguments) -> Result<bool, String> {
    let cases = chosen(&arguments.only)?;
    let json = arguments.json.clone();
    let service = service(arguments)?;
    service.api.is_there().await?;
    let mut card = Card::begin(&service.api.base);
    for case in cases {
        card.print(case.run(&service).await);
    }
    card.print_total();
    if let Some(file) = json {
        let written = std::fs::write(&file, card.json());
        written.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(card.is_good())
}

fn chosen(only: &[String]) -> Result<Vec<Case>, String> {
    let mut cases = all_cases();
    if let Some(unknown) = only.iter().find(|id| !cases.iter().any(|case| case.id == **id)) {
        return Err(format!("there is no case {unknown}"));
    }
    cases.retain(|case| only.is_empty() || only.iter().any(|id| *id == case.id));
    Ok(cases)
}

fn service(arguments: Arguments) -> Result<Service, String> {
    let url = arguments.url.unwrap_or_default();
    let caller = |url: &str, key: Option<String>| key.map(|key| Caller::new(url, &key)).transpose();
    let api = Caller::new(&url, &arguments.api_key.unwrap_or_default())?;
    Ok(Service {
        second_instance: arguments.url_b.as_deref().map(|url| api.at(url)).transpose()?,
        rotated: caller(&url, arguments.api_key_rotated)?,
        other_tenant: caller(&url, arguments.api_key_other_tenant)?,
        read_only: caller(&url, arguments.api_key_read_only)?,
        revoked: caller(&url, arguments.api_key_revoked)?,
        api,
    })
}
