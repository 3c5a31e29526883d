//! The schema: it can be built, taken down and built again, by many at once, and the code knows what it looks like.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use diesel::connection::SimpleConnection;
use diesel_migrations::MigrationHarness;
use payonce::storage::migrations::MIGRATIONS;
use payonce::storage::run_migrations;

use crate::support::app::program;
use crate::support::database::{GRANTS, settings};
use crate::support::{App, Role, TestDatabase, assert_books_balance};

/// Everything in the schema, one line each: columns, constraints, indexes, triggers, functions, views, options, comments.
fn dump(database: &TestDatabase) -> Vec<String> {
    database.lines(
        "WITH mine AS (SELECT oid, relname, reloptions FROM pg_class
                       WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE '!_!_diesel%' ESCAPE '!')
         SELECT concat_ws(' ', 'column', c.table_name, c.column_name,
                -- Not the position itself: a column that was dropped and added again leaves a gap.
                row_number() OVER (PARTITION BY c.table_name ORDER BY c.ordinal_position), c.data_type, c.udt_name, c.collation_name,
                c.numeric_precision, c.numeric_scale, c.is_nullable, c.column_default) AS value
         FROM information_schema.columns c WHERE c.table_schema = 'public' AND c.table_name IN (SELECT relname FROM mine)
         UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
                   FROM pg_constraint WHERE conrelid IN (SELECT oid FROM mine)
         UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE tablename IN (SELECT relname FROM mine)
         UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
         UNION ALL SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
         UNION ALL SELECT concat_ws(' ', 'view', viewname, definition) FROM pg_views WHERE schemaname = 'public'
         UNION ALL SELECT concat_ws(' ', 'options', relname, reloptions) FROM mine
         UNION ALL SELECT concat_ws(' ', 'comment', d.objoid::regclass,
                    (SELECT attname FROM pg_attribute WHERE attrelid = d.objoid AND attnum = d.objsubid AND d.objsubid > 0), d.description)
                   FROM pg_description d WHERE d.objoid IN (SELECT oid FROM mine)
         ORDER BY 1",
    )
}

/// A `down` that is wrong is noticed on the day when it is needed most.
#[test]
fn all_migrations_down_and_up_again_leave_the_same_schema() {
    let database = TestDatabase::new();
    let before = dump(&database);
    assert!(before.len() > 100, "{before:?}");
    let mut connection = database.connect();
    connection.revert_all_migrations(MIGRATIONS).unwrap();
    assert_eq!(dump(&database), Vec::<String>::new(), "something is left behind");
    connection.run_pending_migrations(MIGRATIONS).unwrap();
    assert_eq!(dump(&database), before);
    // And each one by itself, from the last to the first.
    for back in 1..=all_migrations() {
        for _ in 0..back {
            connection.revert_last_migration(MIGRATIONS).unwrap();
        }
        connection.run_pending_migrations(MIGRATIONS).unwrap();
        assert_eq!(dump(&database), before, "{back} steps back and forth");
    }
}

fn all_migrations() -> usize {
    versions().len()
}

/// The versions of all migrations, in their order.
fn versions() -> Vec<String> {
    let folders = std::fs::read_dir("migrations")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir());
    let names = folders.map(|path| path.file_name().unwrap().to_str().unwrap().replace('-', ""));
    let mut versions: Vec<_> = names.map(|name| name.split('_').next().unwrap().to_owned()).collect();
    versions.sort();
    versions
}

/// Several instances start at once when a deployment begins; two that create one table are one that fails.
#[test]
fn many_can_migrate_at_once_and_each_migration_runs_once() {
    let database = TestDatabase::empty();
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut command = program();
            command.arg("migrate").env("DATABASE_URL", &database.url);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut ran = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ran.extend(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned));
    }
    let names: BTreeSet<_> = ran.iter().cloned().collect();
    let all = all_migrations();
    assert_eq!((ran.len(), names.len()), (all, all), "{ran:?}");
    assert_eq!(dump(&database), dump(&TestDatabase::new()));
    assert_eq!(
        run_migrations(&settings(&database.url)),
        Ok(vec![]),
        "again: nothing to do"
    );
}

/// `serve` migrates by itself: who forgets `migrate` has no outage.
#[tokio::test]
async fn instances_that_start_on_an_empty_database_migrate_it() {
    let app = App::setup().instances(2).start_on(TestDatabase::empty(), None).await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    app.on(1).pay(&payer, &payee, "1.00").await.created();
    assert_eq!(dump(&app.database), dump(&TestDatabase::new()));
    assert_books_balance(&app.database);
}

/// The role that serves should not be able to change the tables: a hole in the service could then drop the ledger's triggers.
#[tokio::test]
async fn a_role_that_may_only_read_and_write_rows_can_serve_all_of_it() {
    let database = TestDatabase::new();
    let role = Role::new(&database, GRANTS);
    let app = App::setup()
        .flag("--cleanup-interval=1s")
        .start_as(database, &role)
        .await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let payment = app.pay(&payer, &payee, "2.00").await.created();
    app.refund(&payment, None).await.created();
    app.withdraw(&payer, "10.00").await.created();
    for what in ["freeze", "unfreeze", "close"] {
        app.set(&payer, what).await.ok();
    }
    app.read(&format!("/accounts/{payer}/entries")).await;
    app.read("/payments").await;
    app.age(24 * 100);
    let keys = "SELECT count(*) FROM idempotency_keys";
    crate::support::app::until("the clean-up", || app.database.number(keys) == 0).await;
    for command in [
        &["api-key", "create", "--tenant", "shop"][..],
        &["api-key", "list"],
        &["cleanup"],
        &["audit"],
        &["migrate"],
    ] {
        let output = program().args(command).env("DATABASE_URL", &role.url).output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
    let refused = |sql: &str| sql_as(&role, sql).is_err();
    assert!(refused("DROP TRIGGER transfers_append_only ON transfers") && refused("CREATE TABLE t ()"));
    assert_books_balance(&app.database);
}

/// And if there is something to do that it may not, the sentence says who may.
#[test]
fn a_role_that_may_not_migrate_is_told_who_may() {
    let behind = TestDatabase::new();
    behind.connect().revert_last_migration(MIGRATIONS).unwrap();
    let all = versions();
    for (database, missing) in [(TestDatabase::empty(), &all[..]), (behind, &all[all.len() - 1..])] {
        let role = Role::new(&database, GRANTS);
        for command in ["serve", "migrate"] {
            let output = program().arg(command).env("DATABASE_URL", &role.url).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            for part in [&missing.join(", "), &role.name, "schema public", "`payonce migrate`"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
        assert_eq!(run_migrations(&settings(&database.url)).unwrap(), missing);
    }
    for (altered, part) in [
        (
            "SET default_transaction_read_only = on",
            "default_transaction_read_only",
        ),
        ("SET search_path = nowhere", "search_path"),
    ] {
        let database = TestDatabase::empty();
        database.alter(altered);
        let error = run_migrations(&settings(&database.url)).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

/// While a new release is rolled out, old instances start on a schema of which they do not know the last migrations.
#[tokio::test]
async fn an_instance_starts_on_a_schema_that_is_newer_and_says_so() {
    let database = TestDatabase::new();
    database.run("INSERT INTO __diesel_schema_migrations (version) VALUES ('20991231000001')");
    let output = program()
        .arg("migrate")
        .env("DATABASE_URL", &database.url)
        .output()
        .unwrap();
    let (ran, said) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && ran.is_empty(), "{said}");
    assert!(said.contains("newer") && said.contains("20991231000001"), "{said}");
    let app = App::setup().start_on(database, None).await;
    app.open("USD").await;
}

fn sql_as(role: &Role, sql: &str) -> diesel::QueryResult<()> {
    crate::support::database::connect(&role.url).batch_execute(sql)
}

/// A `table!` block: its primary key and its columns in order.
type Table = (Vec<String>, Vec<(String, String)>);

fn tables_in_source() -> BTreeMap<String, Table> {
    let source = std::fs::read_to_string("src/storage/schema.rs").unwrap();
    let mut tables = BTreeMap::new();
    for block in source.split("table! {").skip(1) {
        let block = block.split("\n}").next().unwrap();
        let lines = block.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let mut lines = lines.filter(|line| !line.is_empty() && *line != "}");
        let (name, key) = lines.next().unwrap().split_once(" (").unwrap();
        let key = key.trim_end_matches(") {").split(", ").map(str::to_owned).collect();
        let columns = lines.map(|line| line.trim_end_matches(',').split_once(" -> ").unwrap());
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
        tables.insert(name.to_owned(), (key, columns));
    }
    tables
}

fn diesel_type(postgres: &str) -> String {
    match postgres {
        "uuid" => "Uuid",
        "text" => "Text",
        "timestamptz" => "Timestamptz",
        "bytea" => "Bytea",
        "numeric" => "Numeric",
        "int8" => "Int8",
        "int2" => "Int2",
        "jsonb" => "Jsonb",
        "_text" => "Array<Text>",
        other => panic!("what is {other} in Diesel?"),
    }
    .to_owned()
}

/// A column that the code has in another place or type is read as garbage, or as a 500 on one route only.
#[test]
fn the_tables_in_the_code_are_those_of_the_database() {
    let database = TestDatabase::new();
    let mut expected: BTreeMap<String, Table> = BTreeMap::new();
    for line in database.lines(
        "SELECT concat_ws('|', c.table_name, c.column_name, c.udt_name, c.is_nullable, t.table_type) AS value
         FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
         WHERE c.table_schema = 'public' AND c.table_name <> '__diesel_schema_migrations' ORDER BY c.table_name, c.ordinal_position",
    ) {
        let [table, column, kind, nullable, table_type] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let kind = diesel_type(kind);
        // PostgreSQL does not know which columns of a view can be null.
        let known = table_type != "VIEW";
        let kind = if known && nullable == "YES" { format!("Nullable<{kind}>") } else { kind };
        let entry = expected.entry(table.to_owned()).or_default();
        entry.1.push((column.to_owned(), kind));
    }
    for line in database.lines(
        "SELECT concat_ws('|', k.table_name, k.column_name) AS value FROM information_schema.key_column_usage k
         JOIN information_schema.table_constraints c USING (constraint_schema, constraint_name)
         WHERE c.constraint_type = 'PRIMARY KEY' AND k.table_schema = 'public' AND k.table_name <> '__diesel_schema_migrations'
         ORDER BY k.table_name, k.ordinal_position",
    ) {
        let (table, column) = line.split_once('|').unwrap();
        expected.get_mut(table).unwrap().0.push(column.to_owned());
    }
    let mut found = tables_in_source();
    let view = found.get_mut("ledger_entries").expect("the view");
    view.0.clear();
    for (_, kind) in &mut view.1 {
        *kind = kind.trim_start_matches("Nullable<").trim_end_matches('>').to_owned();
    }
    assert_eq!(found, expected);
}

/// An operator who meets the tables in psql finds out there what they are for.
#[test]
fn every_table_and_view_has_a_comment() {
    let database = TestDatabase::new();
    let silent = database.lines(
        "SELECT relname::text AS value FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')
         AND relname <> '__diesel_schema_migrations' AND obj_description(oid, 'pg_class') IS NULL",
    );
    assert_eq!(silent, Vec::<String>::new());
}

/// `tenant_id` first in every key: tenants stay apart, and the tables can be distributed by it. The look-up of an API
/// key, which brings no tenant, and the clean-up's two queues are the exceptions.
#[test]
fn tenant_id_leads_every_key_foreign_key_and_index() {
    let database = TestDatabase::new();
    let others = database.lines(
        "SELECT indexrelid::regclass::text AS value FROM pg_index
         WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
           AND indrelid <> '__diesel_schema_migrations'::regclass
           AND (SELECT attname FROM pg_attribute WHERE attrelid = indrelid AND attnum = indkey[0]) <> 'tenant_id'
         UNION ALL SELECT conname FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace
           AND (SELECT attname FROM pg_attribute WHERE attrelid = conrelid AND attnum = conkey[1]) <> 'tenant_id'
         ORDER BY 1",
    );
    let known = [
        "api_keys_by_hash",
        "idempotency_keys_to_erase",
        "idempotency_keys_to_forget",
        "tenants_name_key",
    ];
    assert_eq!(others, known);
}
