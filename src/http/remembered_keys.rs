//! The API keys that were looked up lately, and until when that may be relied on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::storage::api_keys::ValidKey;

/// How long a key counts as valid without another look.
const REMEMBER: Duration = Duration::from_secs(30);

/// The keys that were looked up and found valid, by their hash.
#[derive(Default)]
pub(super) struct RememberedKeys(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// Until then every revocation has been heard of, or whoever revokes is still waiting.
    reliable_until: Option<Instant>,
    generation: Generation,
    keys: HashMap<[u8; 32], (Arc<ValidKey>, Instant)>,
}

/// Counts the times that everything was forgotten: a look-up that began before such a time proves nothing after it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl RememberedKeys {
    /// The key with this hash, if what is remembered of it may be relied on. If not, it is to be looked up and then
    /// [remembered](Self::remember) with this generation.
    pub fn find(&self, hash: &[u8; 32]) -> Result<Arc<ValidKey>, Generation> {
        let remembered = self.lock();
        let now = Instant::now();
        let reliable = remembered.reliable_until.is_some_and(|until| now < until);
        match remembered.keys.get(hash) {
            Some((valid, until)) if reliable && now < *until => Ok(Arc::clone(valid)),
            _ => Err(remembered.generation),
        }
    }

    /// Keeps what a look-up found that began in this generation.
    pub fn remember(&self, hash: [u8; 32], valid: &Arc<ValidKey>, began_in: Generation) {
        let until = Instant::now() + valid.valid_for.unwrap_or(REMEMBER).min(REMEMBER);
        let mut remembered = self.lock();
        if remembered.generation == began_in {
            remembered.keys.insert(hash, (Arc::clone(valid), until));
        }
    }

    /// Any of them may have been revoked, and nothing is relied on until the next [`rely_until`](Self::rely_until).
    pub fn forget_all(&self) {
        let mut remembered = self.lock();
        remembered.reliable_until = None;
        remembered.generation.0 += 1;
        remembered.keys.clear();
    }

    /// Who revokes a key waits for as long as it may be relied on without having heard of that.
    pub fn rely_until(&self, until: Instant) {
        self.lock().reliable_until = Some(until);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
