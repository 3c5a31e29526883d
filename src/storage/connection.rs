//! Connections: how they are opened, what every session is set to, and the pools for reads.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel::{Connection, ConnectionError, PgConnection, QueryResult};

use super::{AnswerDue, StorageError, guarantees};

/// Longest time until a connection is open. libpq keeps a limit for each host and address; but not for the resolution of names, nor
/// for the first statements.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// How much later than PostgreSQL's own limit for a statement the answer may arrive here.
const ANSWER_GRACE: Duration = Duration::from_secs(1);

/// How PostgreSQL is reached, and how long anything there may take.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// A libpq URL or connection string.
    pub url: String,
    /// How long to wait for a connection to be opened.
    pub connect_timeout: Duration,
    /// How long one statement may run.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a lock.
    pub lock_timeout: Duration,
    /// How long an idle session may keep a transaction, and so its locks: bounds what a frozen instance can hold up.
    pub idle_in_transaction_timeout: Duration,
    /// How many connections the reads of tenants may take.
    pub read_pool_size: u32,
    /// How long one statement of such a read may run.
    pub read_timeout: Duration,
    /// How long a read may wait for one of them.
    pub pool_timeout: Duration,
}

impl DatabaseSettings {
    /// The address with the limits that only libpq itself can keep. What the address already says stays in force.
    fn conninfo(&self) -> String {
        let seconds = self.connect_timeout.as_secs().max(1);
        let limits = [
            ("connect_timeout", seconds.to_string()),
            // A peer that vanished without a word is noticed, and not waited for for hours.
            ("keepalives_idle", "10".to_owned()),
            ("keepalives_interval", "5".to_owned()),
            ("keepalives_count", "3".to_owned()),
            ("tcp_user_timeout", "15000".to_owned()),
        ];
        let is_url = self.url.starts_with("postgres://") || self.url.starts_with("postgresql://");
        let mut conninfo = self.url.clone();
        for (name, value) in limits.into_iter().filter(|(name, _)| !self.url.contains(name)) {
            let separator = match (is_url, conninfo.contains('?')) {
                (true, true) => '&',
                (true, false) => '?',
                (false, _) => ' ',
            };
            conninfo.push(separator);
            conninfo.extend([name, "=", value.as_str()]);
        }
        conninfo
    }

    /// What PostgreSQL has not answered by then it will not, by its own limits.
    fn answer_limit(&self) -> Duration {
        self.statement_timeout + ANSWER_GRACE
    }

    fn set_up(&self, connection: &mut PgConnection) -> Result<(), StorageError> {
        let limits = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {};
             SET default_transaction_isolation = 'read committed'; SET TIME ZONE 'UTC'",
            self.statement_timeout.as_millis(),
            self.lock_timeout.as_millis(),
            self.idle_in_transaction_timeout.as_millis(),
        );
        let limited = connection.batch_execute(&limits);
        limited.map_err(|error| StorageError::Unreachable(error.to_string()))?;
        guarantees::secure(connection)
    }
}

/// Opens a connection with all session limits set, to a database that can be relied upon.
///
/// # Errors
/// [`StorageError::Unreachable`], [`StorageError::Unfit`].
pub fn connect(settings: &DatabaseSettings) -> Result<PgConnection, StorageError> {
    connect_watched(settings, &AnswerDue::default())
}

/// The same, and `due` tells from now on whether an answer is overdue.
///
/// # Errors
/// [`StorageError::Unreachable`], [`StorageError::Unfit`].
pub fn connect_watched(settings: &DatabaseSettings, due: &AnswerDue) -> Result<PgConnection, StorageError> {
    due.within(CONNECT_MAX);
    let mut connection =
        PgConnection::establish(&settings.conninfo()).map_err(|error| StorageError::Unreachable(error.to_string()))?;
    due.watch(&mut connection, settings.answer_limit());
    settings.set_up(&mut connection)?;
    Ok(connection)
}

/// Sets how long the session waits for a lock from now on.
///
/// # Errors
/// If the connection is gone.
pub fn set_lock_timeout(connection: &mut PgConnection, timeout: Duration) -> QueryResult<()> {
    connection.batch_execute(&format!("SET lock_timeout = {}", timeout.as_millis()))
}

/// Connections for what the service asks for everybody: see [`Database::reserved`].
pub const RESERVED_CONNECTIONS: u32 = 2;

/// A pool for reads. Writes never use one: each worker of the engine has a connection of its own.
#[derive(Clone)]
pub struct Database {
    pool: Pool<ConnectionManager<PgConnection>>,
}

#[derive(Debug)]
struct SetUp(DatabaseSettings);

impl CustomizeConnection<PgConnection, diesel::r2d2::Error> for SetUp {
    fn on_acquire(&self, connection: &mut PgConnection) -> Result<(), diesel::r2d2::Error> {
        let refused = |error: &dyn std::fmt::Display| {
            diesel::r2d2::Error::ConnectionError(ConnectionError::BadConnection(error.to_string()))
        };
        self.0.set_up(connection).map_err(|error| refused(&error))?;
        // Nothing is written here. But who waits for a row's writers leaves a mark on it, and need not wait for the disk, too.
        connection
            .batch_execute("SET synchronous_commit = off")
            .map_err(|error| refused(&error))
    }
}

impl Database {
    /// The pool for what tenants read. A statement there is given up early, so that no tenant's question takes a connection for long.
    /// Connections are opened when they are needed.
    #[must_use]
    pub fn for_tenants(settings: &DatabaseSettings) -> Self {
        let limited = DatabaseSettings {
            statement_timeout: settings.read_timeout,
            ..settings.clone()
        };
        Self::new(&limited, settings.read_pool_size)
    }

    /// The pool for what the service must find out before it can serve anybody: whose API key this is, whether the database answers,
    /// what is stored under a key. Each takes one look-up by an index; none waits behind what some tenant reads.
    #[must_use]
    pub fn reserved(settings: &DatabaseSettings) -> Self {
        Self::new(settings, RESERVED_CONNECTIONS)
    }

    fn new(settings: &DatabaseSettings, size: u32) -> Self {
        let pool = Pool::builder()
            .max_size(size)
            .min_idle(Some(1))
            .connection_timeout(settings.pool_timeout)
            .connection_customizer(Box::new(SetUp(settings.clone())))
            .build_unchecked(ConnectionManager::new(settings.conninfo()));
        Self { pool }
    }

    /// Runs a read on a connection of the pool. It blocks: call it off the async threads.
    ///
    /// # Errors
    /// [`StorageError`]; [`StorageError::Unreachable`] also when all connections stay busy.
    pub fn read<T>(&self, work: impl FnOnce(&mut PgConnection) -> QueryResult<T>) -> Result<T, StorageError> {
        let mut connection = self
            .pool
            .get()
            .map_err(|error| StorageError::Unreachable(error.to_string()))?;
        work(&mut connection).map_err(|error| StorageError::before_commit(&error))
    }
}
