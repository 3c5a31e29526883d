//! Who calls: from the Bearer key to the tenant and what the key permits.
//!
//! A key is looked up by its SHA-256 and then remembered ([`remembered_keys`](super::remembered_keys)), for as long as every revocation is certain
//! to be heard of ([`revocations`](super::revocations)). So a revoked key is out at the very next request, even at an instance whose connection
//! hangs. Of a key that is not valid nothing is kept: each costs a look-up, one at a time ([`anybody`](super::anybody)).

use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::anybody::OneAtATime;
use super::remembered_keys::{Memory, RememberedKeys};
use super::revocations;
use super::service::read;
use crate::api::{Code, Problem};
use crate::domain::TenantId;
use crate::storage::api_keys::{self, Scope, ValidKey};
use crate::storage::{Database, DatabaseSettings};

/// The SHA-256 of an API key: all that is stored of it.
#[must_use]
pub fn hash_api_key(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Knows API keys.
pub struct Authenticator {
    database: Database,
    timeout: Duration,
    remembered: Arc<RememberedKeys>,
    strangers: OneAtATime,
}

impl Authenticator {
    /// Starts to listen for revocations, until it is dropped.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(settings: &DatabaseSettings, database: Database, timeout: Duration) -> std::io::Result<Arc<Self>> {
        let remembered = Arc::default();
        revocations::start(&remembered, settings)?;
        Ok(Arc::new(Self {
            database,
            timeout,
            remembered,
            strangers: OneAtATime::default(),
        }))
    }

    /// The tenant of the key in an `Authorization` header, if the key permits `scope`.
    pub(super) async fn authenticate(&self, authorization: Option<&str>, scope: Scope) -> Result<TenantId, Problem> {
        let unauthenticated = || {
            Problem::new(
                Code::Unauthenticated,
                "send `Authorization: Bearer <api key>` with a valid API key",
            )
        };
        let (scheme, key) = authorization
            .and_then(|value| value.split_once(' '))
            .ok_or_else(unauthenticated)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthenticated());
        }
        let valid = self
            .look_up(hash_api_key(key.trim_matches(' ')))
            .await?
            .ok_or_else(unauthenticated)?;
        if valid.scopes.iter().any(|name| name == scope.as_str()) {
            return Ok(valid.tenant);
        }
        Err(Problem::new(
            Code::Forbidden,
            format!("this API key lacks the scope `{}`", scope.as_str()),
        ))
    }

    async fn look_up(&self, hash: [u8; 32]) -> Result<Option<Arc<ValidKey>>, Problem> {
        let came = Instant::now();
        let mut memory = self.remembered.find(&hash);
        let mut turn = None;
        if matches!(memory, Memory::Unknown(_)) {
            turn = Some(self.strangers.turn(self.timeout).await?);
            // Somebody else may have brought the same key, and been first.
            memory = self.remembered.find(&hash);
        }
        let generation = match memory {
            Memory::Reliable(valid) => return Ok(Some(valid)),
            Memory::Doubtful(generation) | Memory::Unknown(generation) => generation,
        };
        let timeout = self.timeout.saturating_sub(came.elapsed());
        let found = read(&self.database, timeout, move |connection| {
            let found = api_keys::find_valid(connection, &hash);
            drop(turn);
            found
        })
        .await?;
        let valid = found.map(Arc::new);
        self.remembered.remember(hash, valid.as_ref(), generation);
        Ok(valid)
    }
}
