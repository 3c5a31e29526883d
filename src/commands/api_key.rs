//! `payonce api-key create | list | revoke`

use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Subcommand, ValueEnum};

use diesel::PgConnection;

use super::Fatal;
use crate::domain::Name;
use crate::http::{HEARSAY, hash_api_key};
use crate::storage::api_keys::{self, ListedKey, Scope, Wanted};
use crate::storage::{DatabaseSettings, StorageError, connect};

/// What every key begins with.
const BRAND: &str = "payonce_";

/// Random bytes of a key: more than anybody guesses.
const SECRET_BYTES: usize = 32;

/// Characters of a key that stay visible in lists.
const PREFIX_LENGTH: usize = 16;

/// How often a key is made whose visible beginning the tenant has already. Even once is rare: there are four thousand million.
const CREATE_ATTEMPTS: u32 = 8;

/// What to do with API keys.
#[derive(Debug, Subcommand)]
pub enum ApiKeyCommand {
    /// Make a key and show it, this once
    Create {
        /// Name of the tenant; it is made if there is none
        #[arg(long, value_parser = tenant_name)]
        tenant: String,
        /// What the key permits
        #[arg(long, value_enum, value_delimiter = ',', default_value = "read,write")]
        scopes: Vec<Scope>,
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
        /// The whole key, or its visible beginning, as `list` shows it
        key: String,
        /// Name of its tenant; needed where several have a key with this visible beginning
        #[arg(long)]
        tenant: Option<String>,
    },
}

impl ValueEnum for Scope {
    fn value_variants<'a>() -> &'a [Self] {
        Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Read => "Every GET",
            Self::Write => "Every POST",
        };
        Some(PossibleValue::new(self.as_str()).help(help))
    }
}

/// Carries it out.
///
/// # Errors
/// A sentence that says what went wrong.
pub fn run(settings: &DatabaseSettings, command: &ApiKeyCommand) -> Result<(), Fatal> {
    let mut connection = connect(settings)?;
    match command {
        ApiKeyCommand::Create {
            tenant,
            scopes,
            expires_in_days,
            quiet,
        } => {
            let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
            let valid_for = expires_in_days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
            let key = create(&mut connection, tenant, scopes, valid_for)?;
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
            for key in api_keys::list(&mut connection, Wanted::All).map_err(failed)? {
                println!("{}", line(&key));
            }
        }
        ApiKeyCommand::Revoke { key, tenant } => {
            revoke(&mut connection, Named::read(key), tenant.as_deref())?;
            println!("revoked");
        }
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: diesel::result::Error) -> StorageError {
    StorageError::before_commit(&error)
}

fn tenant_name(text: &str) -> Result<String, String> {
    Name::new(text.to_owned())
        .map(|name| name.as_str().to_owned())
        .map_err(|error| error.to_string())
}

fn create(
    connection: &mut PgConnection,
    tenant: &str,
    scopes: &[Scope],
    valid_for: Option<Duration>,
) -> Result<String, Fatal> {
    let valid_for = valid_for
        .map(|duration| i64::try_from(duration.as_secs()))
        .transpose()?;
    for _ in 0..CREATE_ATTEMPTS {
        let key = new_key()?;
        let (prefix, hash) = (visible(&key), hash_api_key(&key));
        if api_keys::create(connection, tenant, prefix, &hash, scopes, valid_for).map_err(failed)? {
            return Ok(key);
        }
    }
    Err(format!(
        "{CREATE_ATTEMPTS} new keys in a row began like keys that the tenant has already: the source of random numbers is broken"
    )
    .into())
}

fn new_key() -> Result<String, Fatal> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(|error| format!("no random bytes: {error}"))?;
    Ok(format!("{BRAND}{}", hex::encode(secret)))
}

fn visible(key: &str) -> &str {
    key.get(..PREFIX_LENGTH).unwrap_or(key)
}

/// The text with only the visible beginning of each API key in it. What somebody typed may be anywhere in a message: a key in
/// the wrong place is repeated by the parser of the command line.
#[must_use]
pub fn hide_keys(text: &str) -> String {
    let mut pieces = text.split(BRAND);
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let secret_ends = piece.find(|letter: char| !letter.is_ascii_hexdigit());
        let (secret, after) = piece.split_at(secret_ends.unwrap_or(piece.len()));
        shown.push_str(BRAND);
        match secret.get(..PREFIX_LENGTH - BRAND.len()) {
            Some(visible) if visible != secret => shown.extend([visible, "…"]),
            _ => shown.push_str(secret),
        }
        shown.push_str(after);
    }
    shown
}

/// A key as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named<'a> {
    Prefix(&'a str),
    /// Must not be seen in any message: it goes to logs and tickets.
    Whole(&'a str),
}

impl<'a> Named<'a> {
    /// What is longer than a visible beginning is a whole key, and never falls back on what it begins with: that may be
    /// somebody else's.
    fn read(text: &'a str) -> Self {
        let text = text.trim();
        let text = text.strip_suffix(CUT).unwrap_or(text);
        if text.len() > PREFIX_LENGTH {
            Self::Whole(text)
        } else {
            Self::Prefix(text)
        }
    }
}

/// Ends a visible beginning in a list.
const CUT: char = '…';

/// Revokes the one key that is meant. When this returns no instance lets it in, whether it has heard of this or not.
fn revoke(connection: &mut PgConnection, named: Named, tenant: Option<&str>) -> Result<(), Fatal> {
    let wanted = match named {
        Named::Prefix(prefix) => Wanted::Prefix(prefix),
        Named::Whole(key) => Wanted::Hash(hash_api_key(key)),
    };
    let found = api_keys::list(connection, wanted).map_err(failed)?;
    let key = the_one_meant(&found, named, tenant)?;
    let revoked = api_keys::revoke(connection, key).map_err(failed)?;
    // Also if somebody else has just revoked it, and is still waiting.
    std::thread::sleep(HEARSAY);
    if revoked {
        Ok(())
    } else {
        Err(format!("this API key was revoked already:\n{}", line(key)).into())
    }
}

/// The key that is meant, or why nothing is revoked. A key that was revoked already counts as well: who means that one must
/// not end another.
fn the_one_meant<'a>(found: &'a [ListedKey], named: Named, tenant: Option<&str>) -> Result<&'a ListedKey, String> {
    let matching: Vec<_> = found
        .iter()
        .filter(|key| tenant.is_none_or(|tenant| key.tenant == tenant))
        .collect();
    match (matching.as_slice(), found, named) {
        ([key], ..) => Ok(key),
        ([], [], Named::Prefix(prefix)) => Err(format!(
            "no API key begins with {prefix:?}, so nothing was revoked; `payonce api-key list` shows the first {PREFIX_LENGTH} characters of each"
        )),
        ([], [], Named::Whole(_)) => Err(format!(
            "there is no such API key, so nothing was revoked; more than {PREFIX_LENGTH} characters are taken for a whole key"
        )),
        ([], ..) => Err(format!(
            "tenant {:?} has no such API key, so nothing was revoked; it would be\n{}",
            tenant.unwrap_or_default(),
            lines(found)
        )),
        _ => Err(format!(
            "{} API keys are meant by this, so nothing was revoked; name one with `--tenant NAME`:\n{}",
            matching.len(),
            lines(found)
        )),
    }
}

fn lines(keys: &[ListedKey]) -> String {
    keys.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A key in a list.
fn line(key: &ListedKey) -> String {
    let state = match (key.revoked_at, key.expires_at) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) => format!("expires {at}"),
        (None, None) => "does not expire".to_owned(),
    };
    format!(
        "{}{CUT}\t{}\t{}\tcreated {}\t{state}",
        key.prefix,
        key.tenant,
        key.scopes.join(","),
        key.created_at
    )
}
