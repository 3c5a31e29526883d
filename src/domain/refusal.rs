//! Every "no" the rules can say. A refusal is an ordinary outcome: it is stored and replayed like a success.

use rust_decimal::Decimal;

use super::{AccountId, PaymentId};
use crate::money::{Currency, MoneyError};

/// The part an account plays in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The account in the path.
    Account,
    /// Whose money a payment takes.
    Payer,
    /// Who a payment is for.
    Payee,
}

/// Why a command was refused. Amounts are in major units with the currency's decimals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant has no such account.
    NoSuchAccount(Party, AccountId),
    /// The tenant has no such payment.
    NoSuchPayment(PaymentId),
    /// The account holds another currency.
    CurrencyMismatch {
        /// Which account.
        party: Party,
        /// What it holds.
        holds: Currency,
        /// What was asked for.
        asked: Currency,
    },
    /// No money may leave the account.
    AccountFrozen(AccountId),
    /// Nothing may move on the account.
    AccountClosed(AccountId),
    /// Only an empty account can be closed.
    AccountNotEmpty {
        /// What is left in it.
        balance: Decimal,
        /// Of what.
        currency: Currency,
    },
    /// The account has less than the amount.
    InsufficientFunds(AccountId),
    /// The balance would pass the largest that can be kept.
    BalanceOverflow(AccountId),
    /// The refund's amount does not exist in the payment's currency.
    RefundAmount(MoneyError),
    /// The refund is more than what remains of the payment.
    RefundExceedsRemaining {
        /// What remains.
        refundable: Decimal,
    },
    /// Somebody else has refunded in the meantime.
    RefundedAmountChanged {
        /// What has been refunded by now.
        refunded: Decimal,
    },
}
