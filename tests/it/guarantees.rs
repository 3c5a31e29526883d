//! What the service relies upon in PostgreSQL can be switched off there, for a server, a database or a role. The service sets it
//! right, or says so and does not serve; it never confirms what it can't keep.

use crate::support::app::{App, program, until_async};
use crate::support::database::GRANTS;
use crate::support::{Client, Reply, Role, TestDatabase, assert_books_balance, new_key};

/// Every command that talks to PostgreSQL, and its exit status if it can't.
const COMMANDS: [(&[&str], i32); 5] = [
    (&["serve", "--listen", "127.0.0.1:0"], 1),
    (&["migrate"], 1),
    (&["api-key", "list"], 1),
    (&["cleanup"], 1),
    (&["audit"], 2),
];

/// Runs a command that does not start; what it says.
#[track_caller]
fn refused(url: &str, arguments: &[&str], status: i32) -> String {
    let output = program().args(arguments).env("DATABASE_URL", url).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    said
}

async fn ready(client: &Client) -> Reply {
    client
        .send(client.http.get(format!("{}/health/ready", client.base)))
        .await
}

/// Notes what sessions that write a payment or an API key are set to.
fn note(database: &TestDatabase, setting: &str) {
    database.run(&format!(
        "CREATE TABLE noted (value text); GRANT ALL ON noted TO public;
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO noted VALUES (pg_catalog.current_setting('{setting}')); RETURN NEW;
         END $$;
         CREATE TRIGGER note AFTER INSERT ON payments FOR EACH ROW EXECUTE FUNCTION note();
         CREATE TRIGGER note AFTER INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION note()"
    ));
}

/// With `synchronous_commit = off` a payment is confirmed before it is on the disk: a crash of PostgreSQL forgets it, and the retry
/// pays again. Stricter values than `on` are somebody's decision, and stay.
#[tokio::test]
async fn what_is_confirmed_is_on_the_disk_whatever_the_default_says() {
    for (default, expected) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")] {
        let database = TestDatabase::new();
        note(&database, "synchronous_commit");
        database.alter(&format!("SET synchronous_commit = {default}"));
        let app = App::setup().start_on(database, None).await;
        app.database.run("DELETE FROM noted");
        let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
        app.pay(&payer, &payee, "10.00").await.created();
        assert_eq!(app.cli(&["api-key", "create", "--tenant", "shop"]).0, 0);
        assert_eq!(
            app.database.lines("SELECT value FROM noted"),
            [expected, expected],
            "{default}"
        );
        assert_books_balance(&app.database);
    }
}

/// With `session_replication_role = replica` no trigger fires and no foreign key is checked: the ledger can be rewritten.
#[tokio::test]
async fn triggers_and_foreign_keys_are_on_whatever_the_default_says() {
    let database = TestDatabase::new();
    note(&database, "session_replication_role");
    database.alter("SET session_replication_role = replica");
    let app = App::setup().start_on(database, None).await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    app.pay(&payer, &payee, "10.00").await.created();
    assert_eq!(app.cli(&["api-key", "create", "--tenant", "shop"]).0, 0);
    assert_eq!(app.database.lines("SELECT value FROM noted"), ["origin", "origin"]);
    assert_books_balance(&app.database);
}

/// Only a superuser may set that. The service is none, as it should be; so it must not go on.
#[tokio::test]
async fn a_role_whose_triggers_are_off_and_that_may_not_switch_them_on_is_refused() {
    let database = TestDatabase::new();
    let role = Role::new(&database, GRANTS);
    let replica = format!("ALTER ROLE {} SET session_replication_role = replica", role.name);
    database.run(&replica);
    for (command, status) in COMMANDS {
        let said = refused(&role.url, command, status);
        assert!(said.contains("session_replication_role is replica"), "{said}");
    }

    // And when that comes later, with the first session that has it.
    database.run(&format!("ALTER ROLE {} RESET session_replication_role", role.name));
    let app = App::setup().start_as(database, &role).await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    app.database.run(&replica);
    app.database.end_sessions();
    let key = new_key();
    until_async("the payment to be refused", async || {
        let reply = app.pay_under(&key, &payer, &payee, "10.00").await;
        reply.problem(503, "unavailable");
        ready(&app).await.status == 503
    })
    .await;
    app.database
        .run(&format!("ALTER ROLE {} RESET session_replication_role", role.name));
    until_async("the payment", async || {
        app.pay_under(&key, &payer, &payee, "10.00").await.status == 201
    })
    .await;
    assert_eq!(ready(&app).await.status, 200);
    assert_books_balance(&app.database);
}

/// With `fsync` or `full_page_writes` off, a crash of the machine loses what was confirmed, or tears the books. Somebody has to say
/// that he wants that.
#[tokio::test]
async fn a_server_that_can_lose_what_it_confirms_is_refused_unless_that_is_allowed() {
    for setting in ["fsync", "full_page_writes"] {
        let database = TestDatabase::new();
        database.pretend(setting, "off");
        let said = refused(&database.url, &["serve", "--listen", "127.0.0.1:0"], 1);
        for part in [&format!("{setting} is off"), "ALLOW_UNSAFE_DURABILITY=true"] {
            assert!(said.contains(part), "{said}");
        }
        let app = App::setup()
            .flag("--allow-unsafe-durability")
            .start_on(database, None)
            .await;
        app.open("USD").await;
        assert_eq!(ready(&app).await.status, 200);
    }
}

/// Both can be switched off while the server runs.
#[tokio::test]
async fn an_instance_is_not_ready_once_its_server_can_lose_what_it_confirms() {
    let app = App::start().await;
    assert_eq!(ready(&app).await.status, 200);
    app.database.pretend("fsync", "off");
    until_async("the instance to say so", async || {
        let reply = ready(&app).await;
        reply.status == 503 && reply.text("detail").contains("fsync is off")
    })
    .await;
    app.database.pretend("fsync", "on");
    until_async("the instance to be ready", async || ready(&app).await.status == 200).await;
}

/// A container without a locale makes `SQL_ASCII` databases. There PostgreSQL counts bytes, and a name of 200 ideographs, which is
/// valid, is too long for its constraint: found out when the first customer with such a name comes.
#[test]
fn a_database_that_is_not_utf8_is_refused() {
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let options = format!("ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
        let database = TestDatabase::empty_with(&options);
        for (command, status) in COMMANDS {
            let said = refused(&database.url, command, status);
            for part in [
                &format!("server_encoding is {encoding}"),
                "must be UTF8",
                "ENCODING 'UTF8'",
            ] {
                assert!(said.contains(part), "{said}");
            }
        }
    }
}
