//! `payonce api-key create | list | revoke`

use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::Fatal;
use crate::http::{HEARSAY, hash_api_key};
use crate::storage::{DatabaseSettings, StorageError, api_keys, connect};

/// Random bytes of a key: more than anybody guesses.
const SECRET_BYTES: usize = 32;

/// Characters of a key that stay visible in lists.
const PREFIX_LENGTH: usize = 16;

/// What to do with API keys.
#[derive(Debug, Subcommand)]
pub enum ApiKeyCommand {
    /// Make a key and show it, this once
    Create {
        /// Name of the tenant; it is made if there is none
        #[arg(long)]
        tenant: String,
        /// What the key permits
        #[arg(long, value_enum, value_delimiter = ',', default_value = "read,write")]
        scopes: Vec<ScopeArg>,
        /// How long it is valid, in days; without: for ever
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36500))]
        expires_in_days: Option<u32>,
        /// Print the key and nothing else
        #[arg(long)]
        quiet: bool,
    },
    /// Show all keys (not the keys themselves: nobody has them)
    List,
    /// End a key at once
    Revoke {
        /// The visible beginning of the key, as `list` shows it; the whole key does as well
        prefix: String,
    },
}

/// A scope on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// Every GET
    Read,
    /// Every POST
    Write,
}

impl ScopeArg {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Carries it out.
///
/// # Errors
/// A sentence that says what went wrong.
pub fn run(settings: &DatabaseSettings, command: &ApiKeyCommand) -> Result<(), Fatal> {
    let mut connection = connect(settings)?;
    let failed = |error: diesel::result::Error| StorageError::before_commit(&error);
    match command {
        ApiKeyCommand::Create {
            tenant,
            scopes,
            expires_in_days,
            quiet,
        } => {
            let key = new_key()?;
            let prefix = visible(&key);
            let names: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
            let valid_for = expires_in_days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
            let valid_for = valid_for
                .map(|duration| i64::try_from(duration.as_secs()))
                .transpose()?;
            api_keys::create(&mut connection, tenant, prefix, &hash_api_key(&key), &names, valid_for)
                .map_err(failed)?;
            if *quiet {
                println!("{key}");
            } else {
                println!(
                    "API key of tenant {tenant} ({}), shown only this once:\n{key}",
                    names.join(", ")
                );
            }
        }
        ApiKeyCommand::List => {
            for key in api_keys::list(&mut connection).map_err(failed)? {
                let state = match (key.revoked_at, key.expires_at) {
                    (Some(at), _) => format!("revoked {at}"),
                    (None, Some(at)) => format!("expires {at}"),
                    (None, None) => "does not expire".to_owned(),
                };
                println!(
                    "{}…\t{}\t{}\tcreated {}\t{state}",
                    key.prefix,
                    key.tenant,
                    key.scopes.join(","),
                    key.created_at
                );
            }
        }
        ApiKeyCommand::Revoke { prefix } => {
            if !api_keys::revoke(&mut connection, visible(prefix)).map_err(failed)? {
                return Err(format!("there is no valid API key that begins with {}", visible(prefix)).into());
            }
            // From then on no instance lets it in, whether it has heard of this or not.
            std::thread::sleep(HEARSAY);
            println!("revoked");
        }
    }
    Ok(())
}

fn new_key() -> Result<String, Fatal> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(|error| format!("no random bytes: {error}"))?;
    Ok(format!("payonce_{}", hex::encode(secret)))
}

fn visible(key: &str) -> &str {
    key.get(..PREFIX_LENGTH).unwrap_or(key)
}
