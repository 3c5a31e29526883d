//! The API keys that were looked up lately, and until when that may be relied on.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::storage::api_keys::ValidKey;

/// How long a key counts as valid without another look.
const REMEMBER: Duration = Duration::from_secs(30);

/// How many keys are remembered, a few hundred bytes each; one more, and the one that was not used for the longest time goes. Only
/// keys that were found valid get in, so strangers can't push anybody out.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(10_000 - 1);

/// The keys that were looked up and found valid, by their hash.
pub(super) struct RememberedKeys(Mutex<Remembered>);

struct Remembered {
    /// Until then every revocation has been heard of, or whoever revokes is still waiting.
    reliable_until: Option<Instant>,
    generation: Generation,
    keys: LruCache<[u8; 32], Entry>,
}

struct Entry {
    valid: Arc<ValidKey>,
    until: Instant,
    generation: Generation,
}

/// Counts the times that everything became doubtful: a look-up that began before such a time proves nothing after it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// What is remembered of a key. If it is not reliable, the key is to be looked up, and what is found
/// [remembered](RememberedKeys::remember) with this generation.
#[derive(Debug)]
pub(super) enum Memory {
    /// It is valid.
    Reliable(Arc<ValidKey>),
    /// It was valid.
    Doubtful(Generation),
    /// Nothing.
    Unknown(Generation),
}

impl Default for RememberedKeys {
    fn default() -> Self {
        Self(Mutex::new(Remembered {
            reliable_until: None,
            generation: Generation::default(),
            keys: LruCache::new(KEYS_MAX),
        }))
    }
}

impl RememberedKeys {
    /// What is remembered of the key with this hash.
    pub fn find(&self, hash: &[u8; 32]) -> Memory {
        let mut remembered = self.lock();
        let (now, generation) = (Instant::now(), remembered.generation);
        let reliable = remembered.reliable_until.is_some_and(|until| now < until);
        match remembered.keys.get(hash) {
            Some(entry) if reliable && entry.generation == generation && now < entry.until => {
                Memory::Reliable(Arc::clone(&entry.valid))
            }
            Some(_) => Memory::Doubtful(generation),
            None => Memory::Unknown(generation),
        }
    }

    /// Keeps what a look-up found that began in this generation. A key that is valid no more is forgotten.
    pub fn remember(&self, hash: [u8; 32], found: Option<&Arc<ValidKey>>, generation: Generation) {
        let mut remembered = self.lock();
        if let Some(valid) = found {
            let entry = Entry {
                valid: Arc::clone(valid),
                until: Instant::now() + valid.valid_for.unwrap_or(REMEMBER).min(REMEMBER),
                generation,
            };
            remembered.keys.put(hash, entry);
        } else {
            remembered.keys.pop(&hash);
        }
    }

    /// Any of them may have been revoked, and nothing is relied on until the next [`rely_until`](Self::rely_until).
    pub fn doubt_all(&self) {
        let mut remembered = self.lock();
        remembered.reliable_until = None;
        remembered.generation.0 += 1;
    }

    /// Who revokes a key waits for as long as it may be relied on without having heard of that.
    pub fn rely_until(&self, until: Instant) {
        self.lock().reliable_until = Some(until);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "remembered_keys_test.rs"]
mod tests;
