//! Proves what holds for every sequence of commands on any books: money is conserved, no balance leaves its range, refunds never
//! exceed the charge, a refusal changes nothing, and a batch gives what its commands one by one would give.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use chrono::TimeDelta;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::domain::Name;
use crate::money::{Currency, EXTERNAL_MAX, MAX, Sum};

const TENANTS: [TenantId; 2] = [TenantId(Uuid::from_u128(1)), TenantId(Uuid::from_u128(2))];
const CODES: [&str; 3] = ["USD", "JPY", "KWD"];
/// Standard accounts of a tenant in each currency.
const SIBLINGS: u128 = 3;
/// The command at place `n` of a sequence makes whatever it makes under this id plus `n`.
const MADE: u128 = 1 << 64;

fn currency(code: &str) -> Currency {
    code.parse().unwrap()
}

fn minor(value: u32, currency: Currency) -> Decimal {
    Decimal::new(value.into(), currency.decimals())
}

/// Every account there is at the start: two tenants, three currencies, each with an external account.
static ACCOUNTS: LazyLock<Vec<(TenantId, AccountId, AccountKind, Currency)>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for tenant in TENANTS {
        for (number, code) in CODES.iter().enumerate() {
            let currency = currency(code);
            all.push((
                tenant,
                AccountId::external(tenant, currency),
                AccountKind::External,
                currency,
            ));
            for sibling in 0..SIBLINGS {
                let id = Uuid::from_u128(tenant.0.as_u128() * 1000 + u128::try_from(number).unwrap() * 10 + sibling);
                all.push((tenant, AccountId(id), AccountKind::Standard, currency));
            }
        }
    }
    all
});

fn statuses() -> impl Strategy<Value = AccountStatus> {
    prop_oneof![
        12 => Just(AccountStatus::Active),
        1 => Just(AccountStatus::Frozen),
        1 => Just(AccountStatus::Closed),
    ]
}

/// Books with random balances: mostly small, so that accounts run dry, a few close to the largest.
fn random_books() -> impl Strategy<Value = Books> {
    let account = (statuses(), 0..3000_u32, prop::bool::weighted(0.05), 0..50_i64);
    prop::collection::vec(account, ACCOUNTS.len()).prop_map(|rows| {
        let mut books = Books::default();
        for ((tenant, id, kind, currency), (status, small, rich, entry_count)) in ACCOUNTS.iter().copied().zip(rows) {
            let largest = MAX.trunc_with_scale(currency.decimals());
            let balance = match kind {
                AccountKind::External => -minor(small, currency),
                AccountKind::Standard if status == AccountStatus::Closed => Decimal::ZERO,
                AccountKind::Standard if rich => largest - minor(small, currency),
                AccountKind::Standard => minor(small, currency),
            };
            let status = if kind == AccountKind::External {
                AccountStatus::Active
            } else {
                status
            };
            let account = Account {
                id,
                kind,
                status,
                currency,
                balance: currency.exact(balance),
                entry_count,
                name: Name::new("somebody".to_owned()).unwrap(),
                reference: None,
                metadata: None,
                created_at: DateTime::UNIX_EPOCH,
                last_entry_at: (entry_count > 25)
                    .then_some(DateTime::UNIX_EPOCH + TimeDelta::microseconds(entry_count)),
            };
            books.hold_account(tenant, account);
        }
        books
    })
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Open,
    Deposit,
    Withdraw,
    Freeze,
    Unfreeze,
    Close,
    Pay,
    Refund,
}

/// How much a refund asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Some,
    TooPrecise,
}

/// A command before its ids are known. `stray` ones may name any account: of another currency or tenant, external, or unknown.
#[derive(Debug, Clone)]
struct Draft {
    verb: Verb,
    tenant: TenantId,
    currency: Currency,
    from: Index,
    to: Index,
    stray: bool,
    minor: u32,
    part: Part,
    expects_none: bool,
    /// What the clock shows, in microseconds: it goes forward and back.
    clock: i64,
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let verb = prop_oneof![
        1 => Just(Verb::Open),
        3 => Just(Verb::Deposit),
        3 => Just(Verb::Withdraw),
        1 => Just(Verb::Freeze),
        1 => Just(Verb::Unfreeze),
        1 => Just(Verb::Close),
        10 => Just(Verb::Pay),
        8 => Just(Verb::Refund),
    ];
    let who = (
        prop::sample::select(&TENANTS[..]),
        prop::sample::select(&CODES[..]),
        any::<(Index, Index)>(),
    );
    let part = prop_oneof![3 => Just(Part::All), 3 => Just(Part::Some), 1 => Just(Part::TooPrecise)];
    let how = (
        prop::bool::weighted(0.15),
        1..2000_u32,
        part,
        prop::bool::weighted(0.2),
        0..20_i64,
    );
    let draft = (verb, who, how).prop_map(|(verb, (tenant, code, (from, to)), how)| Draft {
        verb,
        tenant,
        currency: currency(code),
        from,
        to,
        stray: how.0,
        minor: how.1,
        part: how.2,
        expects_none: how.3,
        clock: how.4,
    });
    prop::collection::vec(draft, 1..60)
}

impl Draft {
    fn account(&self, index: Index) -> AccountId {
        let known = ACCOUNTS.iter().copied();
        if self.stray {
            let unknown = AccountId(Uuid::from_u128(404));
            let ids: Vec<_> = known.map(|(_, id, ..)| id).chain([unknown]).collect();
            return *index.get(&ids);
        }
        let own = |(tenant, id, kind, currency)| {
            (tenant == self.tenant && kind == AccountKind::Standard && currency == self.currency).then_some(id)
        };
        *index.get(&known.filter_map(own).collect::<Vec<_>>())
    }

    /// `earlier`: the payments asked for before, whether or not they went through.
    fn command(&self, earlier: &[(TenantId, PaymentId)]) -> Command {
        let amount = Amount::new(minor(self.minor, self.currency), self.currency).unwrap();
        let account = self.account(self.from);
        let movement = Movement {
            account,
            amount,
            description: None,
        };
        match self.verb {
            Verb::Open => Command::OpenAccount(OpenAccount {
                currency: self.currency,
                name: Name::new("new".to_owned()).unwrap(),
                reference: None,
                metadata: None,
            }),
            Verb::Deposit => Command::Deposit(movement),
            Verb::Withdraw => Command::Withdraw(movement),
            Verb::Freeze => Command::Freeze(account),
            Verb::Unfreeze => Command::Unfreeze(account),
            Verb::Close => Command::Close(account),
            // Nobody pays himself: then it is a deposit.
            Verb::Pay => {
                Pay::new(account, self.account(self.to), amount).map_or(Command::Deposit(movement), Command::Pay)
            }
            Verb::Refund => Command::Refund(self.refund(earlier)),
        }
    }

    fn refund(&self, earlier: &[(TenantId, PaymentId)]) -> RefundPayment {
        let own: Vec<_> = earlier
            .iter()
            .filter(|(tenant, _)| *tenant == self.tenant || self.stray)
            .map(|(_, payment)| *payment)
            .collect();
        let payment = if own.is_empty() {
            PaymentId(Uuid::from_u128(404))
        } else {
            *self.from.get(&own)
        };
        let scale = match self.part {
            Part::TooPrecise => 4,
            Part::All | Part::Some => self.currency.decimals(),
        };
        let amount = Decimal::new(self.minor.into(), scale).to_string();
        RefundPayment {
            payment,
            amount: (self.part != Part::All).then(|| Sum::parse_positive(&amount).unwrap()),
            reason: None,
            expected_refunded: self.expects_none.then(|| Sum::parse("0").unwrap()),
        }
    }
}

/// The commands of a sequence, each with its context.
fn commands(drafts: &[Draft]) -> Vec<(Command, Context)> {
    let mut earlier = Vec::new();
    let mut commands = Vec::new();
    for (draft, id) in drafts.iter().zip(MADE..) {
        let command = draft.command(&earlier);
        let id = Uuid::from_u128(id);
        if let Command::Pay(_) = command {
            earlier.push((draft.tenant, PaymentId(id)));
        }
        let context = Context {
            tenant: draft.tenant,
            now: DateTime::UNIX_EPOCH + TimeDelta::microseconds(draft.clock),
            new_id: id,
        };
        commands.push((command, context));
    }
    commands
}

/// All money, by tenant and currency.
fn totals(books: &Books) -> BTreeMap<(TenantId, &'static str), Decimal> {
    let mut totals = BTreeMap::new();
    for (tenant, account) in books.accounts() {
        *totals.entry((tenant, account.currency.code())).or_default() += account.balance;
    }
    totals
}

/// Decides on books that have been asked for what the command needs, as the transaction does it. That this is enough for every
/// rule is a property of its own: it holds wherever this is called.
fn decide_asked(books: &mut Books, command: &Command, context: Context) -> Result<Effect, Refusal> {
    books.ask_for(context.tenant, command.needs(context.tenant));
    decide(books, command, context).unwrap()
}

/// Just the rows that a command locks, from those that are stored.
fn rows_for(stored: &Books, command: &Command, tenant: TenantId) -> Books {
    let mut rows = Books::default();
    rows.ask_for(tenant, command.needs(tenant));
    let payments: Vec<_> = rows.wanted_payments().collect();
    for (owner, payment) in stored.payments() {
        if payments.contains(&(owner, payment.id)) {
            rows.hold_payment(owner, payment.clone());
        }
    }
    let accounts: Vec<_> = rows.wanted_accounts().collect();
    for (owner, account) in stored.accounts() {
        if accounts.contains(&(owner, account.id)) {
            rows.hold_account(owner, account.clone());
        }
    }
    rows
}

/// Writes back what a transaction writes at its end.
fn write_back(stored: &mut Books, rows: &Books) {
    for (tenant, account) in rows.new_accounts().chain(rows.changed_accounts()) {
        stored.hold_account(tenant, account.clone());
    }
    for (tenant, payment) in rows.new_payments().chain(rows.changed_payments()) {
        stored.hold_payment(tenant, payment.clone());
    }
}

/// A transfer tells the truth about both accounts, and no third one has changed.
fn check_transfer(tenant: TenantId, transfer: &Transfer, before: &Books, after: &Books) {
    let amount = transfer.amount.value();
    for (side, moved) in [(transfer.debit, -amount), (transfer.credit, amount)] {
        let old = before.account(tenant, side.account).unwrap().unwrap();
        let new = after.account(tenant, side.account).unwrap().unwrap();
        assert_eq!(old.currency, transfer.amount.currency());
        assert_eq!(new.balance, old.balance + moved);
        assert_eq!(new.entry_count, old.entry_count + 1, "entry numbers go up by one");
        assert_eq!((side.balance_after, side.entry_no), (new.balance, new.entry_count));
        assert_eq!(side.balance_after.scale(), new.currency.decimals());
    }
    assert_ne!(transfer.debit.account, transfer.credit.account);
    let moved = [transfer.debit.account, transfer.credit.account].map(|id| (tenant, id));
    for (owner, account) in after.accounts() {
        if !moved.contains(&(owner, account.id)) {
            assert_eq!(
                before.account(owner, account.id),
                Ok(Some(account)),
                "a third account changed"
            );
        }
    }
}

/// Money moves now, or just after the last entry of one of the accounts where the clock has gone back behind that, and both remember it.
fn check_time(tenant: TenantId, transfer: &Transfer, now: DateTime<Utc>, before: &Books, after: &Books) {
    let at = transfer.created_at;
    let mut reasons = vec![now];
    for side in [transfer.debit, transfer.credit] {
        let old = before.account(tenant, side.account).unwrap().unwrap();
        let last = old.last_entry_at.unwrap_or(old.created_at);
        assert!(at > last, "an entry as old as the one before, or older");
        reasons.push(last + TimeDelta::microseconds(1));
        let new = after.account(tenant, side.account).unwrap().unwrap();
        assert_eq!(new.last_entry_at, Some(at));
    }
    assert_eq!(Some(at), reasons.into_iter().max(), "later than it need be");
    if let Ok(Some(payment)) = after.payment(tenant, PaymentId(transfer.id)) {
        assert_eq!(payment.created_at, at);
    }
}

proptest! {
    /// Without it money is made or lost by some sequence of commands that nobody thought of.
    #[test]
    fn money_is_conserved_and_each_transfer_tells_the_truth(mut books in random_books(), drafts in drafts()) {
        let money = totals(&books);
        for (command, context) in commands(&drafts) {
            books.ask_for(context.tenant, command.needs(context.tenant));
            let before = books.clone();
            match decide(&mut books, &command, context).unwrap() {
                Err(_) => prop_assert_eq!(&books, &before, "a refusal changed the books"),
                Ok(_) => for (tenant, transfer) in books.transfers().skip(before.transfers().count()) {
                    prop_assert_eq!(tenant, context.tenant);
                    check_transfer(tenant, transfer, &before, &books);
                    check_time(tenant, transfer, context.now, &before, &books);
                    prop_assert_eq!(transfer.id, context.new_id);
                }
            }
            prop_assert_eq!(totals(&books), money.clone());
        }
    }

    /// Without it some account owes the service, or holds what its column can't.
    #[test]
    fn no_balance_leaves_its_range(mut books in random_books(), drafts in drafts()) {
        for (command, context) in commands(&drafts) {
            let _either = decide_asked(&mut books, &command, context);
            for (_, account) in books.accounts() {
                prop_assert!(account.balance <= MAX && account.balance >= -EXTERNAL_MAX);
                prop_assert!(account.kind == AccountKind::External || account.balance >= Decimal::ZERO);
                prop_assert!(account.status != AccountStatus::Closed || account.balance.is_zero());
            }
        }
    }

    /// Without it some sequence of refunds gives back more than was paid, or a payment forgets one.
    #[test]
    fn refunds_never_exceed_the_charge_and_add_up(mut books in random_books(), drafts in drafts()) {
        let mut given_back: BTreeMap<PaymentId, Decimal> = BTreeMap::new();
        for (command, context) in commands(&drafts) {
            if let Ok(Effect::Refund(refund)) = decide_asked(&mut books, &command, context) {
                *given_back.entry(refund.payment).or_default() += refund.amount.value();
                let payment = books.payment(context.tenant, refund.payment).unwrap().unwrap();
                let (_, transfer) = books.transfers().last().unwrap();
                prop_assert_eq!((transfer.debit.account, transfer.credit.account), (payment.payee, payment.payer));
            }
        }
        for (_, payment) in books.payments() {
            let sum = given_back.get(&payment.id).copied().unwrap_or_default();
            prop_assert_eq!(payment.refunded, sum);
            prop_assert!(payment.refunded <= payment.amount.value());
            prop_assert_eq!(payment.refunded + payment.refundable(), payment.amount.value());
        }
    }

    /// Without it an answer depends on what happened to wait in the queue beside the request.
    #[test]
    fn a_batch_gives_what_its_commands_one_by_one_would_give(books in random_books(), drafts in drafts()) {
        let mut batch = books.clone();
        let mut storage = books;
        for (command, context) in commands(&drafts) {
            let mut rows = rows_for(&storage, &command, context.tenant);
            let alone = decide(&mut rows, &command, context).unwrap();
            write_back(&mut storage, &rows);
            prop_assert_eq!(decide_asked(&mut batch, &command, context), alone);
            prop_assert!(batch.accounts().eq(storage.accounts()));
            prop_assert!(batch.payments().eq(storage.payments()));
        }
    }
}

/// Without it the properties above may hold because nothing ever happens in them.
#[test]
fn the_random_commands_reach_every_effect_and_every_refusal() {
    let name = |decision: &Result<Effect, Refusal>| {
        let debug = decision
            .as_ref()
            .map_or_else(|refusal| format!("{refusal:?}"), |effect| format!("{effect:?}"));
        debug.split(['(', ' ']).next().unwrap().to_owned()
    };
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..100 {
        let (mut books, drafts) = (random_books(), drafts()).new_tree(&mut runner).unwrap().current();
        for (command, context) in commands(&drafts) {
            reached.insert(name(&decide_asked(&mut books, &command, context)));
        }
    }
    let all = [
        "AccountClosed",
        "AccountFrozen",
        "AccountNotEmpty",
        "BalanceOverflow",
        "CurrencyMismatch",
        "InsufficientFunds",
        "Deposit",
        "Withdrawal",
        "NoSuchAccount",
        "NoSuchPayment",
        "Opened",
        "Payment",
        "RefundAmount",
        "RefundExceedsRemaining",
        "RefundedAmountChanged",
        "Refund",
        "Account",
    ];
    assert_eq!(reached, all.map(str::to_owned).into());
}
