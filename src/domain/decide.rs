//! All the rules of money.
//!
//! [`decide`] looks at rows that the transaction has locked, and says what shall become of them. It has no clock and makes
//! no ids: both come in as a [`Moment`], so the same books and the same command always give the same effect.
//! A refusal leaves the books as they were.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use uuid::Uuid;

use super::transfer::Side;
use super::{
    Account, AccountId, AccountKind, AccountStatus, Command, Description, Movement, OpenAccount, Party, Pay, Payment,
    PaymentId, Refund, RefundId, RefundPayment, Refusal, TenantId, Transfer, TransferKind,
};
use crate::money::{self, Amount};

/// The locked rows: what a batch of commands may look at and change.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Books {
    accounts: HashMap<(TenantId, AccountId), Account>,
    payments: HashMap<(TenantId, PaymentId), Payment>,
}

impl Books {
    /// Adds a locked account.
    pub fn add_account(&mut self, tenant: TenantId, account: Account) {
        self.accounts.insert((tenant, account.id), account);
    }

    /// Adds a locked payment.
    pub fn add_payment(&mut self, tenant: TenantId, payment: Payment) {
        self.payments.insert((tenant, payment.id), payment);
    }

    /// An account as it stands after the commands decided so far.
    #[must_use]
    pub fn account(&self, tenant: TenantId, id: AccountId) -> Option<&Account> {
        self.accounts.get(&(tenant, id))
    }

    /// A payment as it stands after the commands decided so far.
    #[must_use]
    pub fn payment(&self, tenant: TenantId, id: PaymentId) -> Option<&Payment> {
        self.payments.get(&(tenant, id))
    }

    /// All accounts.
    pub fn accounts(&self) -> impl Iterator<Item = (TenantId, &Account)> {
        self.accounts.iter().map(|((tenant, _), account)| (*tenant, account))
    }

    /// All payments.
    pub fn payments(&self) -> impl Iterator<Item = (TenantId, &Payment)> {
        self.payments.iter().map(|((tenant, _), payment)| (*tenant, payment))
    }

    /// The account, if the tenant may name it: external accounts are nobody's to name.
    fn named(&self, tenant: TenantId, party: Party, id: AccountId) -> Result<&Account, Refusal> {
        self.account(tenant, id)
            .filter(|account| account.kind == AccountKind::Standard)
            .ok_or(Refusal::NoSuchAccount(party, id))
    }
}

/// What `decide` may not make itself.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The database's time, taken once all locks were held. Money moves then, or later: see [`Account::time_of_next_entry`].
    pub now: DateTime<Utc>,
    /// The id of whatever the command creates.
    pub id: Uuid,
}

/// What a command brought about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A new account.
    Opened(Account),
    /// An account with another status (or the same, where it already had it).
    StatusSet(Account),
    /// A deposit.
    Deposited(Transfer),
    /// A withdrawal.
    Withdrawn(Transfer),
    /// A payment.
    Paid(Payment, Transfer),
    /// A refund.
    Refunded(Refund, Transfer),
}

impl Effect {
    /// The row of the ledger, if money moved.
    #[must_use]
    pub fn transfer(&self) -> Option<&Transfer> {
        match self {
            Self::Opened(_) | Self::StatusSet(_) => None,
            Self::Deposited(transfer)
            | Self::Withdrawn(transfer)
            | Self::Paid(_, transfer)
            | Self::Refunded(_, transfer) => Some(transfer),
        }
    }
}

/// Decides one command, and carries an accepted one out on the books.
///
/// # Errors
/// A [`Refusal`]; the books are then unchanged.
pub fn decide(books: &mut Books, tenant: TenantId, command: &Command, moment: Moment) -> Result<Effect, Refusal> {
    match command {
        Command::OpenAccount(open) => Ok(open_account(open, moment)),
        Command::Deposit(movement) => deposit(books, tenant, movement, moment),
        Command::Withdraw(movement) => withdraw(books, tenant, movement, moment),
        Command::Freeze(id) => set_status(books, tenant, *id, AccountStatus::Frozen),
        Command::Unfreeze(id) => set_status(books, tenant, *id, AccountStatus::Active),
        Command::Close(id) => set_status(books, tenant, *id, AccountStatus::Closed),
        Command::Pay(pay) => charge(books, tenant, pay, moment),
        Command::Refund(refund) => give_back(books, tenant, refund, moment),
    }
}

fn open_account(open: &OpenAccount, moment: Moment) -> Effect {
    Effect::Opened(Account {
        id: AccountId(moment.id),
        kind: AccountKind::Standard,
        status: AccountStatus::Active,
        currency: open.currency,
        balance: open.currency.exact(Decimal::ZERO),
        entry_count: 0,
        last_entry_at: None,
        name: open.name.clone(),
        reference: open.reference.clone(),
        metadata: open.metadata.clone(),
        created_at: moment.now,
    })
}

fn deposit(books: &mut Books, tenant: TenantId, movement: &Movement, moment: Moment) -> Result<Effect, Refusal> {
    let route = Route {
        kind: TransferKind::Deposit,
        from: AccountId::external(tenant, movement.amount.currency()),
        to: movement.account,
    };
    move_money(books, tenant, route, movement, moment).map(Effect::Deposited)
}

fn withdraw(books: &mut Books, tenant: TenantId, movement: &Movement, moment: Moment) -> Result<Effect, Refusal> {
    let route = Route {
        kind: TransferKind::Withdrawal,
        from: movement.account,
        to: AccountId::external(tenant, movement.amount.currency()),
    };
    move_money(books, tenant, route, movement, moment).map(Effect::Withdrawn)
}

fn move_money(
    books: &mut Books,
    tenant: TenantId,
    route: Route,
    movement: &Movement,
    moment: Moment,
) -> Result<Transfer, Refusal> {
    let account = books.named(tenant, Party::Account, movement.account)?;
    check_currency(account, Party::Account, movement.amount)?;
    transfer(
        books,
        tenant,
        route,
        movement.amount,
        movement.description.clone(),
        moment,
    )
}

/// To set the status that an account already has is no error: the caller gets what was asked for.
fn set_status(books: &mut Books, tenant: TenantId, id: AccountId, status: AccountStatus) -> Result<Effect, Refusal> {
    let account = books.named(tenant, Party::Account, id)?;
    if account.status == AccountStatus::Closed && status != AccountStatus::Closed {
        return Err(Refusal::AccountClosed(id));
    }
    if status == AccountStatus::Closed && !account.balance.is_zero() {
        return Err(Refusal::AccountNotEmpty {
            balance: account.balance,
            currency: account.currency,
        });
    }
    let account = Account {
        status,
        ..account.clone()
    };
    books.add_account(tenant, account.clone());
    Ok(Effect::StatusSet(account))
}

fn charge(books: &mut Books, tenant: TenantId, pay: &Pay, moment: Moment) -> Result<Effect, Refusal> {
    let (payer_id, payee_id) = (pay.parties.payer(), pay.parties.payee());
    let payer = books.named(tenant, Party::Payer, payer_id)?;
    let payee = books.named(tenant, Party::Payee, payee_id)?;
    check_currency(payer, Party::Payer, pay.amount)?;
    check_currency(payee, Party::Payee, pay.amount)?;
    let route = Route {
        kind: TransferKind::Payment,
        from: payer_id,
        to: payee_id,
    };
    let transfer = transfer(books, tenant, route, pay.amount, None, moment)?;
    let payment = Payment {
        id: PaymentId(moment.id),
        payer: payer_id,
        payee: payee_id,
        amount: pay.amount,
        refunded: pay.amount.currency().exact(Decimal::ZERO),
        description: pay.description.clone(),
        reference: pay.reference.clone(),
        metadata: pay.metadata.clone(),
        created_at: transfer.created_at,
    };
    books.add_payment(tenant, payment.clone());
    Ok(Effect::Paid(payment, transfer))
}

fn give_back(books: &mut Books, tenant: TenantId, ask: &RefundPayment, moment: Moment) -> Result<Effect, Refusal> {
    let payment = books
        .payment(tenant, ask.payment)
        .ok_or(Refusal::NoSuchPayment(ask.payment))?;
    let refundable = payment.refundable();
    if ask
        .expected_refunded
        .is_some_and(|expected| expected.value() != payment.refunded)
    {
        return Err(Refusal::RefundedAmountChanged {
            refunded: payment.refunded,
        });
    }
    if refundable.is_zero() {
        return Err(Refusal::RefundExceedsRemaining { refundable });
    }
    let amount = match ask.amount {
        Some(sum) => sum.in_currency(payment.currency()),
        None => Amount::new(refundable, payment.currency()),
    }
    .map_err(Refusal::RefundAmount)?;
    if amount.value() > refundable {
        return Err(Refusal::RefundExceedsRemaining { refundable });
    }
    let refunded = payment.currency().exact(payment.refunded + amount.value());
    let after = Payment {
        refunded,
        ..payment.clone()
    };
    let route = Route {
        kind: TransferKind::Refund,
        from: payment.payee,
        to: payment.payer,
    };
    let transfer = transfer(books, tenant, route, amount, None, moment)?;
    books.add_payment(tenant, after);
    let refund = Refund {
        id: RefundId(moment.id),
        payment: ask.payment,
        amount,
        reason: ask.reason.clone(),
        created_at: transfer.created_at,
    };
    Ok(Effect::Refunded(refund, transfer))
}

fn check_currency(account: &Account, party: Party, amount: Amount) -> Result<(), Refusal> {
    if account.currency == amount.currency() {
        return Ok(());
    }
    Err(Refusal::CurrencyMismatch {
        party,
        holds: account.currency,
        asked: amount.currency(),
    })
}

/// Between which accounts money goes, and why.
#[derive(Clone, Copy)]
struct Route {
    kind: TransferKind,
    from: AccountId,
    to: AccountId,
}

/// The only place where a balance changes.
fn transfer(
    books: &mut Books,
    tenant: TenantId,
    route: Route,
    amount: Amount,
    description: Option<Description>,
    moment: Moment,
) -> Result<Transfer, Refusal> {
    let no_such = |id| Refusal::NoSuchAccount(Party::Account, id);
    let from = books.account(tenant, route.from).ok_or(no_such(route.from))?;
    let to = books.account(tenant, route.to).ok_or(no_such(route.to))?;
    to.permits_credit()?;
    from.permits_debit()?;
    let at = to.time_of_next_entry(from.time_of_next_entry(moment.now));
    let from = after_debit(from, amount, at)?;
    let to = after_credit(to, amount, at)?;
    let side = |account: &Account| Side {
        account: account.id,
        entry_no: account.entry_count,
        balance_after: account.balance,
    };
    let transfer = Transfer {
        id: moment.id,
        kind: route.kind,
        amount,
        debit: side(&from),
        credit: side(&to),
        description,
        created_at: at,
    };
    books.add_account(tenant, from);
    books.add_account(tenant, to);
    Ok(transfer)
}

fn after_debit(account: &Account, amount: Amount, at: DateTime<Utc>) -> Result<Account, Refusal> {
    let balance = account.balance - amount.value();
    if account.kind == AccountKind::Standard && balance < Decimal::ZERO {
        return Err(Refusal::InsufficientFunds(account.id));
    }
    with_entry(account, balance, at)
}

fn after_credit(account: &Account, amount: Amount, at: DateTime<Utc>) -> Result<Account, Refusal> {
    with_entry(account, account.balance + amount.value(), at)
}

fn with_entry(account: &Account, balance: Decimal, at: DateTime<Utc>) -> Result<Account, Refusal> {
    if balance > money::MAX || balance < -money::EXTERNAL_MAX {
        return Err(Refusal::BalanceOverflow(account.id));
    }
    let balance = account.currency.exact(balance);
    Ok(Account {
        balance,
        entry_count: account.entry_count + 1,
        last_entry_at: Some(at),
        ..account.clone()
    })
}

#[cfg(test)]
#[path = "decide_test.rs"]
mod tests;

#[cfg(test)]
#[path = "decide_property_test.rs"]
mod properties;
