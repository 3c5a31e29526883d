//! Proves that a name that was written can be read again, and that who sends another is told what there is.

use std::collections::BTreeSet;

use super::*;
use crate::domain::{AccountKind, AccountStatus, PaymentStatus, TransferKind};

macro_rules! read_what_they_write {
    ($($type:ident),+) => {$(
        let names: BTreeSet<_> = $type::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names.len(), $type::ALL.len(), "two have one name: {names:?}");
        for it in $type::ALL {
            assert_eq!($type::parse(it.as_str()), Ok(*it));
        }
        for wrong in ["", "Active", " refund", "nonsense"] {
            assert!($type::parse(wrong).is_err(), "{wrong}");
        }
    )+};
}

/// Without it a row is written that nobody can read again, and every list that it is on answers 500.
#[test]
fn a_name_that_is_written_is_read_as_what_it_was() {
    read_what_they_write!(AccountKind, AccountStatus, TransferKind, PaymentStatus);
}

/// Without it a caller who has misspelt a name learns that it is wrong, and not what would be right.
#[test]
fn an_unknown_name_is_answered_with_those_there_are() {
    let said = PaymentStatus::parse("paid").unwrap_err().to_string();
    assert_eq!(said, "must be succeeded, partially_refunded or refunded");
    let said = AccountKind::parse("").unwrap_err().to_string();
    assert_eq!(said, "must be standard or external");
    assert_eq!(UnknownName(&["one"]).to_string(), "must be one");
}
