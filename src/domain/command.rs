//! What can be asked of the service. A [`Command`] is already valid: whatever can be refused without
//! looking at the books has been.

use super::{AccountId, Description, Metadata, Name, PaymentId, Reference, TenantId};
use crate::money::{Amount, Currency, Sum};

/// Something that changes the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Open an account.
    OpenAccount(OpenAccount),
    /// Money in, from the external account.
    Deposit(Movement),
    /// Money out, to the external account.
    Withdraw(Movement),
    /// Let no money leave.
    Freeze(AccountId),
    /// Take that back.
    Unfreeze(AccountId),
    /// Let nothing move ever again.
    Close(AccountId),
    /// Charge the payer in favour of the payee.
    Pay(Pay),
    /// Give money of a payment back.
    Refund(RefundPayment),
}

/// What a command may look at and change: it is locked before the command is decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// These accounts.
    pub accounts: Vec<AccountId>,
    /// These payments, and with each its accounts ([`Payment::accounts`](super::Payment::accounts)).
    pub payments: Vec<PaymentId>,
}

impl Command {
    /// What the command may look at.
    #[must_use]
    pub fn needs(&self, tenant: TenantId) -> Needs {
        let accounts = |accounts| Needs {
            accounts,
            payments: vec![],
        };
        match self {
            Self::OpenAccount(_) => Needs::default(),
            Self::Deposit(movement) | Self::Withdraw(movement) => {
                let external = AccountId::external(tenant, movement.amount.currency());
                accounts(vec![movement.account, external])
            }
            Self::Freeze(id) | Self::Unfreeze(id) | Self::Close(id) => accounts(vec![*id]),
            Self::Pay(pay) => accounts(vec![pay.parties.payer(), pay.parties.payee()]),
            Self::Refund(refund) => Needs {
                accounts: vec![],
                payments: vec![refund.payment],
            },
        }
    }
}

/// Opens an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAccount {
    /// What it will hold.
    pub currency: Currency,
    /// What it is called.
    pub name: Name,
    /// The caller's own number for it.
    pub reference: Option<Reference>,
    /// The caller's own data.
    pub metadata: Option<Metadata>,
}

/// A deposit or a withdrawal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// The tenant's account.
    pub account: AccountId,
    /// How much.
    pub amount: Amount,
    /// Free text.
    pub description: Option<Description>,
}

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pay {
    /// Who pays whom.
    pub parties: Parties,
    /// How much.
    pub amount: Amount,
    /// Free text.
    pub description: Option<Description>,
    /// The caller's own number for it.
    pub reference: Option<Reference>,
    /// The caller's own data.
    pub metadata: Option<Metadata>,
}

/// Who pays whom: two different accounts. [`Parties::new`] is the only way to make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parties {
    payer: AccountId,
    payee: AccountId,
}

/// Payer and payee are one account: nothing would move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SameAccount(pub AccountId);

impl Parties {
    /// Two accounts.
    ///
    /// # Errors
    /// [`SameAccount`] if nobody would pay anybody.
    pub fn new(payer: AccountId, payee: AccountId) -> Result<Self, SameAccount> {
        if payer == payee {
            return Err(SameAccount(payer));
        }
        Ok(Self { payer, payee })
    }

    /// Whose money it is.
    #[must_use]
    pub fn payer(self) -> AccountId {
        self.payer
    }

    /// Whose it will be.
    #[must_use]
    pub fn payee(self) -> AccountId {
        self.payee
    }
}

impl Pay {
    /// A charge without texts.
    ///
    /// # Errors
    /// [`SameAccount`] if nobody would pay anybody.
    pub fn new(payer: AccountId, payee: AccountId, amount: Amount) -> Result<Self, SameAccount> {
        Ok(Self {
            parties: Parties::new(payer, payee)?,
            amount,
            description: None,
            reference: None,
            metadata: None,
        })
    }
}

/// A refund. Its currency is the payment's, so its sums have none yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundPayment {
    /// Of which payment.
    pub payment: PaymentId,
    /// How much; `None` is all that remains.
    pub amount: Option<Sum>,
    /// Why.
    pub reason: Option<Description>,
    /// Refuse unless just this much was refunded before.
    pub expected_refunded: Option<Sum>,
}
