//! The SQL as PostgreSQL runs it: plans, round trips, prepared statements. A dropped index or a changed plan fails here
//! and not in production.

use std::sync::{Arc, Mutex};

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::sql_types::Text;
use diesel::{Connection, PgConnection, QueryableByName, RunQueryDsl, sql_query};
use payonce::domain::{AccountId, PaymentId, PaymentStatus, TenantId};
use payonce::storage::payment_list::{self, LOOKED_AT_MAX, PaymentFilter};
use payonce::storage::{Position, accounts, entries, refunds};
use uuid::Uuid;

use crate::batch::{Bench, open, pay, refund};
use crate::support::app::until;
use crate::support::{assert_books_balance, new_key};

/// More rows than a plan that reads the whole table would be chosen for.
const ROWS: u32 = 20_000;

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    value: String,
}

fn lines(connection: &mut PgConnection, sql: &str) -> Vec<String> {
    let rows: Vec<Line> = sql_query(sql)
        .load(connection)
        .unwrap_or_else(|error| panic!("{error}: {sql}"));
    rows.into_iter().map(|row| row.value).collect()
}

/// The plan of a statement, from the top down.
fn plan(connection: &mut PgConnection, statement: &str) -> Vec<String> {
    explain(connection, "(COSTS OFF)", statement)
}

/// What EXPLAIN says about a statement.
fn explain(connection: &mut PgConnection, options: &str, statement: &str) -> Vec<String> {
    connection
        .batch_execute(
            "CREATE OR REPLACE FUNCTION pg_temp.explain(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
             DECLARE line text;
             BEGIN FOR line IN EXECUTE 'EXPLAIN ' || statement LOOP RETURN NEXT line; END LOOP; END $$",
        )
        .unwrap();
    let statement = format!("{options} {statement}").replace('\'', "''");
    lines(
        connection,
        &format!("SELECT line AS value FROM pg_temp.explain('{statement}') line"),
    )
}

/// The one prepared statement of this session whose text contains all of `words`.
fn prepared(connection: &mut PgConnection, words: &[&str]) -> String {
    let all: Vec<String> = words.iter().map(|word| format!("statement LIKE '%{word}%'")).collect();
    let found = lines(
        connection,
        &format!(
            "SELECT name AS value FROM pg_prepared_statements WHERE {}",
            all.join(" AND ")
        ),
    );
    assert_eq!(found.len(), 1, "{words:?}: {found:?}");
    found[0].clone()
}

fn position(plan: &[String], node: &str) -> usize {
    let found = plan.iter().position(|line| line.contains(node));
    found.unwrap_or_else(|| panic!("no {node} in {plan:#?}"))
}

/// Does the plan look rows up by `(tenant_id, id)`? The unique index on accounts that has the currency, too, is as good as the key.
fn by_key(plan: &[String], table: &str) -> bool {
    let keys = [format!("using {table}_pkey"), "using accounts_currency".to_owned()];
    plan.iter().any(|line| keys.iter().any(|key| line.contains(key)))
}

/// A bench whose tables are large: one account has all the entries and some of the payments, one payment all the refunds.
fn large() -> (Bench, AccountId, Uuid) {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("1000000.00"), bench.account("0"));
    let payment = bench.made_by(pay(payer, payee, "1.00"));
    let tenant = bench.tenant;
    bench.database.run_unguarded(&format!(
        "INSERT INTO accounts (tenant_id, id, currency, kind, status, balance, entry_count, name, created_at)
         SELECT '{tenant}', gen_random_uuid(), 'USD', 'standard', 'active', 0, 0, 'A', now() - n * interval '1 second'
         FROM generate_series(1, {ROWS}) n;
         INSERT INTO transfers (tenant_id, id, kind, debit_account_id, credit_account_id, currency, amount,
             debit_balance_after, credit_balance_after, debit_entry_no, credit_entry_no, created_at)
         SELECT '{tenant}', gen_random_uuid(), 'payment', '{payer}', '{payee}', 'USD', 1, 1, 1, n + 10, n + 10,
             now() + n * interval '1 second' FROM generate_series(1, {ROWS}) n;
         INSERT INTO payments (tenant_id, id, payer_account_id, payee_account_id, currency, amount, refunded_amount, reference, created_at)
         SELECT tenant_id, id, CASE debit_entry_no % 50 WHEN 0 THEN debit_account_id ELSE gen_random_uuid() END,
             CASE debit_entry_no % 50 WHEN 1 THEN debit_account_id ELSE credit_account_id END,
             currency, amount, CASE debit_entry_no % 200 WHEN 2 THEN amount ELSE 0 END, 'r' || debit_entry_no % 100, created_at
         FROM transfers WHERE debit_entry_no > 10;
         INSERT INTO refunds (tenant_id, id, payment_id, amount, created_at)
         SELECT tenant_id, gen_random_uuid(), '{payment}', 0.01, created_at FROM transfers WHERE debit_entry_no > 10;
         INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, response_code, response_body, created_at, expires_at, forget_at)
         SELECT '{tenant}', 'k' || n, sha256('r'), '/payments', 402, '{{}}', now(), now() + interval '1 day', now() + interval '9 days'
         FROM generate_series(1, {ROWS}) n"
    ));
    bench
        .database
        .run("VACUUM ANALYZE accounts, transfers, payments, refunds, idempotency_keys");
    (bench, payer, payment)
}

/// `ORDER BY` does not order locks that are taken below it. If a planner or an editor ever put the lock under the sort or
/// the join, two instances would lock in different orders and deadlock, under load only.
#[test]
fn locks_are_taken_above_the_sort_and_rows_are_found_by_the_primary_key() {
    let (mut bench, payer, payment) = large();
    let payee = bench.account("0");
    bench.made_by(pay(payer, payee, "1.00"));
    bench.made_by(refund(payment));
    let tenant = bench.tenant;
    for (table, id) in [("accounts", payer.0), ("payments", payment)] {
        let name = prepared(&mut bench.connection, &[&format!("FROM {table} "), "FOR NO KEY UPDATE"]);
        for mode in ["force_custom_plan", "force_generic_plan"] {
            bench
                .connection
                .batch_execute(&format!("SET plan_cache_mode = {mode}"))
                .unwrap();
            let tenants = format!("'{{{tenant},{tenant}}}'");
            let plan = plan(
                &mut bench.connection,
                &format!("EXECUTE {name}({tenants}, '{{{id},{}}}')", Uuid::now_v7()),
            );
            let (lock, sort) = (position(&plan, "LockRows"), position(&plan, "Sort"));
            let read = position(&plan, "Index Scan using");
            assert!(lock + 1 == sort && sort < read, "{mode}: {plan:#?}");
            let sorted_by = plan.iter().find(|line| line.contains("Sort Key")).unwrap();
            assert!(
                sorted_by.contains(".tenant_id, ") && sorted_by.trim_end().rsplit('.').next() == Some("id"),
                "{sorted_by}"
            );
            assert!(by_key(&plan, table), "{mode}: {plan:#?}");
            assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{mode}: {plan:#?}");
        }
    }
}

/// Every write of a batch must find its rows by an index, however the table grows: a hash join over the table is a
/// slow-down that comes with success.
#[test]
fn the_writes_of_a_batch_find_their_rows_by_the_primary_key() {
    let (mut bench, payer, payment) = large();
    let payee = bench.account("0");
    bench.made_by(pay(payer, payee, "1.00"));
    bench.made_by(refund(payment));
    let mut repeat = [bench.slot("k7", pay(payer, payee, "1.00"))];
    bench.run(&mut repeat).unwrap();
    let (tenant, id) = (format!("'{{{}}}'", bench.tenant), format!("'{{{payer}}}'"));
    let paid = format!("'{{{payment}}}'");
    for (words, binds, table) in [
        (
            &["UPDATE accounts"][..],
            format!("{tenant}, {id}, '{{1}}', '{{9}}', '{{active}}', '{{2027-01-01}}'"),
            "accounts",
        ),
        (&["UPDATE payments"], format!("{tenant}, {paid}, '{{1}}'"), "payments"),
        (
            &["UPDATE idempotency_keys k"],
            format!("{tenant}, '{{k1}}', '{{402}}', '{{x}}', '{{NULL}}', '{{NULL}}'"),
            "idempotency_keys",
        ),
        (
            &["FROM idempotency_keys k", "expires_at <= now"],
            format!("{tenant}, '{{k1}}'"),
            "idempotency_keys",
        ),
    ] {
        let name = prepared(&mut bench.connection, words);
        for mode in ["force_custom_plan", "force_generic_plan"] {
            bench
                .connection
                .batch_execute(&format!("SET plan_cache_mode = {mode}"))
                .unwrap();
            let plan = plan(&mut bench.connection, &format!("EXECUTE {name}({binds})"));
            assert!(by_key(&plan, table), "{mode}: {plan:#?}");
            assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{mode}: {plan:#?}");
        }
    }
}

/// Runs a read and gives the plan of each of its statements, as run with these binds.
fn plans_of(bench: &mut Bench, binds: &[String], read: impl FnOnce(&mut PgConnection)) -> Vec<Vec<String>> {
    explained(bench, "(COSTS OFF)", binds, read)
}

/// Runs a read and gives what EXPLAIN says about each of its statements, as run with these binds.
fn explained(
    bench: &mut Bench,
    options: &str,
    binds: &[String],
    read: impl FnOnce(&mut PgConnection),
) -> Vec<Vec<String>> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    bench
        .connection
        .set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                heard.lock().unwrap().push(query.to_string());
            }
        });
    read(&mut bench.connection);
    bench.connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let said = said.lock().unwrap().clone();
    assert!(!said.is_empty());
    let mut found = Vec::new();
    for statement in said {
        let text = statement.split(" -- binds").next().unwrap().to_owned();
        let number = (1..20)
            .take_while(|number| text.contains(&format!("${number}")))
            .count();
        assert_eq!(number, binds.len(), "{statement}");
        bench.connection.batch_execute(&format!("PREPARE p AS {text}")).unwrap();
        let execute = format!("EXECUTE p({})", binds.join(", "));
        found.push(explain(&mut bench.connection, options, &execute));
        bench.connection.batch_execute("DEALLOCATE p").unwrap();
    }
    found
}

/// A list, run for its statements.
type Read = Box<dyn FnOnce(&mut PgConnection)>;

/// A page that is sorted anew costs as much as the whole list, and more with every payment.
#[test]
fn lists_and_statements_read_an_index_in_order_without_sorting() {
    let (mut bench, payer, payment) = large();
    let tenant = bench.tenant;
    let quoted = |id: &dyn ToString| format!("'{}'", id.to_string());
    let place = Position {
        created_at: "2027-01-01T00:00:00Z".parse().unwrap(),
        id: Uuid::now_v7(),
    };
    let after = ["'2027-01-01'".to_owned(), "'2027-01-01'".to_owned(), quoted(&place.id)];
    let (owner, account, paid) = (quoted(&tenant), quoted(&payer), quoted(&payment));
    let kind = "'standard'".to_owned();
    let limit = "21".to_owned();
    let binds = |parts: &[&[String]]| parts.concat();
    let reference = || PaymentFilter {
        reference: Some("r1".to_owned()),
        ..PaymentFilter::default()
    };
    let of_account = move || PaymentFilter {
        account: Some(payer),
        ..PaymentFilter::default()
    };
    let refunded = || PaymentFilter {
        status: Some(PaymentStatus::Refunded),
        ..PaymentFilter::default()
    };
    let looked_at = LOOKED_AT_MAX.to_string();
    let one = |text: &String| vec![text.clone()];
    let reads: Vec<(&str, Vec<String>, Read)> = vec![
        (
            "accounts_newest",
            binds(&[&one(&owner), &one(&kind), &after, &one(&limit)]),
            Box::new(move |c| drop(accounts::list(c, tenant, Some(place), 21).unwrap())),
        ),
        (
            "accounts_newest",
            binds(&[&one(&owner), &one(&kind), &one(&limit)]),
            Box::new(move |c| drop(accounts::list(c, tenant, None, 21).unwrap())),
        ),
        (
            "payments_newest",
            binds(&[&one(&owner), &after, &one(&limit), &one(&limit)]),
            Box::new(move |c| drop(payment_list::list(c, tenant, &PaymentFilter::default(), Some(place), 21).unwrap())),
        ),
        (
            "payments_by_pay",
            binds(&[&one(&owner), &one(&account), &after, &one(&limit), &one(&limit)]),
            Box::new(move |c| drop(payment_list::list(c, tenant, &of_account(), Some(place), 21).unwrap())),
        ),
        (
            "payments_by_reference",
            binds(&[&one(&owner), &after, &["'r1'".to_owned()], &one(&limit), &one(&limit)]),
            Box::new(move |c| drop(payment_list::list(c, tenant, &reference(), Some(place), 21).unwrap())),
        ),
        (
            "payments_refunded",
            binds(&[&one(&owner), &after, &one(&looked_at), &one(&limit)]),
            Box::new(move |c| drop(payment_list::list(c, tenant, &refunded(), Some(place), 2).unwrap())),
        ),
        (
            "refunds_by_payment",
            binds(&[&one(&owner), &one(&paid), &after, &one(&limit)]),
            Box::new(move |c| drop(refunds::list(c, tenant, PaymentId(payment), Some(place), 21).unwrap())),
        ),
        (
            "transfers_debit_entry",
            binds(&[&one(&owner), &one(&account), &["5000".to_owned()], &one(&limit)]),
            Box::new(move |c| drop(entries::list(c, tenant, payer, Some(5000), 21).unwrap())),
        ),
        (
            "transfers_credit_entry",
            binds(&[&one(&owner), &one(&account), &one(&limit)]),
            Box::new(move |c| drop(entries::list(c, tenant, payer, None, 21).unwrap())),
        ),
        (
            "transfers_debit_entry",
            binds(&[&one(&owner), &one(&account), &["'2027-01-01'".to_owned()]]),
            Box::new(move |c| _ = entries::balance_at(c, tenant, payer, place.created_at).unwrap()),
        ),
    ];
    for (index, binds, read) in reads {
        for plan in plans_of(&mut bench, &binds, read) {
            assert!(plan.iter().any(|line| line.contains(index)), "{index}: {plan:#?}");
            assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{index}: {plan:#?}");
            // A merge of two ordered scans is none.
            let nodes = plan.iter().map(|line| line.trim_start_matches([' ', '-', '>']));
            let sorts = nodes.filter(|node| *node == "Sort" || *node == "Incremental Sort");
            assert_eq!(sorts.count(), 0, "{index}: {plan:#?}");
        }
    }
}

/// A statement is kept for years. If what its balance at an instant costs grew with it, whoever asks for the day on which an
/// old account was opened would take the database from everybody else.
#[test]
fn a_balance_at_an_instant_takes_a_few_pages_however_long_the_statement_is() {
    let (mut bench, payer, _) = large();
    let binds = [format!("'{}'", bench.tenant), format!("'{payer}'")];
    for at in ["1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] {
        let asked = at.parse().unwrap();
        let tenant = bench.tenant;
        let read = move |c: &mut PgConnection| _ = entries::balance_at(c, tenant, payer, asked).unwrap();
        let binds: Vec<String> = binds.iter().cloned().chain([format!("'{at}'")]).collect();
        for pages in pages_read_by(&mut bench, &binds, read) {
            assert!(pages < 1000, "{at}: {pages} pages");
        }
    }
}

/// Conditions can be combined at will, and no combination may be a way to have the whole table read. One index each would make every
/// payment dearer; so what no index knows is looked for a bounded way down only, and the next page goes on there.
#[test]
fn no_combination_of_conditions_looks_at_more_payments_than_its_share() {
    let (mut bench, payer, payment) = large();
    // Of these few were refunded, of forty thousand older ones all; none was in part.
    bench.database.run_unguarded(
        "INSERT INTO payments SELECT tenant_id, gen_random_uuid(), payer_account_id, payee_account_id, currency, amount, amount,
             description, 'r1', metadata, created_at - n * interval '1 day' FROM payments, generate_series(1, 2) n",
    );
    bench.database.run("VACUUM ANALYZE payments");
    let payee = bench
        .database
        .word(&format!("SELECT payee_account_id FROM payments WHERE id = '{payment}'"));
    let payee = AccountId(payee.parse().unwrap());
    let place = Position {
        created_at: "2999-01-01T00:00:00Z".parse().unwrap(),
        id: Uuid::max(),
    };
    let statuses = [
        None,
        Some(PaymentStatus::Succeeded),
        Some(PaymentStatus::PartiallyRefunded),
        Some(PaymentStatus::Refunded),
    ];
    let tenant = bench.tenant;
    for number in 0..4 * 3 * 2 * 2 * 2 {
        let filter = PaymentFilter {
            id: None,
            status: statuses[number % 4],
            account: [None, Some(payer), Some(payee)][number / 4 % 3],
            reference: [None, Some("r1".to_owned())][number / 12 % 2].clone(),
            created_from: [None, Some("2000-01-01T00:00:00Z".parse().unwrap())][number / 24 % 2],
            created_to: [None, Some("2999-01-01T00:00:00Z".parse().unwrap())][number / 24 % 2],
        };
        let after = [None, Some(place)][number / 48 % 2];
        let looked_at = payments_looked_at(&mut bench, |connection| {
            payment_list::list(connection, tenant, &filter, after, 21).unwrap();
        });
        let walks = if filter.account.is_some() && filter.reference.is_none() {
            2
        } else {
            1
        };
        let sieved = filter.status.is_some() || filter.account.is_some() && filter.reference.is_some();
        // Once for the payments, and once for the place to which the look went.
        let share = if sieved { 2 * LOOKED_AT_MAX } else { 21 };
        assert!(looked_at <= walks * share, "{filter:?} {after:?}: {looked_at}");
    }
}

/// How many rows of payments a read looks at.
fn payments_looked_at(bench: &mut Bench, read: impl FnOnce(&mut PgConnection)) -> i64 {
    let counted = |connection: &mut PgConnection| -> i64 {
        let counter = "SELECT (seq_tup_read + idx_tup_fetch)::text AS value FROM pg_stat_xact_user_tables WHERE relname = 'payments'";
        lines(connection, counter)[0].parse().unwrap()
    };
    // The session hands its counters over, and begins anew, only between transactions.
    bench
        .connection
        .test_transaction::<_, diesel::result::Error, _>(|connection| {
            let before = counted(connection);
            read(connection);
            Ok(counted(connection) - before)
        })
}

/// Runs a read and gives the number of pages that each of its statements looks at, as run with these binds.
fn pages_read_by(bench: &mut Bench, binds: &[String], read: impl FnOnce(&mut PgConnection)) -> Vec<i64> {
    let explained = explained(bench, "(ANALYZE, BUFFERS, FORMAT JSON)", binds, read);
    let pages = explained.into_iter().map(|plan| {
        let plan: serde_json::Value = serde_json::from_str(&plan.concat()).unwrap();
        let blocks = |kind: &str| plan[0]["Plan"][kind].as_i64().unwrap();
        blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
    });
    pages.collect()
}

/// Rows are updated in place only if no index column changes and the page has room. Otherwise a hot account bloats all its indexes.
#[tokio::test]
async fn balances_and_stored_responses_are_written_as_hot_updates() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("1000.00"), bench.account("0"));
    for _ in 0..150 {
        bench.made_by(pay(payer, payee, "1.00"));
    }
    // Its counters are handed over when a session ends.
    let Bench {
        database, connection, ..
    } = bench;
    drop(connection);
    for (table, least) in [("accounts", 300), ("idempotency_keys", 150)] {
        let updates = format!("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = '{table}'");
        until("the counters", || database.number(&updates) >= least).await;
        let cold = format!("SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = '{table}'");
        let (cold, all) = (database.number(&cold), database.number(&updates));
        assert!(cold * 10 <= all, "{table}: {cold} of {all} updates were not HOT");
    }
    assert_books_balance(&database);
}

/// Each statement is parsed and planned once for a connection, not once for a batch.
#[test]
fn statements_stay_prepared_whatever_the_batch() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("1000.00"), bench.account("0"));
    let payment = bench.made_by(pay(payer, payee, "5.00"));
    bench.made_by(refund(payment));
    let all = "SELECT name || ' ' || statement AS value FROM pg_prepared_statements ORDER BY 1";
    let before = lines(&mut bench.connection, all);
    for size in [1, 2, 17, 64] {
        let mut batch: Vec<_> = (0..size)
            .map(|_| bench.slot(&new_key(), pay(payer, payee, "1.00")))
            .collect();
        batch.push(bench.slot(&new_key(), open("USD")));
        bench.run(&mut batch).unwrap();
    }
    assert_eq!(lines(&mut bench.connection, all), before);
    assert!(before.len() >= 9, "{before:#?}");
    assert_books_balance(&bench.database);
}

/// The speed of the service is its round trips: eight for a batch of payments, be it of one or of sixty-four.
#[test]
fn a_batch_of_payments_takes_eight_round_trips_however_many_they_are() {
    let mut bench = Bench::new();
    let (payer, payee) = (bench.account("1000.00"), bench.account("0"));
    bench.made_by(pay(payer, payee, "1.00"));
    for size in [1, 2, 64] {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        bench
            .connection
            .set_instrumentation(move |event: InstrumentationEvent<'_>| {
                if let InstrumentationEvent::StartQuery { query, .. } = event {
                    let text = query.to_string();
                    heard
                        .lock()
                        .unwrap()
                        .push(text.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
                }
            });
        let mut batch: Vec<_> = (0..size)
            .map(|_| bench.slot(&new_key(), pay(payer, payee, "1.00")))
            .collect();
        bench.run(&mut batch).unwrap();
        bench.connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
        let expected = [
            "BEGIN",
            "INSERT INTO idempotency_keys",
            "WITH locked AS",
            "UPDATE accounts a",
            "INSERT INTO transfers",
            "INSERT INTO payments",
            "UPDATE idempotency_keys k",
            "COMMIT",
        ];
        assert_eq!(*said.lock().unwrap(), expected, "{size} payments");
    }
    assert_books_balance(&bench.database);
}

/// The tenant of the bench is a real one, or the plans above are those of empty tables.
#[test]
fn the_large_tables_are_the_tenants() {
    let (mut bench, payer, _) = large();
    let tenant: TenantId = bench.tenant;
    let page = entries::list(&mut bench.connection, tenant, payer, None, 100).unwrap();
    assert_eq!(page.len(), 100);
    assert_eq!(
        accounts::list(&mut bench.connection, tenant, None, 100).unwrap().len(),
        100
    );
}
