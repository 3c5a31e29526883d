//! The schema: how far it is, and how it is brought up to date.
//!
//! Whoever only serves needs no right to change it: if nothing is missing, nothing is tried.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::migration::MigrationSource;
use diesel::pg::Pg;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel::{PgConnection, QueryResult, QueryableByName, RunQueryDsl, sql_query};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use super::{DatabaseSettings, connect};

/// The schema, inside the binary.
pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// Held while migrations run, so that any number of instances may start at once. The number is "payonce" in ASCII.
const MIGRATION_LOCK: i64 = 0x0070_6179_6f6e_6365;

/// How often an instance looks whether another one has finished with the migrations.
const MIGRATION_LOOK_EVERY: Duration = Duration::from_millis(50);

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Brings the schema up to date, if anything is missing; says what ran. Waits for another instance that is doing the same.
///
/// A schema that is newer than this program is left alone: so it is while a new release is being rolled out.
///
/// # Errors
/// What went wrong, as a sentence.
pub fn run_migrations(settings: &DatabaseSettings) -> Result<Vec<String>, String> {
    let mut connection = connect(settings).map_err(|error| error.to_string())?;
    migrate(&mut connection).map_err(|error| format!("migrations failed: {error}"))
}

fn migrate(connection: &mut PgConnection) -> Result<Vec<String>, Failed> {
    let (applied, known) = (applied(connection)?, known()?);
    let unknown: Vec<_> = applied.difference(&known).map(String::as_str).collect();
    if !unknown.is_empty() {
        let migrations = unknown.join(", ");
        tracing::warn!(
            migrations,
            "the schema is newer than this program, which does not know all its migrations"
        );
    }
    let missing: Vec<_> = known.difference(&applied).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let session = Session::of(connection)?;
    if let Some(why) = session.cannot_create() {
        return Err(format!("{} must run, and {why}", missing.join(", ")).into());
    }
    // Another instance's migrations, and our own, may take longer than any payment may.
    connection.batch_execute("SET statement_timeout = 0; SET lock_timeout = 0")?;
    // Ends with the session. Asked for again and again: who waits for it inside PostgreSQL has a snapshot, and an index that is built
    // concurrently waits for all snapshots.
    let lock = sql::<Bool>("pg_try_advisory_lock(")
        .bind::<BigInt, _>(MIGRATION_LOCK)
        .sql(")");
    while !diesel::select(lock.clone()).get_result::<bool>(connection)? {
        std::thread::sleep(MIGRATION_LOOK_EVERY);
    }
    let ran = connection.run_pending_migrations(MIGRATIONS)?;
    Ok(ran.iter().map(ToString::to_string).collect())
}

fn known() -> Result<BTreeSet<String>, Failed> {
    let migrations = MigrationSource::<Pg>::migrations(&MIGRATIONS)?;
    Ok(migrations
        .iter()
        .map(|migration| migration.name().version().to_string())
        .collect())
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    value: String,
}

/// Diesel's own look at its table makes it if need be, for which one needs the right even if there is no need.
fn applied(connection: &mut PgConnection) -> QueryResult<BTreeSet<String>> {
    let table = "SELECT to_regclass('__diesel_schema_migrations')::text AS value \
                 WHERE to_regclass('__diesel_schema_migrations') IS NOT NULL";
    if sql_query(table).load::<Row>(connection)?.is_empty() {
        return Ok(BTreeSet::new());
    }
    let versions: Vec<Row> =
        sql_query("SELECT version::text AS value FROM __diesel_schema_migrations").load(connection)?;
    Ok(versions.into_iter().map(|row| row.value).collect())
}

/// Who is connected, and what the session may do.
#[derive(QueryableByName)]
struct Session {
    #[diesel(sql_type = Text)]
    role: String,
    #[diesel(sql_type = Text)]
    schema: String,
    #[diesel(sql_type = Bool)]
    may_create: bool,
    #[diesel(sql_type = Bool)]
    read_only: bool,
}

impl Session {
    fn of(connection: &mut PgConnection) -> QueryResult<Self> {
        sql_query(
            "SELECT current_user::text AS role, coalesce(current_schema()::text, '') AS schema, \
                    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create, \
                    current_setting('transaction_read_only') = 'on' AS read_only",
        )
        .get_result(connection)
    }

    /// Without PostgreSQL's words, which do not name the setting.
    fn cannot_create(&self) -> Option<String> {
        let Self { role, schema, .. } = self;
        if schema.is_empty() {
            return Some(format!("the search_path of role {role} names no schema that is there"));
        }
        if self.read_only {
            return Some("the server is read-only: a standby, or default_transaction_read_only is on".to_owned());
        }
        (!self.may_create).then(|| {
            format!("role {role} may not create anything in schema {schema}: call `payonce migrate` as the owner of the schema")
        })
    }
}
