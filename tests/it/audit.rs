//! `payonce audit` finds what is planted, names the row, and is silent about books that are right.

mod corruptions;

use diesel::Connection;
use diesel::connection::SimpleConnection;
use payonce::storage::audit::{Checked, LAWS, Report, SLICE, check};
use serde_json::{Value, json};

use self::corruptions::{CORRUPTIONS, FOLLOWS_FROM_OTHERS};
use crate::support::app::program;
use crate::support::{App, TestDatabase, assert_books_balance, new_key};

/// The things that the corruptions below are about.
struct Books {
    app: App,
    /// `$NAME` and the id that stands for it.
    names: Vec<(&'static str, String)>,
}

/// Accounts with deposits, a withdrawal, two payments, a refund, a refusal, and one account that is closed.
async fn books() -> Books {
    let app = App::setup().without_redis().start().await;
    let (alice, bob) = (app.open_with("100.00").await, app.open_with("5.00").await);
    let closed = app.open("USD").await;
    app.set(&closed, "close").await.text("id");
    let euro = app.open("EUR").await;
    let key = new_key();
    let payment = app.pay_under(&key, &alice, &bob, "10.00").await.created();
    let other = app.pay(&alice, &bob, "20.00").await.created();
    let refund = app.refund(&payment, Some("4.00")).await.created();
    let withdrawal = app.withdraw(&bob, "1.00").await.created();
    let refused = new_key();
    app.pay_under(&refused, &alice, &bob, "5000.00")
        .await
        .problem(402, "insufficient_funds");
    let world = app
        .database
        .word("SELECT id FROM accounts WHERE kind = 'external' AND currency = 'USD'");
    let deposit = app.database.word(&format!(
        "SELECT id FROM transfers WHERE kind = 'deposit' AND credit_account_id = '{alice}'"
    ));
    let names = vec![
        ("$ALICE", alice),
        ("$BOB", bob),
        ("$CLOSED", closed),
        ("$EURO", euro),
        ("$WORLD", world),
        ("$PAYMENT", payment),
        ("$OTHER", other),
        ("$REFUND", refund),
        ("$WITHDRAWAL", withdrawal),
        ("$DEPOSIT", deposit),
        ("$KEY", key),
        ("$REFUSED", refused),
        ("$UNKNOWN", "00000000-0000-7000-8000-0000000000ff".to_owned()),
    ];
    Books { app, names }
}

impl Books {
    fn named(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (name, id)| text.replace(name, id))
    }
}

fn broken(report: &Report) -> Vec<(&'static str, String)> {
    let broken = |checked: &Checked| Some((checked.law.id, checked.broken.as_ref()?.to_string()));
    report.laws.iter().filter_map(broken).collect()
}

/// An audit that finds nothing is either a proof or a broken audit. Each corruption must be found under the laws it breaks and no
/// others, and the row named; wherever the slices happen to end.
#[tokio::test]
async fn every_planted_corruption_is_found_and_its_row_is_named() {
    let books = books().await;
    let mut connection = books.app.database.connect();
    for ((planted, laws), slice) in CORRUPTIONS.iter().flat_map(|it| [2, 3, SLICE].map(|slice| (it, slice))) {
        let found = connection.test_transaction::<_, diesel::result::Error, _>(|connection| {
            connection.batch_execute("SET LOCAL session_replication_role = replica")?;
            connection.batch_execute(&books.named(planted))?;
            Ok(broken(&check(connection, slice, |_, _| ())?))
        });
        let ids: Vec<&str> = found.iter().map(|(law, _)| *law).collect();
        let expected: Vec<&str> = laws.iter().map(|(law, _)| *law).collect();
        assert_eq!(ids, expected, "{planted}\nin slices of {slice}: {found:#?}");
        for ((law, row), (_, names)) in found.iter().zip(*laws) {
            let names = books.named(names);
            let named = names.split('|').any(|name| row.contains(name));
            assert!(
                named,
                "{planted}\nin slices of {slice}: {law} should name {names}: {row}"
            );
        }
    }
    assert_books_balance(&books.app.database);
}

/// A law that no corruption breaks may be a query that finds nothing; one that is never broken alone may be the echo of another.
#[test]
fn every_law_is_broken_by_a_corruption_that_breaks_no_other() {
    for law in LAWS {
        let planted = CORRUPTIONS
            .iter()
            .any(|(_, laws)| laws.iter().any(|(id, _)| *id == law.id));
        let alone = CORRUPTIONS
            .iter()
            .any(|(_, laws)| laws.len() == 1 && laws[0].0 == law.id);
        assert!(planted, "nothing above breaks {}", law.id);
        assert_ne!(alone, FOLLOWS_FROM_OTHERS.contains(&law.id), "{}", law.id);
    }
    let ids: std::collections::HashSet<&str> = LAWS.iter().map(|law| law.id).collect();
    assert_eq!(ids.len(), LAWS.len(), "an id is used twice");
}

/// The exit status is what a scheduler sees, and the line is what the person sees whom it wakes.
#[tokio::test]
async fn the_command_exits_with_1_and_names_the_row_or_with_0_and_says_that_all_is_well() {
    let books = books().await;
    let (status, out, error) = books.app.cli(&["audit"]);
    assert_eq!((status, error.as_str()), (0, ""), "{out}");
    assert_eq!(out, format!("the books are right: {} laws hold\n", LAWS.len()));

    let planted = books.named("UPDATE accounts SET balance = balance + 1 WHERE id = '$ALICE'");
    books.app.database.run_unguarded(&planted);
    let (status, out, error) = books.app.cli(&["audit"]);
    let tenant = books.app.database.word("SELECT tenant_id FROM accounts LIMIT 1");
    let lines = [
        "BROKEN each balance is the sum of the account's entries: \
         account_id $ALICE, tenant_id $TENANT: expected 74.0000, found 75.0000",
        "BROKEN in each tenant and currency debits are credits: all balances sum up to zero: \
         currency USD, tenant_id $TENANT: expected 0, found 1.0000",
        &format!("2 of {} laws are broken", LAWS.len()),
    ];
    let expected = books.named(&lines.join("\n")).replace("$TENANT", &tenant);
    assert_eq!((status, out.trim_end(), error.as_str()), (1, expected.as_str(), ""));
}

/// "It found nothing" and "it could not look" are different news.
#[test]
fn an_audit_that_can_not_be_carried_out_exits_with_2_and_says_why() {
    let empty = TestDatabase::empty();
    for (url, why) in [
        ("postgres://nobody@127.0.0.1:1/none", "out of reach"),
        (empty.url.as_str(), "accounts"),
    ] {
        for arguments in [&["audit"][..], &["audit", "--json"]] {
            let output = program().args(arguments).env("DATABASE_URL", url).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
            assert!(
                error.starts_with("payonce: the books could not be audited: ") && error.contains(why),
                "{error}"
            );
        }
    }
}

/// For machines: every law, what was checked, and the row by its ids.
#[tokio::test]
async fn the_document_has_every_law_with_its_rows_and_the_first_that_breaks_it() {
    let books = books().await;
    let audit = || {
        let (status, out, error) = books.app.cli(&["audit", "--json"]);
        assert_eq!(error, "");
        let document: Value = serde_json::from_str(&out).unwrap();
        (status, document)
    };
    let (status, document) = audit();
    assert_eq!((status, &document["clean"]), (0, &json!(true)));
    assert!(document["seconds"].as_f64().unwrap() > 0.0, "{document}");
    let at = document["snapshot_at"].as_str().unwrap();
    let age = books
        .app
        .database
        .word(&format!("SELECT now() - '{at}'::timestamptz BETWEEN '0 s' AND '1 min'"));
    assert_eq!(age, "true", "{at}");
    let laws = document["laws"].as_array().unwrap();
    for (law, checked) in LAWS.iter().zip(laws) {
        assert_eq!((&checked["id"], &checked["law"]), (&json!(law.id), &json!(law.law)));
        assert_eq!(checked["first_broken"], Value::Null);
    }
    let rows = |id: &str| laws.iter().find(|law| law["id"] == id).unwrap()["rows"].clone();
    // Deposits to Alice and Bob, two payments, a refund, a withdrawal.
    for (id, count) in [
        ("balance_is_sum", 6),
        ("debits_are_credits", 6),
        ("entries_are_numbered", 12),
        ("one_currency", 6),
        ("transfer_has_its_key", 6),
        ("payment_is_its_transfer", 2),
        ("refund_is_its_transfer", 1),
        ("key_is_answered", 12),
        ("made_once", 12),
    ] {
        assert_eq!(rows(id), json!(count), "{id}");
    }

    books
        .app
        .database
        .run_unguarded(&books.named("UPDATE transfers SET debit_balance_after = 91 WHERE id = '$PAYMENT'"));
    let (status, document) = audit();
    assert_eq!((status, &document["clean"]), (1, &json!(false)));
    let broken = document["laws"]
        .as_array()
        .unwrap()
        .iter()
        .find(|law| law["id"] == "balances_follow")
        .unwrap();
    let row = json!({
        "at": {"account_id": books.named("$ALICE"), "entry_no": 2, "transfer_id": books.named("$PAYMENT")},
        "tenant_id": books.app.database.word("SELECT tenant_id FROM accounts LIMIT 1"),
        "expected": "90.0000",
        "found": "91.0000",
    });
    assert_eq!(broken["first_broken"], row);
}

/// Whoever waits for a long audit wants to know how long; whoever pipes it somewhere does not.
#[tokio::test]
async fn a_bar_shows_how_far_it_is_on_a_terminal_only() {
    let books = books().await;
    let mut on_terminal = std::process::Command::new("script");
    let command = format!("{} audit --json", env!("CARGO_BIN_EXE_payonce"));
    on_terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    on_terminal
        .env("DATABASE_URL", &books.app.database.url)
        .env("TERM", "xterm");
    let output = on_terminal
        .output()
        .expect("script, of util-linux, runs a command on a terminal");
    let screen = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && screen.contains("auditing ") && screen.contains("% of "),
        "{screen:?}"
    );
    // Everywhere else stderr is empty: the tests above see to that.
}

/// Books without a row, and books of which all keys are forgotten, are right.
#[tokio::test]
async fn empty_books_and_books_without_keys_are_right() {
    let books = books().await;
    books.app.age(24 * 365);
    assert_eq!(books.app.cli(&["cleanup"]).0, 0);
    assert_eq!(books.app.database.number("SELECT count(*) FROM idempotency_keys"), 0);
    assert_eq!(books.app.cli(&["audit"]).0, 0);
    let empty = TestDatabase::new();
    assert_books_balance(&empty);
}

/// Laws that each saw another moment would find in the transfers what was not yet in the keys. And an audit that could make
/// a payment wait would not be run when it is needed.
#[tokio::test]
async fn an_audit_sees_one_moment_reads_only_and_holds_no_lock_that_a_payment_waits_for() {
    let books = books().await;
    let database = &books.app.database;
    let planted =
        books.named("DELETE FROM idempotency_keys WHERE key = '$KEY'; DELETE FROM payments WHERE id = '$OTHER'");
    let mut connection = database.connect();
    let mut steps = Vec::new();
    let report = payonce::storage::audit::run(&mut connection, |done, total| {
        if steps.is_empty() {
            database.run_unguarded(&planted);
        }
        assert_eq!(
            database.number(
                "SELECT count(*) FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND mode <> 'AccessShareLock'"
            ),
            0
        );
        steps.push((done, total));
    })
    .unwrap();
    assert_eq!(broken(&report), []);
    assert!(steps.len() > 8 && steps.is_sorted(), "{steps:?}");
    assert!(
        steps.first().unwrap().0 == 0 && steps.last().unwrap().0 == steps[0].1,
        "{steps:?}"
    );
    let after = payonce::storage::audit::run(&mut connection, |_, _| ()).unwrap();
    let laws: Vec<&str> = broken(&after).iter().map(|(law, _)| *law).collect();
    assert_eq!(laws, ["transfer_has_its_payment", "transfer_has_its_key"]);
}

/// Money moves while the auditor looks, and it must not cry wolf.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_under_load_finds_nothing() {
    let app = App::setup().instances(2).start().await;
    let (one, two) = (app.open_with("1000.00").await, app.open_with("1000.00").await);
    let paid = std::sync::atomic::AtomicBool::new(false);
    let audits = std::thread::scope(|threads| {
        let auditor = threads.spawn(|| {
            let mut audits = 0;
            while !paid.load(std::sync::atomic::Ordering::Acquire) {
                assert_books_balance(&app.database);
                audits += 1;
            }
            audits
        });
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(pay_to_and_fro(&app, &one, &two)));
        paid.store(true, std::sync::atomic::Ordering::Release);
        auditor.join().unwrap()
    });
    assert!(audits > 2, "only {audits} audits while money moved");
    assert_books_balance(&app.database);
}

async fn pay_to_and_fro(app: &App, one: &str, two: &str) {
    for number in 0..60 {
        let (here, there) = (app.on(number % 2), app.on((number + 1) % 2));
        let (paid, _) = tokio::join!(here.pay(one, two, "1.00"), there.pay(two, one, "2.00"));
        here.refund(&paid.created(), Some("0.50")).await.created();
    }
}
