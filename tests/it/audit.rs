//! `payonce audit` finds what is planted, names the row, and is silent about books that are right.

use diesel::Connection;
use payonce::storage::audit::LAWS;

use crate::support::{App, assert_books_balance, new_key};

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
    app.pay(&alice, &bob, "5000.00")
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

/// A corruption: how it is planted, the law that must be found broken (by words of it), and the row that must be named (`|`: or).
const CORRUPTIONS: [(&str, &str, &str); 36] = [
    // Each balance is the sum of its entries.
    (
        "UPDATE accounts SET balance = balance + 1 WHERE id = '$ALICE'",
        "sum of its entries",
        "$ALICE",
    ),
    (
        "UPDATE accounts SET balance = 1 WHERE id = '$EURO'",
        "sum of its entries",
        "$EURO",
    ),
    (
        "UPDATE transfers SET amount = amount + 1 WHERE id = '$WITHDRAWAL'",
        "sum of its entries",
        "$BOB|$WORLD",
    ),
    (
        "DELETE FROM transfers WHERE id = '$DEPOSIT'",
        "sum of its entries",
        "$ALICE|$WORLD",
    ),
    // Entries are numbered without a gap.
    (
        "UPDATE accounts SET entry_count = entry_count + 1 WHERE id = '$ALICE'",
        "numbered 1, 2, 3",
        "$ALICE",
    ),
    (
        "UPDATE accounts SET entry_count = 1 WHERE id = '$EURO'",
        "numbered 1, 2, 3",
        "$EURO",
    ),
    (
        "UPDATE transfers SET debit_entry_no = 50 WHERE id = '$OTHER'",
        "numbered 1, 2, 3",
        "$ALICE",
    ),
    (
        "ALTER TABLE transfers DROP CONSTRAINT transfers_debit_entry;
         UPDATE transfers SET debit_entry_no = 2 WHERE id = '$OTHER'",
        "numbered 1, 2, 3",
        "$ALICE",
    ),
    // Each entry's balance follows from the one before.
    (
        "UPDATE transfers SET debit_balance_after = 91 WHERE id = '$PAYMENT'",
        "the one before plus its amount",
        "$ALICE",
    ),
    (
        "UPDATE transfers SET credit_balance_after = 0 WHERE id = '$DEPOSIT'",
        "the one before plus its amount",
        "$ALICE",
    ),
    (
        "UPDATE transfers SET credit_balance_after = credit_balance_after + 1 WHERE id = '$OTHER'",
        "the one before plus its amount",
        "$BOB",
    ),
    // In the order of their times.
    (
        "UPDATE transfers SET created_at = created_at - interval '1 day' WHERE id = '$WITHDRAWAL'",
        "order of their times",
        "$BOB",
    ),
    (
        "UPDATE transfers SET created_at = created_at + interval '1 minute' WHERE id = '$DEPOSIT'",
        "order of their times",
        "$ALICE",
    ),
    // Never below zero.
    (
        "UPDATE transfers SET debit_balance_after = -90 WHERE id = '$PAYMENT'",
        "below zero",
        "$ALICE",
    ),
    (
        "UPDATE accounts SET kind = 'standard', balance = 0 WHERE id = '$WORLD'",
        "below zero",
        "$WORLD",
    ),
    // Debits are credits.
    (
        "UPDATE accounts SET balance = balance - 1 WHERE id = '$WORLD'",
        "debits are credits",
        "USD",
    ),
    (
        "UPDATE accounts SET balance = 3 WHERE id = '$EURO'",
        "debits are credits",
        "EUR",
    ),
    ("DELETE FROM accounts WHERE id = '$BOB'", "debits are credits", "USD"),
    // Currencies.
    (
        "UPDATE transfers SET currency = 'EUR' WHERE id = '$PAYMENT'",
        "currency of its accounts",
        "$PAYMENT",
    ),
    (
        "UPDATE accounts SET currency = 'EUR' WHERE id = '$BOB'",
        "currency of its accounts",
        "",
    ),
    (
        "DELETE FROM accounts WHERE id = '$WORLD'",
        "currency of its accounts",
        "",
    ),
    // Payments and their transfers.
    (
        "DELETE FROM payments WHERE id = '$OTHER'",
        "each payment has exactly its transfer",
        "$OTHER",
    ),
    (
        "UPDATE payments SET amount = amount + 1 WHERE id = '$PAYMENT'",
        "each payment has exactly its transfer",
        "$PAYMENT",
    ),
    (
        "UPDATE payments SET payee_account_id = '$CLOSED' WHERE id = '$OTHER'",
        "each payment has exactly its transfer",
        "$OTHER",
    ),
    (
        "UPDATE transfers SET kind = 'refund' WHERE id = '$OTHER'",
        "each payment has exactly its transfer",
        "$OTHER",
    ),
    // Refunds and theirs.
    (
        "DELETE FROM refunds WHERE id = '$REFUND'",
        "each refund has exactly its transfer",
        "$REFUND",
    ),
    (
        "UPDATE refunds SET amount = 3 WHERE id = '$REFUND'",
        "each refund has exactly its transfer",
        "$REFUND",
    ),
    (
        "UPDATE refunds SET payment_id = '$UNKNOWN' WHERE id = '$REFUND'",
        "each refund has exactly its transfer",
        "$REFUND",
    ),
    // Refunded amounts.
    (
        "UPDATE payments SET refunded_amount = 3 WHERE id = '$PAYMENT'",
        "sum of the refunds",
        "$PAYMENT",
    ),
    (
        "UPDATE payments SET refunded_amount = 1 WHERE id = '$OTHER'",
        "sum of the refunds",
        "$OTHER",
    ),
    // External accounts.
    (
        "UPDATE transfers SET kind = 'withdrawal' WHERE id = '$DEPOSIT'",
        "against the external account",
        "$DEPOSIT",
    ),
    // Closed accounts.
    (
        "ALTER TABLE accounts DROP CONSTRAINT accounts_closed_is_empty; UPDATE accounts SET status = 'closed' WHERE id = '$ALICE'",
        "no closed account holds money",
        "$ALICE",
    ),
    // Keys.
    (
        "UPDATE idempotency_keys SET response_code = NULL, response_body = NULL, resource_kind = NULL, resource_id = NULL WHERE key = '$KEY'",
        "without an answer",
        "$KEY",
    ),
    (
        "UPDATE idempotency_keys SET resource_id = '$UNKNOWN' WHERE key = '$KEY'",
        "each stored 201 has its resource",
        "$KEY",
    ),
    (
        "UPDATE idempotency_keys SET resource_id = '$OTHER' WHERE key = '$KEY'",
        "no two keys made the same",
        "$OTHER",
    ),
    (
        "DELETE FROM idempotency_keys WHERE key = '$KEY'",
        "has the key that made it",
        "$PAYMENT",
    ),
];

/// An audit that finds nothing is either a proof or a broken audit. Each corruption must be found under its law, and the row named.
#[tokio::test]
async fn every_planted_corruption_is_found_and_its_row_is_named() {
    let books = books().await;
    let mut connection = books.app.database.connect();
    for (sql, law, row) in CORRUPTIONS {
        let found = connection.test_transaction::<_, diesel::result::Error, _>(|connection| {
            let sql = books.named(&format!("SET LOCAL session_replication_role = replica; {sql}"));
            diesel::connection::SimpleConnection::batch_execute(connection, &sql)?;
            let broken = LAWS.iter().map(|law| {
                let row = law.first_broken(connection)?;
                Ok(row.map(|row| format!("{}: {row}", law.law)))
            });
            let broken: Vec<Option<String>> = broken.collect::<Result<_, diesel::result::Error>>()?;
            Ok(broken.into_iter().flatten().collect::<Vec<_>>())
        });
        // Where several rows are wrong, any of them may be the first that is found.
        let named = books.named(row);
        let hit = found
            .iter()
            .any(|line| line.contains(law) && named.split('|').any(|row| line.contains(row)));
        assert!(hit, "{sql}\nshould break {law:?} at {named}; found {found:#?}");
    }
    assert_books_balance(&books.app.database);
}

/// A law that no corruption breaks may be a query that never finds anything.
#[test]
fn every_law_is_broken_by_some_corruption_above() {
    for law in LAWS {
        let planted = CORRUPTIONS.iter().any(|(_, words, _)| law.law.contains(words));
        assert!(planted, "nothing above breaks {:?}", law.law);
    }
    for (_, words, _) in CORRUPTIONS {
        assert_eq!(
            LAWS.iter().filter(|law| law.law.contains(words)).count(),
            1,
            "{words:?}"
        );
    }
}

/// The exit status is what a scheduler sees, and the line is what the person sees whom it wakes.
#[tokio::test]
async fn the_command_exits_with_1_and_names_the_row_or_with_0_and_says_that_all_is_well() {
    let books = books().await;
    let (status, out, error) = books.app.cli(&["audit"]);
    assert_eq!((status, error.as_str()), (0, ""), "{out}");
    assert!(out.contains(&format!("{} laws hold", LAWS.len())), "{out}");

    let planted = books.named("UPDATE accounts SET balance = balance + 1 WHERE id = '$ALICE'");
    books.app.database.run_unguarded(&planted);
    let (status, out, _) = books.app.cli(&["audit"]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("BROKEN") && out.contains(&books.named("$ALICE")), "{out}");
    // The balance, and the sum of all of them.
    assert!(out.contains(&format!("2 of {} laws are broken", LAWS.len())), "{out}");

    let repaired = books.named("UPDATE accounts SET balance = balance - 1 WHERE id = '$ALICE'");
    books.app.database.run_unguarded(&repaired);
    assert_books_balance(&books.app.database);
}

/// Books without a row, and books of which all keys are forgotten, are right.
#[tokio::test]
async fn empty_books_and_books_without_keys_are_right() {
    let books = books().await;
    books.app.age(24 * 365);
    assert_eq!(books.app.cli(&["cleanup"]).0, 0);
    assert_eq!(books.app.database.number("SELECT count(*) FROM idempotency_keys"), 0);
    assert_eq!(books.app.cli(&["audit"]).0, 0);
    let empty = crate::support::TestDatabase::new();
    assert_books_balance(&empty);
}

/// Money moves while the auditor looks. Each law is one statement and sees one moment, so it must not cry wolf.
#[tokio::test]
async fn an_audit_under_load_finds_nothing() {
    let app = App::setup().instances(2).start().await;
    let (one, two) = (app.open_with("1000.00").await, app.open_with("1000.00").await);
    let done = std::cell::Cell::new(false);
    let paying = async {
        for number in 0..60 {
            let (here, there) = (app.on(number % 2), app.on((number + 1) % 2));
            let (paid, _) = tokio::join!(here.pay(&one, &two, "1.00"), there.pay(&two, &one, "2.00"));
            here.refund(&paid.created(), Some("0.50")).await.created();
        }
        done.set(true);
    };
    let auditing = async {
        let mut audits = 0;
        while !done.get() || audits == 0 {
            assert_books_balance(&app.database);
            audits += 1;
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(paying, auditing);
    assert_books_balance(&app.database);
}
