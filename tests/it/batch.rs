//! The transaction itself, on batches as the workers make them: answers belong to their requests, whatever stands beside them.

use diesel::connection::SimpleConnection;
use diesel::{Connection, PgConnection};
use payonce::domain::{AccountId, Command, Movement, Name, OpenAccount, Pay, PaymentId, RefundPayment, TenantId};
use payonce::engine::transaction::{Answered, Failure, Slot, Step, run};
use payonce::idempotency::{IdempotencyKey, Request, Resource, Retention, StoredResponse, Verdict};
use payonce::money::{Amount, Currency};
use payonce::storage::{StorageError, connect};
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

use crate::support::app::create_api_key;
use crate::support::database::settings;
use crate::support::{TestDatabase, assert_books_balance, new_key};

const RETENTION: Retention = Retention {
    response: Duration::from_hours(24),
    tombstone: Duration::from_hours(90 * 24),
};

/// A database, the connection of a worker, and a tenant.
pub struct Bench {
    pub database: TestDatabase,
    pub connection: PgConnection,
    pub tenant: TenantId,
}

impl Bench {
    pub fn new() -> Self {
        let database = TestDatabase::new();
        let tenant = tenant(&database, "tenant-a");
        let connection = connect(&settings(&database.url)).unwrap();
        Self {
            database,
            connection,
            tenant,
        }
    }

    pub fn slot(&self, key: &str, command: Command) -> Slot {
        slot(self.tenant, key, command)
    }

    pub fn run(&mut self, slots: &mut [Slot]) -> Result<(), Failure> {
        run(&mut self.connection, slots.iter_mut().collect(), RETENTION)
    }

    /// Runs one command as a batch of its own; the id of what it made.
    pub fn made_by(&mut self, command: Command) -> Uuid {
        let mut batch = [self.slot(&new_key(), command)];
        self.run(&mut batch).unwrap();
        resource(&batch[0]).id
    }

    /// A USD account with so much in it.
    pub fn account(&mut self, amount: &str) -> AccountId {
        let account = AccountId(self.made_by(open("USD")));
        if amount != "0" {
            self.made_by(deposit(account, amount));
        }
        account
    }

    fn balance(&self, account: AccountId) -> String {
        self.database.word(&format!(
            "SELECT round(balance, 2) FROM accounts WHERE id = '{account}'"
        ))
    }
}

fn tenant(database: &TestDatabase, name: &str) -> TenantId {
    create_api_key(database, name, &["read", "write"]);
    let id = database.word(&format!("SELECT tenant_id FROM tenants WHERE name = '{name}'"));
    TenantId(id.parse().unwrap())
}

fn slot(tenant: TenantId, key: &str, command: Command) -> Slot {
    let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    Slot::new(Request::new(Uuid::now_v7(), tenant, key, command))
}

fn usd(amount: &str) -> Amount {
    Amount::parse(amount, "USD".parse::<Currency>().unwrap()).unwrap()
}

pub fn open(currency: &str) -> Command {
    Command::OpenAccount(OpenAccount {
        currency: currency.parse().unwrap(),
        name: Name::new("An account".to_owned()).unwrap(),
        reference: None,
        metadata: None,
    })
}

fn deposit(account: AccountId, amount: &str) -> Command {
    Command::Deposit(Movement {
        account,
        amount: usd(amount),
        description: None,
    })
}

pub fn pay(payer: AccountId, payee: AccountId, amount: &str) -> Command {
    Command::Pay(Pay::new(payer, payee, usd(amount)).unwrap())
}

pub fn refund(payment: Uuid) -> Command {
    Command::Refund(RefundPayment {
        payment: PaymentId(payment),
        amount: None,
        reason: None,
        expected_refunded: None,
    })
}

#[track_caller]
fn first(slot: &Slot) -> &StoredResponse {
    match &slot.answered {
        Some(Answered::First(response)) => response,
        other => panic!("not a first: {other:?}"),
    }
}

#[track_caller]
fn replay(slot: &Slot) -> &StoredResponse {
    match &slot.answered {
        Some(Answered::Known(Verdict::Replay(response))) => response,
        other => panic!("not a replay: {other:?}"),
    }
}

#[track_caller]
fn resource(slot: &Slot) -> Resource {
    first(slot).resource.unwrap_or_else(|| panic!("nothing made: {slot:?}"))
}

fn json(response: &StoredResponse) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

/// Each first of this batch is answered with the payment that its own request made.
#[track_caller]
fn assert_own_payment(slot: &Slot, amount: &str) {
    let response = first(slot);
    assert_eq!(response.status, 201, "{slot:?}");
    assert_eq!(resource(slot).id, slot.request.new_id);
    assert_eq!(json(response)["id"], slot.request.new_id.to_string());
    assert_eq!(json(response)["amount"], amount);
}

/// Answers that are paired with requests by position go astray as soon as one of the batch is a repeat.
#[test]
fn a_duplicate_before_between_and_after_firsts_gets_the_stored_answer_and_they_get_their_own() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("1000.00"), bench.account("0"));
    for position in 0..4 {
        let known = new_key();
        let mut earlier = [bench.slot(&known, pay(payer, payee, "50.00"))];
        bench.run(&mut earlier).unwrap();

        let mut batch: Vec<Slot> = ["1.00", "2.00", "3.00"]
            .iter()
            .map(|amount| bench.slot(&new_key(), pay(payer, payee, amount)))
            .collect();
        batch.insert(position, bench.slot(&known, pay(payer, payee, "50.00")));
        bench.run(&mut batch).unwrap();

        let repeat = batch.remove(position);
        assert_eq!(replay(&repeat), first(&earlier[0]), "at {position}");
        for (slot, amount) in batch.iter().zip(["1.00", "2.00", "3.00"]) {
            assert_own_payment(slot, amount);
        }
    }
    assert_eq!(bench.balance(payee), "224.00");
    assert_books_balance(&bench.database);
}

/// A refusal writes no payment, so whoever counts payments to find answers is off by one from there on.
#[test]
fn a_refusal_beside_a_duplicate_and_firsts_leaves_each_with_its_own_answer() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("100.00"), bench.account("0"));
    let known = new_key();
    let mut earlier = [bench.slot(&known, pay(payer, payee, "10.00"))];
    bench.run(&mut earlier).unwrap();
    let mut batch = [
        bench.slot(&new_key(), pay(payer, payee, "500.00")),
        bench.slot(&known, pay(payer, payee, "10.00")),
        bench.slot(&new_key(), pay(payer, payee, "1.00")),
        bench.slot(&new_key(), pay(payer, AccountId(Uuid::now_v7()), "1.00")),
        bench.slot(&new_key(), pay(payer, payee, "2.00")),
    ];
    bench.run(&mut batch).unwrap();
    assert_eq!(json(first(&batch[0]))["code"], "insufficient_funds");
    assert_eq!(first(&batch[0]).resource, None);
    assert_eq!(replay(&batch[1]), first(&earlier[0]));
    assert_own_payment(&batch[2], "1.00");
    assert_eq!(json(first(&batch[3]))["code"], "not_found");
    assert_own_payment(&batch[4], "2.00");
    // The refusals are stored like the rest.
    let mut again = [bench.slot(batch[0].request.key.as_str(), pay(payer, payee, "500.00"))];
    bench.run(&mut again).unwrap();
    assert_eq!(replay(&again[0]), first(&batch[0]));
    assert_eq!(bench.balance(payee), "13.00");
    assert_books_balance(&bench.database);
}

/// I9: the claim of one statement can't conflict with itself twice, so two equal keys of one batch need a rule of their own.
#[test]
fn two_equal_keys_in_one_batch_are_executed_once_and_another_content_is_refused() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("100.00"), bench.account("0"));
    let (same, reused) = (new_key(), new_key());
    let mut batch = [
        bench.slot(&same, pay(payer, payee, "1.00")),
        bench.slot(&reused, pay(payer, payee, "2.00")),
        bench.slot(&same, pay(payer, payee, "1.00")),
        bench.slot(&new_key(), pay(payer, payee, "4.00")),
        bench.slot(&reused, pay(payer, payee, "3.00")),
        bench.slot(&same, pay(payer, payee, "1.00")),
    ];
    bench.run(&mut batch).unwrap();
    assert_own_payment(&batch[0], "1.00");
    assert_own_payment(&batch[1], "2.00");
    assert_own_payment(&batch[3], "4.00");
    assert_eq!(replay(&batch[2]), first(&batch[0]));
    assert_eq!(replay(&batch[5]), first(&batch[0]));
    assert_eq!(batch[4].answered, Some(Answered::Known(Verdict::Reused)));
    assert_eq!(bench.balance(payee), "7.00");
    assert_books_balance(&bench.database);
}

/// I24: one key of two tenants is two keys, in one batch too.
#[test]
fn the_same_key_of_two_tenants_in_one_batch_is_two_keys() {
    let mut bench = Bench::new();
    let other = tenant(&bench.database, "tenant-b");
    let key = new_key();
    let mut batch = [slot(bench.tenant, &key, open("USD")), slot(other, &key, open("USD"))];
    bench.run(&mut batch).unwrap();
    assert_eq!(resource(&batch[0]).id, batch[0].request.new_id);
    assert_eq!(resource(&batch[1]).id, batch[1].request.new_id);
    let mut again = [slot(other, &key, open("USD")), slot(bench.tenant, &key, open("USD"))];
    bench.run(&mut again).unwrap();
    assert_eq!(replay(&again[0]), first(&batch[1]));
    assert_eq!(replay(&again[1]), first(&batch[0]));
    assert_books_balance(&bench.database);
}

/// A full batch of everything at once: each answer is its request's, and the books stay right.
#[test]
fn a_batch_of_64_mixed_commands_of_two_tenants_answers_each_request_with_its_own_effect() {
    let mut bench = Bench::new();
    let tenants = [bench.tenant, tenant(&bench.database, "tenant-b")];
    let mut accounts = Vec::new();
    let mut paid = Vec::new();
    for owner in tenants {
        bench.tenant = owner;
        let (one, two) = (bench.account("1000.00"), bench.account("1000.00"));
        paid.push(
            (0..4)
                .map(|_| bench.made_by(pay(one, two, "10.00")))
                .collect::<Vec<_>>(),
        );
        accounts.push((one, two));
    }
    let mut batch = Vec::new();
    for number in 0..64 {
        let (owner, round) = (number % 2, number / 2);
        let (one, two) = accounts[owner];
        let command = match round % 8 {
            0 => open("EUR"),
            1 => deposit(one, "3.00"),
            2 => Command::Withdraw(Movement {
                account: two,
                amount: usd("2.00"),
                description: None,
            }),
            3 => pay(one, two, "5.00"),
            4 => refund(paid[owner][round / 8]),
            5 => pay(two, one, "100000.00"),
            6 => Command::Unfreeze(one),
            _ => pay(accounts[1 - owner].0, one, "1.00"),
        };
        batch.push(slot(tenants[owner], &format!("key-{number}"), command));
    }
    bench.run(&mut batch).unwrap();
    for slot in &batch {
        let answer = json(first(slot));
        match &slot.request.command {
            Command::Unfreeze(id) => assert_eq!(answer["id"], id.to_string()),
            Command::Pay(pay) if pay.amount == usd("100000.00") => assert_eq!(answer["code"], "insufficient_funds"),
            Command::Pay(pay) if pay.amount == usd("1.00") => assert_eq!(answer["code"], "not_found"),
            Command::Refund(refund) => {
                assert_eq!(answer["id"], slot.request.new_id.to_string());
                assert_eq!(answer["payment_id"], refund.payment.to_string());
            }
            _ => assert_eq!(answer["id"], slot.request.new_id.to_string()),
        }
        // What is stored under the key is this very answer.
        let stored = format!(
            "SELECT convert_from(response_body, 'UTF8') FROM idempotency_keys WHERE tenant_id = '{}' AND key = '{}'",
            slot.request.tenant, slot.request.key
        );
        assert_eq!(bench.database.word(&stored).as_bytes(), first(slot).body);
    }
    for (one, two) in accounts {
        // 1000 - 4·10 + 4·3 - 4·5 + 4·10 and 1000 + 4·10 - 4·2 + 4·5 - 4·10
        assert_eq!(
            (bench.balance(one), bench.balance(two)),
            ("992.00".to_owned(), "1012.00".to_owned())
        );
    }
    assert_books_balance(&bench.database);
}

/// The commands of a batch see each other's effects in their order, as if each had run alone.
#[test]
fn effects_within_a_batch_come_in_the_order_of_its_requests() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("0"), bench.account("0"));
    let mut batch = [
        bench.slot(&new_key(), pay(payer, payee, "10.00")),
        bench.slot(&new_key(), deposit(payer, "10.00")),
        bench.slot(&new_key(), pay(payer, payee, "10.00")),
        bench.slot(&new_key(), pay(payer, payee, "0.01")),
        bench.slot(&new_key(), Command::Freeze(payee)),
        bench.slot(&new_key(), pay(payee, payer, "1.00")),
        bench.slot(&new_key(), Command::Unfreeze(payee)),
        bench.slot(&new_key(), pay(payee, payer, "1.00")),
        bench.slot(&new_key(), Command::Close(payer)),
    ];
    bench.run(&mut batch).unwrap();
    let statuses: Vec<u16> = batch.iter().map(|slot| first(slot).status).collect();
    assert_eq!(statuses, [402, 201, 201, 402, 200, 409, 200, 201, 409]);
    let entries = format!(
        "SELECT string_agg(round(balance_after, 2)::text, ' ' ORDER BY entry_no) FROM ledger_entries WHERE account_id = '{payer}'"
    );
    assert_eq!(bench.database.word(&entries), "10.00 0.00 1.00");
    assert_books_balance(&bench.database);
}

/// Half a batch would be charges without a key, or keys without a charge.
#[test]
fn a_batch_that_fails_leaves_nothing() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("100.00"), bench.account("0"));
    bench
        .database
        .fault_on_payment("IF NEW.amount = 3 THEN RAISE 'planted'; END IF;");
    let keys = [new_key(), new_key(), new_key(), new_key()];
    let batch = |bench: &Bench| {
        [
            bench.slot(&keys[0], pay(payer, payee, "1.00")),
            bench.slot(&keys[1], open("EUR")),
            bench.slot(&keys[2], pay(payer, payee, "3.00")),
            bench.slot(&keys[3], deposit(payer, "5.00")),
        ]
    };
    let before = bench.database.number("SELECT count(*) FROM idempotency_keys");
    let mut failing = batch(&bench);
    let failure = bench.run(&mut failing).unwrap_err();
    assert_eq!(failure.step, Step::Execute);
    assert!(matches!(failure.error, StorageError::RolledBack(_)), "{failure:?}");
    assert_eq!(bench.database.number("SELECT count(*) FROM idempotency_keys"), before);
    assert_eq!(bench.database.number("SELECT count(*) FROM payments"), 0);
    assert_eq!(
        bench
            .database
            .number("SELECT count(*) FROM accounts WHERE currency = 'EUR'"),
        0
    );
    assert_eq!(bench.balance(payer), "100.00");

    // The connection is fit for the next batch, and the same requests are firsts then.
    bench.database.drop_fault();
    let mut again = batch(&bench);
    bench.run(&mut again).unwrap();
    assert!(again.iter().all(|slot| first(slot).status == 201));
    assert_eq!(
        (bench.balance(payer), bench.balance(payee)),
        ("101.00".to_owned(), "4.00".to_owned())
    );
    assert_books_balance(&bench.database);
}

/// A broken constraint is a bug and must be told apart from a time-out: the one is an alarm, the other a retry.
#[test]
fn a_constraint_that_fires_is_a_bug_and_a_lock_time_out_is_not() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("100.00"), bench.account("0"));
    bench.database.fault_on_payment("NEW.amount := -1;");
    let mut batch = [bench.slot(&new_key(), pay(payer, payee, "1.00"))];
    let failure = bench.run(&mut batch).unwrap_err();
    assert!(
        matches!(&failure.error, StorageError::Broken(message) if message.contains("payments_amount_positive")),
        "{failure:?}"
    );
    bench.database.drop_fault();

    let held = bench.database.lock_account(&payer.to_string());
    let mut batch = [bench.slot(&new_key(), pay(payer, payee, "1.00"))];
    let failure = bench.run(&mut batch).unwrap_err();
    assert!(matches!(failure.error, StorageError::RolledBack(_)), "{failure:?}");
    assert!(failure.took >= Duration::from_millis(500), "it waited for lock_timeout");
    drop(held);
    bench.run(&mut batch).unwrap();
    assert_own_payment(&batch[0], "1.00");
    assert_books_balance(&bench.database);
}

/// I28: past its tombstone a key means nothing, and only the caller of the transaction may delete it; past its window it
/// says what came of it. Both beside a first, which must not be disturbed.
#[test]
fn expired_and_forgotten_keys_beside_a_first_execute_nothing() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("100.00"), bench.account("0"));
    let (expired, forgotten) = (new_key(), new_key());
    let mut old = [
        bench.slot(&expired, pay(payer, payee, "1.00")),
        bench.slot(&forgotten, pay(payer, payee, "2.00")),
    ];
    bench.run(&mut old).unwrap();
    bench.database.run_unguarded(&format!(
        "UPDATE idempotency_keys SET created_at = created_at - interval '25 hours', expires_at = expires_at - interval '25 hours'
         WHERE key = '{expired}';
         UPDATE idempotency_keys SET created_at = created_at - interval '1 year', expires_at = expires_at - interval '1 year',
         forget_at = forget_at - interval '1 year' WHERE key = '{forgotten}'"
    ));
    let mut batch = [
        bench.slot(&forgotten, pay(payer, payee, "2.00")),
        bench.slot(&new_key(), pay(payer, payee, "4.00")),
        bench.slot(&expired, pay(payer, payee, "1.00")),
    ];
    bench.run(&mut batch).unwrap();
    assert_eq!(batch[0].answered, Some(Answered::Known(Verdict::Free)));
    assert_own_payment(&batch[1], "4.00");
    let paid = resource(&old[0]);
    assert_eq!(batch[2].answered, Some(Answered::Known(Verdict::Expired(Some(paid)))));
    assert_eq!(bench.balance(payee), "7.00");
    assert_books_balance(&bench.database);
}

/// In a transaction `now()` stands still. A key whose window ends, and whose body is erased, while it runs must not
/// look like a live key without an answer.
#[test]
fn a_key_that_is_erased_while_the_transaction_runs_is_expired() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("100.00"), bench.account("0"));
    let key = new_key();
    let mut paid = [bench.slot(&key, pay(payer, payee, "1.00"))];
    bench.run(&mut paid).unwrap();
    let resource = resource(&paid[0]);
    // The batch becomes a savepoint of this, and so has its `now()`.
    bench.connection.begin_test_transaction().unwrap();
    bench.connection.batch_execute("SELECT now()").unwrap();
    bench.database.run("SELECT pg_sleep(0.02)");
    bench.database.run_unguarded(
        "UPDATE idempotency_keys SET expires_at = clock_timestamp(), response_body = NULL, erased_at = clock_timestamp()",
    );
    let mut late = [bench.slot(&key, pay(payer, payee, "1.00"))];
    bench.run(&mut late).unwrap();
    assert_eq!(
        late[0].answered,
        Some(Answered::Known(Verdict::Expired(Some(resource))))
    );
    assert_eq!(bench.balance(payee), "1.00");
}

/// An empty batch, and one of repeats only, take no locks and write nothing.
#[test]
fn a_batch_of_repeats_only_writes_nothing() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("100.00"), bench.account("0"));
    let key = new_key();
    let mut paid = [bench.slot(&key, pay(payer, payee, "1.00"))];
    bench.run(&mut paid).unwrap();
    bench.run(&mut []).unwrap();
    let held = bench.database.lock_account(&payer.to_string());
    let mut repeats: Vec<Slot> = (0..64).map(|_| bench.slot(&key, pay(payer, payee, "1.00"))).collect();
    bench.run(&mut repeats).unwrap();
    assert!(repeats.iter().all(|slot| replay(slot) == first(&paid[0])));
    drop(held);
    assert_eq!(bench.balance(payer), "99.00");
    assert_books_balance(&bench.database);
}
