//! Proves each rule of money by an example: what is done, what is refused, and which refusal comes first.
//! What holds for every sequence of commands is proved beside it, in `decide_property_test.rs`.

use Refusal::{
    AccountClosed, AccountFrozen, AccountNotEmpty, BalanceOverflow, CurrencyMismatch, InsufficientFunds, NoSuchAccount,
    NoSuchPayment, RefundAmount, RefundExceedsRemaining, RefundedAmountChanged,
};

use std::collections::HashMap;

use super::*;
use crate::money::{Currency, MAX, MoneyError, Sum};

const TENANT: TenantId = TenantId(Uuid::from_u128(0x7e));
const STRANGER: TenantId = TenantId(Uuid::from_u128(0x57));
const ALICE: AccountId = AccountId(Uuid::from_u128(0xa));
const BOB: AccountId = AccountId(Uuid::from_u128(0xb));
const NOBODY: AccountId = AccountId(Uuid::from_u128(0x0));
const MADE: Uuid = Uuid::from_u128(0x1d);

fn currency(code: &str) -> Currency {
    code.parse().unwrap()
}

fn decimal(text: &str) -> Decimal {
    Decimal::from_str_exact(text).unwrap()
}

fn context(tenant: TenantId) -> Context {
    Context {
        tenant,
        now: DateTime::UNIX_EPOCH,
        new_id: MADE,
    }
}

fn account(id: AccountId, code: &str, balance: &str) -> Account {
    Account {
        id,
        kind: AccountKind::Standard,
        status: AccountStatus::Active,
        currency: currency(code),
        balance: currency(code).exact(decimal(balance)),
        entry_count: 0,
        name: crate::domain::Name::new("somebody".to_owned()).unwrap(),
        reference: None,
        metadata: None,
        created_at: DateTime::UNIX_EPOCH,
        last_entry_at: None,
    }
}

/// The tenant's books with these accounts, and the external one of each currency.
fn books(accounts: impl IntoIterator<Item = Account>) -> Books {
    let mut books = Books::default();
    let mut outside = HashMap::new();
    for account in accounts {
        *outside.entry(account.currency).or_insert(Decimal::ZERO) -= account.balance;
        books.hold_account(TENANT, account);
    }
    for (currency, balance) in outside {
        let external = Account {
            kind: AccountKind::External,
            ..account(
                AccountId::external(TENANT, currency),
                currency.code(),
                &balance.to_string(),
            )
        };
        books.hold_account(TENANT, external);
    }
    books
}

fn alice_and_bob(alice: &str, bob: &str) -> Books {
    books([account(ALICE, "USD", alice), account(BOB, "USD", bob)])
}

fn set_status_of(books: &mut Books, id: AccountId, status: AccountStatus) {
    let account = books.account(TENANT, id).unwrap().unwrap().clone();
    books.hold_account(TENANT, Account { status, ..account });
}

fn balance(books: &Books, id: AccountId) -> String {
    books.account(TENANT, id).unwrap().unwrap().balance.to_string()
}

fn movement(id: AccountId, text: &str, code: &str) -> Movement {
    Movement {
        account: id,
        amount: Amount::parse(text, currency(code)).unwrap(),
        description: None,
    }
}

fn pay(payer: AccountId, payee: AccountId, text: &str, code: &str) -> Command {
    Command::Pay(Pay::new(payer, payee, Amount::parse(text, currency(code)).unwrap()).unwrap())
}

fn refund(payment: PaymentId, amount: Option<&str>) -> RefundPayment {
    RefundPayment {
        payment,
        amount: amount.map(|text| Sum::parse_positive(text).unwrap()),
        reason: None,
        expected_refunded: None,
    }
}

fn back(payment: PaymentId, amount: Option<&str>) -> Command {
    Command::Refund(refund(payment, amount))
}

/// Decides, and holds the rule that a refusal leaves the books as they were.
fn run(books: &mut Books, command: &Command) -> Result<Effect, Refusal> {
    books.ask_for(TENANT, command.needs(TENANT));
    let before = books.clone();
    let decision = decide(books, command, context(TENANT)).unwrap();
    if decision.is_err() {
        assert_eq!(*books, before, "a refusal changed the books");
    }
    decision
}

/// The command is refused, for just this reason.
fn refuses(books: &mut Books, command: &Command, reason: Refusal) {
    assert_eq!(run(books, command), Err(reason), "{command:?}");
}

fn last_transfer(books: &Books) -> Transfer {
    books.transfers().last().unwrap().1.clone()
}

/// Alice has paid Bob 100.00 out of 100.00.
fn paid() -> (Books, PaymentId) {
    let mut books = alice_and_bob("100", "0");
    run(&mut books, &pay(ALICE, BOB, "100.00", "USD")).unwrap();
    (books, PaymentId(MADE))
}

/// Without it a charge takes from one and gives another sum to the other, or the statement shows a balance that never was.
#[test]
fn a_payment_moves_the_amount_and_notes_both_balances_after_it() {
    let mut books = alice_and_bob("100", "1.5");
    let Effect::Payment(payment) = run(&mut books, &pay(ALICE, BOB, "12.50", "USD")).unwrap() else {
        panic!("not a payment");
    };
    let transfer = last_transfer(&books);
    assert_eq!([balance(&books, ALICE), balance(&books, BOB)], ["87.50", "14.00"]);
    assert_eq!(books.payment(TENANT, payment.id), Ok(Some(&payment)));
    assert_eq!(
        (payment.payer, payment.payee, payment.refunded),
        (ALICE, BOB, Decimal::ZERO)
    );
    let side = |account, balance| Side {
        account,
        entry_no: 1,
        balance_after: decimal(balance),
    };
    assert_eq!(
        (transfer.debit, transfer.credit),
        (side(ALICE, "87.50"), side(BOB, "14.00"))
    );
    assert_eq!((transfer.id, transfer.kind), (payment.id.0, TransferKind::Payment));
}

/// Without it an answer says `"87.5000"`, because that is how the column keeps it.
#[test]
fn a_balance_has_the_currencys_decimals_however_it_was_stored() {
    let mut books = alice_and_bob("0", "0");
    let stored = decimal("100.0000");
    books.hold_account(
        TENANT,
        Account {
            balance: stored,
            ..account(ALICE, "USD", "0")
        },
    );
    run(&mut books, &pay(ALICE, BOB, "12.50", "USD")).unwrap();
    assert_eq!(balance(&books, ALICE), "87.50");
}

/// Without it money appears from nowhere, or vanishes: what all accounts hold is what the external one owes.
#[test]
fn deposits_and_withdrawals_move_money_against_the_external_account() {
    let mut books = alice_and_bob("0", "0");
    let external = AccountId::external(TENANT, currency("USD"));
    run(&mut books, &Command::Deposit(movement(ALICE, "30", "USD"))).unwrap();
    let balances = |books: &Books| [balance(books, ALICE), balance(books, external)];
    assert_eq!(balances(&books), ["30.00", "-30.00"]);
    run(&mut books, &Command::Withdraw(movement(ALICE, "10", "USD"))).unwrap();
    assert_eq!(balances(&books), ["20.00", "-20.00"]);
    let Transfer { debit, credit, .. } = last_transfer(&books);
    assert_eq!((debit.account, debit.entry_no, credit.entry_no), (ALICE, 2, 2));
}

/// Without it a new account comes with money, or in a state that nobody asked for.
#[test]
fn an_account_opens_empty_and_active() {
    let open = OpenAccount {
        currency: currency("KWD"),
        name: crate::domain::Name::new("Alice".to_owned()).unwrap(),
        reference: None,
        metadata: None,
    };
    let Ok(Effect::Opened(account)) = run(&mut Books::default(), &Command::OpenAccount(open)) else {
        panic!("not opened");
    };
    assert_eq!(
        (account.id, account.kind, account.status),
        (AccountId(MADE), AccountKind::Standard, AccountStatus::Active)
    );
    assert_eq!((account.balance.to_string(), account.entry_count), ("0.000".into(), 0));
}

/// C1. Without it an account can spend its last cent twice; with it off by one, it can't spend it at all.
#[test]
fn all_the_money_can_be_spent_and_not_a_cent_more() {
    let mut books = alice_and_bob("100", "0");
    refuses(&mut books, &pay(ALICE, BOB, "100.01", "USD"), InsufficientFunds(ALICE));
    let withdraw = Command::Withdraw(movement(ALICE, "100.01", "USD"));
    refuses(&mut books, &withdraw, InsufficientFunds(ALICE));
    run(&mut books, &pay(ALICE, BOB, "100.00", "USD")).unwrap();
    refuses(&mut books, &pay(ALICE, BOB, "0.01", "USD"), InsufficientFunds(ALICE));
}

/// A8. Without it a balance outgrows its column, and bad luck of the payee becomes a 500 of the payer.
#[test]
fn no_balance_passes_the_largest() {
    let full = "999999999999999.99";
    let mut books = alice_and_bob("1", full);
    refuses(&mut books, &pay(ALICE, BOB, "0.01", "USD"), BalanceOverflow(BOB));
    let mut books = alice_and_bob("1", "999999999999998.99");
    run(&mut books, &pay(ALICE, BOB, "1.00", "USD")).unwrap();
    assert_eq!(balance(&books, BOB), full);

    let deposit = |account| Command::Deposit(movement(account, "0.01", "USD"));
    let mut books = alice_and_bob("0", full);
    refuses(&mut books, &deposit(BOB), BalanceOverflow(BOB));
    // The largest is each account's, not the tenant's: the world outside may owe more.
    run(&mut books, &deposit(ALICE)).unwrap();
    let mut books = self::books([account(ALICE, "CLF", &MAX.to_string())]);
    assert_eq!(balance(&books, ALICE), MAX.to_string());
    let all = movement(ALICE, &MAX.to_string(), "CLF");
    run(&mut books, &Command::Withdraw(all.clone())).unwrap();
    run(&mut books, &Command::Deposit(all)).unwrap();
}

/// Without it a caller who repairs one thing at a time is told something else on each run, and stored answers vary with the release.
#[test]
fn a_payment_is_refused_for_the_first_of_its_reasons() {
    let command = pay(ALICE, BOB, "50.00", "USD");
    let mut books = Books::default();
    refuses(&mut books, &command, NoSuchAccount(Party::Payer, ALICE));

    books.hold_account(TENANT, account(ALICE, "JPY", "0"));
    refuses(&mut books, &command, NoSuchAccount(Party::Payee, BOB));

    books.hold_account(TENANT, account(BOB, "KWD", "0"));
    set_status_of(&mut books, BOB, AccountStatus::Closed);
    let mismatch = |party, code| CurrencyMismatch {
        party,
        holds: currency(code),
        asked: currency("USD"),
    };
    refuses(&mut books, &command, mismatch(Party::Payer, "JPY"));

    books.hold_account(TENANT, account(ALICE, "USD", "0"));
    set_status_of(&mut books, ALICE, AccountStatus::Frozen);
    refuses(&mut books, &command, mismatch(Party::Payee, "KWD"));

    books.hold_account(TENANT, account(BOB, "USD", "999999999999999.99"));
    set_status_of(&mut books, BOB, AccountStatus::Closed);
    refuses(&mut books, &command, AccountClosed(BOB));

    set_status_of(&mut books, BOB, AccountStatus::Active);
    refuses(&mut books, &command, AccountFrozen(ALICE));

    set_status_of(&mut books, ALICE, AccountStatus::Active);
    refuses(&mut books, &command, InsufficientFunds(ALICE));

    books.hold_account(TENANT, account(ALICE, "USD", "50"));
    refuses(&mut books, &command, BalanceOverflow(BOB));

    books.hold_account(TENANT, account(BOB, "USD", "999999999999949.99"));
    assert!(run(&mut books, &command).is_ok());
}

/// The same for deposits and withdrawals.
#[test]
fn a_movement_is_refused_for_the_first_of_its_reasons() {
    for command in [
        Command::Deposit(movement(ALICE, "50", "USD")),
        Command::Withdraw(movement(ALICE, "50", "USD")),
    ] {
        let deposit = matches!(command, Command::Deposit(_));
        let full = || BalanceOverflow(ALICE);
        let balance = if deposit { "999999999999999.99" } else { "0" };
        let mut books = Books::default();
        refuses(&mut books, &command, NoSuchAccount(Party::Account, ALICE));
        books = self::books([account(ALICE, "JPY", "0"), account(BOB, "USD", "999999999999999.99")]);
        set_status_of(&mut books, ALICE, AccountStatus::Closed);
        let mismatch = CurrencyMismatch {
            party: Party::Account,
            holds: currency("JPY"),
            asked: currency("USD"),
        };
        refuses(&mut books, &command, mismatch);
        books.hold_account(TENANT, account(ALICE, "USD", balance));
        set_status_of(&mut books, ALICE, AccountStatus::Closed);
        refuses(&mut books, &command, AccountClosed(ALICE));
        set_status_of(&mut books, ALICE, AccountStatus::Frozen);
        refuses(
            &mut books,
            &command,
            if deposit { full() } else { AccountFrozen(ALICE) },
        );
        set_status_of(&mut books, ALICE, AccountStatus::Active);
        refuses(
            &mut books,
            &command,
            if deposit { full() } else { InsufficientFunds(ALICE) },
        );
    }
}

/// Without it a frozen account can be emptied, or money that is on its way to it bounces.
#[test]
fn a_frozen_account_receives_but_does_not_pay() {
    let mut books = alice_and_bob("10", "10");
    run(&mut books, &Command::Freeze(ALICE)).unwrap();
    refuses(&mut books, &pay(ALICE, BOB, "1", "USD"), AccountFrozen(ALICE));
    let withdraw = Command::Withdraw(movement(ALICE, "1", "USD"));
    refuses(&mut books, &withdraw, AccountFrozen(ALICE));
    run(&mut books, &pay(BOB, ALICE, "1", "USD")).unwrap();
    run(&mut books, &Command::Deposit(movement(ALICE, "1", "USD"))).unwrap();
    run(&mut books, &Command::Unfreeze(ALICE)).unwrap();
    run(&mut books, &pay(ALICE, BOB, "12", "USD")).unwrap();
}

/// C18. Without it money is caught in an account that nobody can move it out of.
#[test]
fn only_an_empty_account_closes_and_then_nothing_moves_on_it() {
    let mut books = alice_and_bob("0.01", "10");
    let not_empty = AccountNotEmpty {
        balance: decimal("0.01"),
        currency: currency("USD"),
    };
    refuses(&mut books, &Command::Close(ALICE), not_empty);
    run(&mut books, &Command::Withdraw(movement(ALICE, "0.01", "USD"))).unwrap();
    run(&mut books, &Command::Freeze(ALICE)).unwrap();
    run(&mut books, &Command::Close(ALICE)).unwrap();
    for command in [
        pay(BOB, ALICE, "1", "USD"),
        pay(ALICE, BOB, "1", "USD"),
        Command::Deposit(movement(ALICE, "1", "USD")),
        Command::Withdraw(movement(ALICE, "1", "USD")),
        Command::Freeze(ALICE),
        Command::Unfreeze(ALICE),
    ] {
        refuses(&mut books, &command, AccountClosed(ALICE));
    }
}

/// Without it a caller who asks for what is already so gets an error to handle.
#[test]
fn to_ask_for_the_status_an_account_has_is_no_error() {
    for (command, status) in [
        (Command::Freeze(ALICE), AccountStatus::Frozen),
        (Command::Unfreeze(ALICE), AccountStatus::Active),
        (Command::Close(ALICE), AccountStatus::Closed),
    ] {
        let mut books = alice_and_bob("0", "0");
        for _ in 0..2 {
            let Ok(Effect::Account(account)) = run(&mut books, &command) else {
                panic!("{command:?} was refused");
            };
            assert_eq!(account.status, status);
            assert_eq!(books.account(TENANT, ALICE), Ok(Some(&account)));
        }
    }
}

/// Without it anybody can pay himself out of the outside world, or freeze all deposits of a currency.
#[test]
fn an_external_account_is_nobodys_to_name() {
    let mut books = alice_and_bob("10", "10");
    let external = AccountId::external(TENANT, currency("USD"));
    for (command, party) in [
        (pay(external, BOB, "1", "USD"), Party::Payer),
        (pay(ALICE, external, "1", "USD"), Party::Payee),
        (Command::Deposit(movement(external, "1", "USD")), Party::Account),
        (Command::Withdraw(movement(external, "1", "USD")), Party::Account),
        (Command::Freeze(external), Party::Account),
        (Command::Unfreeze(external), Party::Account),
        (Command::Close(external), Party::Account),
    ] {
        refuses(&mut books, &command, NoSuchAccount(party, external));
    }
}

/// X13. Without it a tenant who knows an id can move another one's money.
#[test]
fn another_tenants_rows_do_not_exist() {
    let (mut books, payment) = paid();
    for (command, refusal) in [
        (pay(BOB, ALICE, "1", "USD"), NoSuchAccount(Party::Payer, BOB)),
        (Command::Close(ALICE), NoSuchAccount(Party::Account, ALICE)),
        (back(payment, None), NoSuchPayment(payment)),
    ] {
        books.ask_for(STRANGER, command.needs(STRANGER));
        let before = books.clone();
        assert_eq!(decide(&mut books, &command, context(STRANGER)), Ok(Err(refusal)));
        assert_eq!(books, before);
    }
    let external = |tenant, code| AccountId::external(tenant, currency(code));
    assert_ne!(external(TENANT, "USD"), external(STRANGER, "USD"));
    assert_ne!(external(TENANT, "USD"), external(TENANT, "JPY"));
}

/// R1, R5, R16. Without it more goes back than was paid, be it by a cent.
#[test]
fn refunds_never_exceed_the_charge() {
    let (mut books, payment) = paid();
    let exceeds = |refundable| RefundExceedsRemaining {
        refundable: decimal(refundable),
    };
    refuses(&mut books, &back(payment, Some("100.01")), exceeds("100"));
    run(&mut books, &back(payment, Some("60.00"))).unwrap();
    refuses(&mut books, &back(payment, Some("60.00")), exceeds("40"));
    run(&mut books, &back(payment, None)).unwrap();
    refuses(&mut books, &back(payment, None), exceeds("0"));
    refuses(&mut books, &back(payment, Some("0.01")), exceeds("0"));
    assert_eq!(
        (balance(&books, ALICE), balance(&books, BOB)),
        ("100.00".into(), "0.00".into())
    );
}

/// R10, R11. Without it two real refunds of one sum are taken for a repetition, or the last cent can't be given back.
#[test]
fn a_payment_is_refunded_in_as_many_parts_as_one_likes() {
    let (mut books, payment) = paid();
    for refunded in ["20.00", "40.00", "60.00", "80.00", "100.00"] {
        run(&mut books, &back(payment, Some("20"))).unwrap();
        let payment = books.payment(TENANT, payment).unwrap().unwrap();
        assert_eq!(payment.refunded.to_string(), refunded);
        let complete = payment.status() == crate::domain::PaymentStatus::Refunded;
        assert_eq!(complete, refunded == "100.00");
    }
}

/// R13, R15, C18. Without it a refund that can't be carried out is half done, or a caller is sent after the wrong reason.
#[test]
fn a_refund_is_refused_for_the_first_of_its_reasons() {
    let nowhere = PaymentId(NOBODY.0);
    refuses(&mut paid().0, &back(nowhere, None), NoSuchPayment(nowhere));

    let (mut books, payment) = paid();
    run(&mut books, &pay(BOB, ALICE, "100", "USD")).unwrap();
    books.hold_payment(
        TENANT,
        Payment {
            refunded: decimal("40.00"),
            ..paid().0.payment(TENANT, payment).unwrap().unwrap().clone()
        },
    );
    set_status_of(&mut books, ALICE, AccountStatus::Closed);
    set_status_of(&mut books, BOB, AccountStatus::Frozen);
    let mut ask = refund(payment, Some("60.005"));
    ask.expected_refunded = Some(Sum::parse("0").unwrap());
    let changed = RefundedAmountChanged {
        refunded: decimal("40"),
    };
    refuses(&mut books, &Command::Refund(ask.clone()), changed);

    ask.expected_refunded = Some(Sum::parse("40.0").unwrap());
    let too_precise = RefundAmount(MoneyError::TooPrecise(currency("USD")));
    refuses(&mut books, &Command::Refund(ask.clone()), too_precise);

    ask.amount = Some(Sum::parse("60.01").unwrap());
    let exceeds = RefundExceedsRemaining {
        refundable: decimal("60"),
    };
    refuses(&mut books, &Command::Refund(ask.clone()), exceeds);

    ask.amount = None;
    let command = Command::Refund(ask);
    refuses(&mut books, &command, AccountClosed(ALICE));
    set_status_of(&mut books, ALICE, AccountStatus::Active);
    refuses(&mut books, &command, AccountFrozen(BOB));
    set_status_of(&mut books, BOB, AccountStatus::Active);
    refuses(&mut books, &command, InsufficientFunds(BOB));

    books.hold_account(TENANT, account(ALICE, "USD", "999999999999999.99"));
    books.hold_account(TENANT, account(BOB, "USD", "60"));
    refuses(&mut books, &command, BalanceOverflow(ALICE));
    books.hold_account(TENANT, account(ALICE, "USD", "0"));
    assert!(run(&mut books, &command).is_ok());
}
