//! Ids: one type each, so that a payment's id can not stand where an account's is meant.

use std::fmt;

use uuid::Uuid;

use crate::money::Currency;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }
    )+};
}

ids! {
    /// A customer of the service.
    TenantId,
    /// An account of a tenant.
    AccountId,
    /// A payment, and the transfer that moved its money.
    PaymentId,
    /// A refund, and the transfer that moved its money.
    RefundId,
}

impl AccountId {
    /// The account that stands for the world outside: where a tenant's deposits in `currency` come from.
    ///
    /// Derived (UUIDv5), not made up: each instance knows it without asking, so it is locked in the same
    /// statement as the other accounts.
    #[must_use]
    pub fn external(tenant: TenantId, currency: Currency) -> Self {
        Self(Uuid::new_v5(&tenant.0, currency.code().as_bytes()))
    }
}
