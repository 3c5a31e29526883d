//! All the rules of money.
//!
//! [`decide`] looks at rows that the transaction has locked ([`Books`]), and says what shall become of them. It has no clock and
//! makes no ids: both come in as a [`Context`], so the same books and the same command always give the same effect.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use uuid::Uuid;

use super::books::NotHeld;
use super::transfer::Side;
use super::{
    Account, AccountId, AccountKind, AccountStatus, Books, Command, Description, Movement, OpenAccount, Party, Pay,
    Payment, PaymentId, Refund, RefundId, RefundPayment, Refusal, TenantId, Transfer, TransferKind,
};
use crate::money::{self, Amount};

/// What `decide` may not make itself.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// Whose command it is.
    pub tenant: TenantId,
    /// The database's time, taken once all locks were held. Money moves then, or later: see [`Account::time_of_next_entry`].
    pub now: DateTime<Utc>,
    /// The id of whatever the command creates.
    pub new_id: Uuid,
}

/// What came of a command, as its answer shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A new account.
    Opened(Account),
    /// An account that was there, as it is now.
    Account(Account),
    /// A deposit.
    Deposit(Transfer),
    /// A withdrawal.
    Withdrawal(Transfer),
    /// A payment.
    Payment(Payment),
    /// A refund.
    Refund(Refund),
}

/// Why a command has no effect: a rule says no, or the rules have a bug.
enum Stop {
    Refused(Refusal),
    Bug(NotHeld),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NotHeld> for Stop {
    fn from(bug: NotHeld) -> Self {
        Self::Bug(bug)
    }
}

/// Decides one command, and carries an accepted one out on the books. A [`Refusal`] is an ordinary outcome, and leaves the books
/// as they were.
///
/// # Errors
/// [`NotHeld`]: a bug. The books are then worth nothing.
pub fn decide(books: &mut Books, command: &Command, context: Context) -> Result<Result<Effect, Refusal>, NotHeld> {
    let decided = match command {
        Command::OpenAccount(open) => Ok(open_account(books, open, context)),
        Command::Deposit(movement) => deposit(books, movement, context),
        Command::Withdraw(movement) => withdraw(books, movement, context),
        Command::Freeze(id) => set_status(books, *id, AccountStatus::Frozen, context),
        Command::Unfreeze(id) => set_status(books, *id, AccountStatus::Active, context),
        Command::Close(id) => set_status(books, *id, AccountStatus::Closed, context),
        Command::Pay(pay) => charge(books, pay, context),
        Command::Refund(refund) => refund_payment(books, refund, context),
    };
    match decided {
        Ok(effect) => Ok(Ok(effect)),
        Err(Stop::Refused(refusal)) => Ok(Err(refusal)),
        Err(Stop::Bug(bug)) => Err(bug),
    }
}

/// The account, if the tenant may name it: external accounts are nobody's to name.
fn named(books: &Books, party: Party, id: AccountId, context: Context) -> Result<&Account, Stop> {
    let account = books.account(context.tenant, id)?;
    let account = account.filter(|account| account.kind == AccountKind::Standard);
    Ok(account.ok_or(Refusal::NoSuchAccount(party, id))?)
}

fn open_account(books: &mut Books, open: &OpenAccount, context: Context) -> Effect {
    let account = Account {
        id: AccountId(context.new_id),
        kind: AccountKind::Standard,
        status: AccountStatus::Active,
        currency: open.currency,
        balance: open.currency.exact(Decimal::ZERO),
        entry_count: 0,
        last_entry_at: None,
        name: open.name.clone(),
        reference: open.reference.clone(),
        metadata: open.metadata.clone(),
        created_at: context.now,
    };
    books.insert_account(context.tenant, account.clone());
    Effect::Opened(account)
}

fn deposit(books: &mut Books, movement: &Movement, context: Context) -> Result<Effect, Stop> {
    let route = Route {
        kind: TransferKind::Deposit,
        from: AccountId::external(context.tenant, movement.amount.currency()),
        to: movement.account,
    };
    move_money(books, route, movement, context).map(Effect::Deposit)
}

fn withdraw(books: &mut Books, movement: &Movement, context: Context) -> Result<Effect, Stop> {
    let route = Route {
        kind: TransferKind::Withdrawal,
        from: movement.account,
        to: AccountId::external(context.tenant, movement.amount.currency()),
    };
    move_money(books, route, movement, context).map(Effect::Withdrawal)
}

fn move_money(books: &mut Books, route: Route, movement: &Movement, context: Context) -> Result<Transfer, Stop> {
    let account = named(books, Party::Account, movement.account, context)?;
    check_currency(account, Party::Account, movement.amount)?;
    transfer(books, route, movement.amount, movement.description.clone(), context)
}

/// To set the status that an account already has is no error: the caller gets what was asked for.
fn set_status(books: &mut Books, id: AccountId, status: AccountStatus, context: Context) -> Result<Effect, Stop> {
    let account = named(books, Party::Account, id, context)?;
    if account.status == AccountStatus::Closed && status != AccountStatus::Closed {
        return Err(Refusal::AccountClosed(id).into());
    }
    if status == AccountStatus::Closed && !account.balance.is_zero() {
        return Err(Refusal::AccountNotEmpty {
            balance: account.balance,
            currency: account.currency,
        }
        .into());
    }
    let account = Account {
        status,
        ..account.clone()
    };
    books.update_account(context.tenant, account.clone())?;
    Ok(Effect::Account(account))
}

fn charge(books: &mut Books, pay: &Pay, context: Context) -> Result<Effect, Stop> {
    let (payer_id, payee_id) = (pay.parties.payer(), pay.parties.payee());
    let payer = named(books, Party::Payer, payer_id, context)?;
    let payee = named(books, Party::Payee, payee_id, context)?;
    check_currency(payer, Party::Payer, pay.amount)?;
    check_currency(payee, Party::Payee, pay.amount)?;
    let route = Route {
        kind: TransferKind::Payment,
        from: payer_id,
        to: payee_id,
    };
    let transfer = transfer(books, route, pay.amount, None, context)?;
    let payment = Payment {
        id: PaymentId(transfer.id),
        payer: payer_id,
        payee: payee_id,
        amount: pay.amount,
        refunded: pay.amount.currency().exact(Decimal::ZERO),
        description: pay.description.clone(),
        reference: pay.reference.clone(),
        metadata: pay.metadata.clone(),
        created_at: transfer.created_at,
    };
    books.insert_payment(context.tenant, payment.clone());
    Ok(Effect::Payment(payment))
}

fn refund_payment(books: &mut Books, ask: &RefundPayment, context: Context) -> Result<Effect, Stop> {
    let payment = books.payment(context.tenant, ask.payment)?;
    let payment = payment.ok_or(Refusal::NoSuchPayment(ask.payment))?;
    let refundable = payment.refundable();
    if ask
        .expected_refunded
        .is_some_and(|expected| expected.value() != payment.refunded)
    {
        return Err(Refusal::RefundedAmountChanged {
            refunded: payment.refunded,
        }
        .into());
    }
    if refundable.is_zero() {
        return Err(Refusal::RefundExceedsRemaining { refundable }.into());
    }
    let amount = match ask.amount {
        Some(sum) => sum.in_currency(payment.currency()),
        None => Amount::new(refundable, payment.currency()),
    }
    .map_err(Refusal::RefundAmount)?;
    if amount.value() > refundable {
        return Err(Refusal::RefundExceedsRemaining { refundable }.into());
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
    let transfer = transfer(books, route, amount, None, context)?;
    books.update_payment(context.tenant, after)?;
    let refund = Refund {
        id: RefundId(transfer.id),
        payment: ask.payment,
        amount,
        reason: ask.reason.clone(),
        created_at: transfer.created_at,
    };
    books.insert_refund(context.tenant, refund.clone());
    Ok(Effect::Refund(refund))
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
    route: Route,
    amount: Amount,
    description: Option<Description>,
    context: Context,
) -> Result<Transfer, Stop> {
    let no_such = |id| Refusal::NoSuchAccount(Party::Account, id);
    let from = books.account(context.tenant, route.from)?.ok_or(no_such(route.from))?;
    let to = books.account(context.tenant, route.to)?.ok_or(no_such(route.to))?;
    to.permits_credit()?;
    from.permits_debit()?;
    let at = to.time_of_next_entry(from.time_of_next_entry(context.now));
    let from = after_debit(from, amount, at)?;
    let to = after_credit(to, amount, at)?;
    let side = |account: &Account| Side {
        account: account.id,
        entry_no: account.entry_count,
        balance_after: account.balance,
    };
    let transfer = Transfer {
        id: context.new_id,
        kind: route.kind,
        amount,
        debit: side(&from),
        credit: side(&to),
        description,
        created_at: at,
    };
    books.update_account(context.tenant, from)?;
    books.update_account(context.tenant, to)?;
    books.insert_transfer(context.tenant, transfer.clone());
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
