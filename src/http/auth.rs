//! Who calls: from the Bearer key to the tenant and what the key permits.
//!
//! A key is looked up by its SHA-256 and then remembered for [`REMEMBER`]. A revocation is heard of by PostgreSQL's `LISTEN`. What is
//! remembered counts only for [`HEARSAY`] after the last moment up to which every revocation is known to have been heard of; who revokes
//! a key waits for as long. So the key is out at the very next request, even at an instance whose connection hangs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use diesel::{PgConnection, QueryResult};
use sha2::{Digest, Sha256};

use super::service::read;
use crate::api::{Code, Problem};
use crate::domain::TenantId;
use crate::storage::api_keys::{self, ValidKey};
use crate::storage::{Database, DatabaseSettings, connect};

/// How long a key counts as valid without another look.
const REMEMBER: Duration = Duration::from_secs(30);

/// How often the listener asks for notifications. Asking costs one round trip.
const LISTEN_EVERY: Duration = Duration::from_millis(20);

/// How long after the listener last asked the remembered keys count. Some [`LISTEN_EVERY`]s, so that a busy machine does not
/// have to look every key up; short, because `payonce api-key revoke` waits for as long.
pub const HEARSAY: Duration = Duration::from_millis(250);

/// How long the listener waits before it tries to connect again.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);

/// The SHA-256 of an API key: all that is stored of it.
#[must_use]
pub fn hash_api_key(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// What an API key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Every GET.
    Read,
    /// Every POST.
    Write,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Knows API keys.
pub struct Authenticator {
    database: Database,
    timeout: Duration,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    /// Until then every revocation has been heard of, or whoever revokes is still waiting.
    heard_until: Option<Instant>,
    /// Counts the times that everything was forgotten: a look-up that began before such a time proves nothing after it.
    generation: u64,
    keys: HashMap<[u8; 32], (Arc<ValidKey>, Instant)>,
}

impl Authenticator {
    /// Starts to listen for revocations, until it is dropped.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn start(settings: DatabaseSettings, database: Database, timeout: Duration) -> std::io::Result<Arc<Self>> {
        let authenticator = Arc::new(Self {
            database,
            timeout,
            remembered: Mutex::default(),
        });
        let listener = Arc::downgrade(&authenticator);
        std::thread::Builder::new()
            .name("api-key-listener".to_owned())
            .spawn(move || listen(&listener, &settings))?;
        Ok(authenticator)
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
        if valid.scopes.iter().any(|name| name == scope.name()) {
            return Ok(valid.tenant);
        }
        Err(Problem::new(
            Code::Forbidden,
            format!("this API key lacks the scope `{}`", scope.name()),
        ))
    }

    async fn look_up(&self, hash: [u8; 32]) -> Result<Option<Arc<ValidKey>>, Problem> {
        let generation = {
            let remembered = self.remembered();
            if let Some((valid, until)) = remembered.keys.get(&hash)
                && remembered
                    .heard_until
                    .is_some_and(|heard| Instant::now() < heard.min(*until))
            {
                return Ok(Some(Arc::clone(valid)));
            }
            remembered.generation
        };
        let found = read(&self.database, self.timeout, move |connection| {
            api_keys::find_valid(connection, &hash)
        })
        .await?;
        let valid = found.map(Arc::new);
        if let Some(valid) = &valid {
            let until = Instant::now() + valid.valid_for.unwrap_or(REMEMBER).min(REMEMBER);
            let mut remembered = self.remembered();
            if remembered.generation == generation {
                remembered.keys.insert(hash, (Arc::clone(valid), until));
            }
        }
        Ok(valid)
    }

    /// Everything may have changed, and nobody listens.
    fn forget_all(&self) {
        let mut remembered = self.remembered();
        remembered.heard_until = None;
        remembered.generation += 1;
        remembered.keys.clear();
    }

    /// All changes that were committed before `asked` are known.
    fn heard(&self, asked: Instant) {
        self.remembered().heard_until = Some(asked + HEARSAY);
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listen(listener: &Weak<Authenticator>, settings: &DatabaseSettings) {
    while listener.strong_count() > 0 {
        let heard = connect(settings).map(|mut connection| listen_on(listener, &mut connection));
        if let Some(authenticator) = listener.upgrade() {
            authenticator.forget_all();
        }
        if !matches!(heard, Ok(Ok(()))) {
            tracing::warn!("can't listen for revoked API keys: looking each one up until that works again");
            std::thread::sleep(RECONNECT_AFTER);
        }
    }
}

fn listen_on(listener: &Weak<Authenticator>, connection: &mut PgConnection) -> QueryResult<()> {
    api_keys::listen(connection)?;
    if let Some(authenticator) = listener.upgrade() {
        authenticator.forget_all();
    }
    while let Some(authenticator) = listener.upgrade() {
        let asked = Instant::now();
        if api_keys::changed(connection)? {
            authenticator.forget_all();
        }
        authenticator.heard(asked);
        drop(authenticator);
        std::thread::sleep(LISTEN_EVERY);
    }
    Ok(())
}
