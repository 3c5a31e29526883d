//! What is remembered of API keys, and how much.

use super::*;
use crate::domain::TenantId;

fn key(valid_for: Option<Duration>) -> Arc<ValidKey> {
    Arc::new(ValidKey {
        tenant: TenantId(uuid::Uuid::nil()),
        scopes: Vec::new(),
        valid_for,
    })
}

fn hash(number: usize) -> [u8; 32] {
    let mut hash = [0; 32];
    for (place, byte) in hash.iter_mut().zip(number.to_be_bytes()) {
        *place = byte;
    }
    hash
}

/// Keys that may be relied on for the time of a test.
fn reliable() -> RememberedKeys {
    let keys = RememberedKeys::default();
    keys.rely_until(Instant::now() + Duration::from_hours(1));
    keys
}

fn generation(keys: &RememberedKeys) -> Generation {
    keys.lock().generation
}

/// However many keys a tenant has and uses, the memory is bounded, and those in use stay. Without this every key that ever came is
/// kept until the restart.
#[test]
fn only_so_many_keys_are_remembered() {
    let keys = reliable();
    let generation = generation(&keys);
    let most = KEYS_MAX.get();
    for number in 0..3 * most {
        keys.remember(hash(number), Some(&key(None)), generation);
        assert!(matches!(keys.find(&hash(0)), Memory::Reliable(_)), "{number}");
    }
    assert_eq!(keys.lock().keys.len(), most);
    assert!(matches!(keys.find(&hash(1)), Memory::Unknown(_)));
    assert!(matches!(keys.find(&hash(3 * most - 1)), Memory::Reliable(_)));
}

/// What strangers bring leaves no trace, and a key that was found to be valid no more loses its own. Without this a flood of made-up
/// keys fills the memory, and a revoked key is still treated like one that is known.
#[test]
fn a_key_that_is_not_valid_is_not_remembered() {
    let keys = reliable();
    let generation = generation(&keys);
    keys.remember(hash(1), None, generation);
    assert!(matches!(keys.find(&hash(1)), Memory::Unknown(_)));
    keys.remember(hash(2), Some(&key(None)), generation);
    keys.remember(hash(2), None, generation);
    assert!(matches!(keys.find(&hash(2)), Memory::Unknown(_)));
    assert_eq!(keys.lock().keys.len(), 0);
}

/// After a doubt nothing is relied on that a look-up found which began before it, but whose key it was is still known. Without
/// this a revocation that commits during a look-up is missed.
#[test]
fn a_look_up_from_before_a_doubt_proves_nothing() {
    let keys = reliable();
    let before = generation(&keys);
    keys.remember(hash(1), Some(&key(None)), before);
    keys.doubt_all();
    keys.remember(hash(2), Some(&key(None)), before);
    let later = Instant::now() + Duration::from_hours(1);
    keys.rely_until(later);
    for number in [1, 2] {
        let Memory::Doubtful(now) = keys.find(&hash(number)) else {
            panic!("{number} is relied on, or not known");
        };
        assert_ne!(now, before);
        keys.remember(hash(number), Some(&key(None)), now);
        assert!(matches!(keys.find(&hash(number)), Memory::Reliable(_)));
    }
}

/// As long as nobody vouches, and once a key has expired, nothing is relied on. Without this "valid for a second" means half a minute.
#[test]
fn nothing_is_relied_on_for_longer_than_it_may() {
    let keys = RememberedKeys::default();
    let generation = generation(&keys);
    keys.remember(hash(1), Some(&key(None)), generation);
    assert!(matches!(keys.find(&hash(1)), Memory::Doubtful(_)));
    keys.rely_until(Instant::now() + Duration::from_hours(1));
    assert!(matches!(keys.find(&hash(1)), Memory::Reliable(_)));
    keys.remember(hash(2), Some(&key(Some(Duration::ZERO))), generation);
    assert!(matches!(keys.find(&hash(2)), Memory::Doubtful(_)));
    keys.rely_until(Instant::now());
    assert!(matches!(keys.find(&hash(1)), Memory::Doubtful(_)));
}
