//! A database for each test: cloned from a template that has the migrations already, dropped at the end.

use diesel::connection::SimpleConnection;
use diesel::sql_types::{BigInt, Text};
use diesel::{Connection, PgConnection, QueryableByName, RunQueryDsl, sql_query};
use payonce::storage::{DatabaseSettings, run_migrations};
use sha2::{Digest, Sha256};
use std::time::Duration;
use uuid::Uuid;

/// Held while the template is made: only one test makes it.
const TEMPLATE_LOCK: i64 = 4_711_001;

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    value: i64,
}

#[derive(QueryableByName)]
struct Word {
    #[diesel(sql_type = Text)]
    value: String,
}

/// A database of its own for one test.
pub struct TestDatabase {
    name: String,
    pub url: String,
}

/// The server that all tests share.
fn server_url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL is not set: run the tests with `make test`")
}

fn url_of(database: &str) -> String {
    let server = server_url();
    let (base, query) = server
        .split_once('?')
        .map_or((server.as_str(), String::new()), |(base, query)| {
            (base, format!("?{query}"))
        });
    let (server, _) = base
        .rsplit_once('/')
        .expect("DATABASE_URL is postgres://user:password@host:port/database");
    format!("{server}/{database}{query}")
}

pub fn connect(url: &str) -> PgConnection {
    PgConnection::establish(url).unwrap_or_else(|error| panic!("can't connect to {url}: {error}"))
}

/// The settings that the service has by default, for this address.
pub fn settings(url: &str) -> DatabaseSettings {
    DatabaseSettings {
        url: url.to_owned(),
        connect_timeout: Duration::from_secs(3),
        statement_timeout: Duration::from_secs(5),
        lock_timeout: Duration::from_millis(500),
        idle_in_transaction_timeout: Duration::from_secs(2),
        read_pool_size: 4,
        read_timeout: Duration::from_secs(2),
        pool_timeout: Duration::from_secs(1),
    }
}

/// Its name holds a hash of the migrations, so that a changed migration makes a new one.
fn template(admin: &mut PgConnection) -> String {
    let mut hash = Sha256::new();
    let mut files: Vec<_> = std::fs::read_dir("migrations")
        .expect("migrations/")
        .map(|entry| entry.expect("entry").path().join("up.sql"))
        .filter(|path| path.exists())
        .collect();
    files.sort();
    for file in files {
        hash.update(std::fs::read(file).expect("a migration"));
    }
    let name = format!("payonce_template_{}", &hex::encode(hash.finalize())[..16]);
    admin
        .batch_execute(&format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})"))
        .expect("the lock");
    let exists = format!("SELECT count(*) AS value FROM pg_database WHERE datname = '{name}'");
    if sql_query(exists)
        .get_result::<Number>(admin)
        .expect("pg_database")
        .value
        == 0
    {
        let making = format!("{name}_making");
        admin
            .batch_execute(&format!("DROP DATABASE IF EXISTS {making}"))
            .expect("drop");
        admin
            .batch_execute(&format!("CREATE DATABASE {making}"))
            .expect("create");
        run_migrations(&settings(&url_of(&making))).expect("migrations");
        admin
            .batch_execute(&format!("ALTER DATABASE {making} RENAME TO {name}"))
            .expect("rename");
    }
    admin
        .batch_execute(&format!("SELECT pg_advisory_unlock({TEMPLATE_LOCK})"))
        .expect("unlock");
    name
}

impl TestDatabase {
    /// A fresh, migrated, empty one.
    pub fn new() -> Self {
        let mut admin = connect(&server_url());
        let template = template(&mut admin);
        let name = format!("payonce_test_{}", Uuid::now_v7().simple());
        admin
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}"))
            .expect("clone the template");
        Self {
            url: url_of(&name),
            name,
        }
    }

    /// A fresh one without any schema.
    pub fn empty() -> Self {
        Self::empty_with("")
    }

    /// The same, made with these options of `CREATE DATABASE`.
    pub fn empty_with(options: &str) -> Self {
        let name = format!("payonce_test_{}", Uuid::now_v7().simple());
        connect(&server_url())
            .batch_execute(&format!("CREATE DATABASE {name} {options}"))
            .expect("create");
        Self {
            url: url_of(&name),
            name,
        }
    }

    /// What `ALTER DATABASE` can say of it; running sessions end, so that all have it.
    pub fn alter(&self, what: &str) {
        let mut admin = connect(&server_url());
        admin
            .batch_execute(&format!("ALTER DATABASE {} {what}", self.name))
            .unwrap_or_else(|error| panic!("{error}: {what}"));
        self.end_sessions();
    }

    /// Ends every session.
    pub fn end_sessions(&self) {
        let name = &self.name;
        connect(&server_url())
            .batch_execute(&format!(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
            ))
            .expect("end the sessions");
    }

    /// From now on `current_setting` says so, for everybody who connects: for settings that belong to the whole server, which other tests use.
    pub fn pretend(&self, setting: &str, value: &str) {
        self.run(&format!(
            "CREATE SCHEMA IF NOT EXISTS pretended;
             CREATE OR REPLACE FUNCTION pretended.current_setting(name text) RETURNS text STABLE LANGUAGE sql
             AS $$ SELECT CASE name WHEN '{setting}' THEN '{value}' ELSE pg_catalog.current_setting(name) END $$"
        ));
        self.alter("SET search_path = pretended, pg_catalog, public");
    }

    /// A connection without any of the service's limits.
    pub fn connect(&self) -> PgConnection {
        connect(&self.url)
    }

    /// Runs SQL.
    pub fn run(&self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    /// Runs SQL that may fail.
    pub fn try_run(&self, sql: &str) -> diesel::QueryResult<()> {
        self.connect().batch_execute(sql)
    }

    /// Runs SQL with triggers and foreign keys off: as nobody can through the service.
    pub fn run_unguarded(&self, sql: &str) {
        self.run(&format!("SET session_replication_role = replica; {sql}"));
    }

    /// One number.
    pub fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT ({sql})::bigint AS value");
        sql_query(&sql)
            .get_result::<Number>(&mut self.connect())
            .unwrap_or_else(|error| panic!("{error}: {sql}"))
            .value
    }

    /// One text.
    pub fn word(&self, sql: &str) -> String {
        let sql = format!("SELECT ({sql})::text AS value");
        sql_query(&sql)
            .get_result::<Word>(&mut self.connect())
            .unwrap_or_else(|error| panic!("{error}: {sql}"))
            .value
    }

    /// The lines of an EXPLAIN or of any query with one text column named `value`.
    pub fn lines(&self, sql: &str) -> Vec<String> {
        sql_query(sql)
            .load::<Word>(&mut self.connect())
            .unwrap_or_else(|error| panic!("{error}: {sql}"))
            .into_iter()
            .map(|row| row.value)
            .collect()
    }

    /// Ends every session and lets nobody in, until [`TestDatabase::let_in`].
    pub fn lock_out(&self) {
        let name = &self.name;
        let mut admin = connect(&server_url());
        admin
            .batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
            .expect("lock out");
        self.end_sessions();
    }

    /// Lets sessions in again.
    pub fn let_in(&self) {
        connect(&server_url())
            .batch_execute(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.name))
            .expect("let in");
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs SQL in a transaction that stays open, and keeps its locks, until it is dropped.
    pub fn hold(&self, sql: &str) -> Held {
        let mut connection = self.connect();
        connection
            .batch_execute(&format!("BEGIN; {sql}"))
            .unwrap_or_else(|error| panic!("{error}: {sql}"));
        Held(connection)
    }

    /// Somebody else has this account: what wants to change it waits until this is dropped.
    pub fn lock_account(&self, id: &str) -> Held {
        self.hold(&format!("SELECT FROM accounts WHERE id = '{id}' FOR UPDATE"))
    }

    /// How many sessions wait for a lock at this moment.
    pub fn waiting(&self) -> i64 {
        self.number(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
    }

    /// From now on payments wait at their commit until this is dropped, as if for a standby that is gone: no limit of
    /// PostgreSQL's ends that.
    pub fn hold_commits(&self) -> Held {
        self.run(
            "CREATE FUNCTION no_limits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; RETURN NEW;
             END $$;
             CREATE TRIGGER no_limits BEFORE INSERT ON payments FOR EACH ROW EXECUTE FUNCTION no_limits();
             CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL;
             END $$;
             CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON payments DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION wait_at_commit()",
        );
        self.hold("SELECT pg_advisory_xact_lock(1)")
    }

    /// Has this happen whenever a payment is written: `body` is PL/pgSQL. A new one replaces it, and `drop_fault` ends it.
    pub fn fault_on_payment(&self, body: &str) {
        self.run(&format!(
            "CREATE OR REPLACE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
             CREATE OR REPLACE TRIGGER fault BEFORE INSERT ON payments FOR EACH ROW EXECUTE FUNCTION fault()"
        ));
    }

    /// Ends the fault.
    pub fn drop_fault(&self) {
        self.run("DROP FUNCTION fault CASCADE");
    }
}

/// All that the service needs: no DDL, no ownership.
pub const GRANTS: &str = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO $role";

/// A role that may log in and do what it was granted, in one database.
pub struct Role {
    pub name: String,
    /// The database as this role.
    pub url: String,
    database_url: String,
}

impl Role {
    /// May do in `database` what `grants` says of the role `$role`.
    pub fn new(database: &TestDatabase, grants: &str) -> Self {
        let name = format!("payonce_role_{}", Uuid::now_v7().simple());
        let role = Self {
            url: as_user(&database.url, &name),
            name,
            database_url: database.url.clone(),
        };
        database.run(&format!("CREATE ROLE {0} LOGIN PASSWORD '{0}'", role.name));
        database.run(&grants.replace("$role", &role.name));
        role
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // If the database is gone, so is what the role could do there.
        if let Ok(mut admin) = PgConnection::establish(&self.database_url) {
            drop(admin.batch_execute(&format!("DROP OWNED BY {}", self.name)));
        }
        let dropped = PgConnection::establish(&server_url())
            .map(|mut admin| admin.batch_execute(&format!("DROP ROLE {}", self.name)));
        if !matches!(dropped, Ok(Ok(()))) {
            eprintln!("{} was not dropped: {dropped:?}", self.name);
        }
    }
}

/// The same address for a user whose password is its name.
fn as_user(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (authority, path) = rest.split_once('/').expect("a database");
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    format!("{scheme}://{name}:{name}@{address}/{path}")
}

/// An open transaction of somebody else.
pub struct Held(PgConnection);

impl Held {
    /// Ends it with a commit; a mere drop rolls it back.
    pub fn commit(mut self) {
        self.0.batch_execute("COMMIT").expect("commit");
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // FORCE ends the sessions of instances that are being killed at this moment.
        let dropped = PgConnection::establish(&server_url())
            .map(|mut admin| admin.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)));
        if !matches!(dropped, Ok(Ok(()))) {
            eprintln!("{} was not dropped: {dropped:?}", self.name);
        }
    }
}
