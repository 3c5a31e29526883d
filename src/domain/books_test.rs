//! Proves that nothing is looked at or changed that was not asked for, and that each row is written once, in its last state.

use chrono::DateTime;
use rust_decimal::Decimal;
use uuid::Uuid;

use super::*;
use crate::domain::{AccountKind, AccountStatus, Name};

const TENANT: TenantId = TenantId(Uuid::from_u128(1));
const STRANGER: TenantId = TenantId(Uuid::from_u128(2));
const ALICE: AccountId = AccountId(Uuid::from_u128(3));

fn alice(entry_count: i64) -> Account {
    Account {
        id: ALICE,
        kind: AccountKind::Standard,
        status: AccountStatus::Active,
        currency: "USD".parse().unwrap(),
        balance: Decimal::ZERO,
        entry_count,
        name: Name::new("Alice".to_owned()).unwrap(),
        reference: None,
        metadata: None,
        created_at: DateTime::UNIX_EPOCH,
        last_entry_at: None,
    }
}

fn needs_alice() -> Needs {
    Needs {
        accounts: vec![ALICE],
        ..Needs::default()
    }
}

/// Without it a lock that somebody forgot becomes "there is no such account", stored under the key for good.
#[test]
fn what_nobody_asked_for_is_a_bug_and_what_is_not_there_is_an_answer() {
    let mut books = Books::default();
    assert!(books.account(TENANT, ALICE).is_err());
    assert!(books.update_account(TENANT, alice(0)).is_err());
    books.ask_for(TENANT, needs_alice());
    assert_eq!(books.account(TENANT, ALICE), Ok(None));
    assert!(books.account(STRANGER, ALICE).is_err(), "a tenant's own");
    assert!(
        books.update_account(TENANT, alice(0)).is_err(),
        "not locked, since not there"
    );
    books.hold_account(TENANT, alice(0));
    assert_eq!(books.account(TENANT, ALICE), Ok(Some(&alice(0))));
    books.ask_for(TENANT, needs_alice());
    assert_eq!(books.account(TENANT, ALICE), Ok(Some(&alice(0))), "asked for twice");
    assert_eq!(books.wanted_accounts().count(), 0);
}

/// Without it a row is written that nobody touched, or one that was is left out.
#[test]
fn a_row_is_new_or_changed_or_neither() {
    let states = |books: &Books| (books.new_accounts().count(), books.changed_accounts().count());
    let mut books = Books::default();
    books.ask_for(TENANT, needs_alice());
    assert_eq!(states(&books), (0, 0));
    books.hold_account(TENANT, alice(0));
    assert_eq!(states(&books), (0, 0));
    books.update_account(TENANT, alice(1)).unwrap();
    books.update_account(TENANT, alice(2)).unwrap();
    assert_eq!(books.changed_accounts().collect::<Vec<_>>(), [(TENANT, &alice(2))]);

    let mut books = Books::default();
    books.insert_account(TENANT, alice(0));
    books.update_account(TENANT, alice(1)).unwrap();
    assert_eq!(states(&books), (1, 0), "inserted once, as it is in the end");
    assert_eq!(books.new_accounts().collect::<Vec<_>>(), [(TENANT, &alice(1))]);
}
