//! The service as its users have it: the program itself, one or more instances of it, on a database of their own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use payonce::domain::{AccountId, TenantId};
use payonce::http::hash_api_key;
use payonce::storage::api_keys::{self, Scope};
use uuid::Uuid;

use super::{Client, Role, TestDatabase};

const START_LIMIT: Duration = Duration::from_secs(30);

/// How an [`App`] shall be started.
pub struct Setup {
    instances: usize,
    flags: Vec<String>,
    redis_url: Option<String>,
    database_url: Option<String>,
}

/// One or more instances of the service.
pub struct App {
    pub instances: Vec<Instance>,
    pub database: TestDatabase,
    /// Talks to the first instance as a tenant with both scopes.
    pub client: Client,
    setup: Setup,
}

/// A running program.
pub struct Instance {
    child: Child,
    pub base: String,
}

impl std::ops::Deref for App {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Setup {
    /// So many instances on one database.
    pub fn instances(mut self, number: usize) -> Self {
        self.instances = number;
        self
    }

    /// A flag of `payonce serve`, such as `--batch-max=1`.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// No Redis.
    pub fn without_redis(mut self) -> Self {
        self.redis_url = None;
        self
    }

    /// Another Redis than the tests' own: a proxy in front of it, say.
    pub fn redis(mut self, url: &str) -> Self {
        self.redis_url = Some(url.to_owned());
        self
    }

    /// The database of the app seen through `host:port`: a proxy. Made before the app, so the database comes along.
    pub async fn start_on(mut self, database: TestDatabase, through: Option<&str>) -> App {
        self.database_url = through.map(|address| through_address(&database.url, address));
        self.start_with(database).await
    }

    /// The service connects as this role; the tests go on as themselves.
    pub async fn start_as(mut self, database: TestDatabase, role: &Role) -> App {
        self.database_url = Some(role.url.clone());
        self.start_with(database).await
    }

    /// Starts it all.
    pub async fn start(self) -> App {
        self.start_with(TestDatabase::new()).await
    }

    /// One more instance, with other settings than the app's, on the database at this address.
    pub fn start_instance(&self, database_url: &str) -> Instance {
        Instance::start(database_url, self)
    }

    async fn start_with(self, database: TestDatabase) -> App {
        let url = self.database_url.clone().unwrap_or_else(|| database.url.clone());
        let instances: Vec<_> = (0..self.instances).map(|_| Instance::start(&url, &self)).collect();
        let key = create_api_key(&database, "tenant-a", &["read", "write"]);
        let client = Client::new(&instances[0].base, &key);
        let app = App {
            instances,
            database,
            client,
            setup: self,
        };
        for instance in &app.instances {
            app.client.at(instance).until_ready().await;
        }
        app
    }
}

/// `postgres://user:password@host:port/db` with another host and port: a proxy's, which has to see what is said.
pub fn through_address(url: &str, address: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (authority, path) = rest.split_once('/').expect("a database");
    let user = authority
        .rsplit_once('@')
        .map_or(String::new(), |(user, _)| format!("{user}@"));
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{scheme}://{user}{address}/{path}{separator}sslmode=disable")
}

/// `host:port` of a URL.
pub fn address_in(url: &str) -> String {
    let (_, rest) = url.split_once("://").expect("a URL");
    let authority = rest.split(['/', '?']).next().expect("an authority");
    authority
        .rsplit_once('@')
        .map_or(authority, |(_, address)| address)
        .to_owned()
}

/// The Redis that all tests share; a test that harms Redis puts a proxy before it.
pub fn redis_url() -> String {
    std::env::var("REDIS_URL").expect("REDIS_URL is not set: run the tests with `make test`")
}

/// A new API key of the tenant with this name.
pub fn create_api_key(database: &TestDatabase, tenant: &str, scopes: &[&str]) -> String {
    let scopes: Vec<_> = scopes.iter().map(|name| Scope::parse(name).expect("a scope")).collect();
    let key = format!("payonce_{}", Uuid::new_v4().simple());
    let prefix = format!("payonce_{}", Uuid::new_v4().simple());
    let created = api_keys::create(
        &mut database.connect(),
        tenant,
        &prefix,
        &hash_api_key(&key),
        &scopes,
        None,
    );
    assert!(created.expect("an API key"));
    key
}

impl App {
    /// One instance with Redis and default settings.
    pub async fn start() -> Self {
        Self::setup().start().await
    }

    /// To be adapted.
    pub fn setup() -> Setup {
        Setup {
            instances: 1,
            flags: Vec::new(),
            redis_url: Some(redis_url()),
            database_url: None,
        }
    }

    /// One more instance on the same database.
    pub async fn add_instance(&mut self) -> Client {
        let url = self
            .setup
            .database_url
            .clone()
            .unwrap_or_else(|| self.database.url.clone());
        let instance = Instance::start(&url, &self.setup);
        let client = self.client.at(&instance);
        client.until_ready().await;
        self.instances.push(instance);
        client
    }

    /// An account in a currency that opens none, as if it had been opened when the currency still did; its id.
    pub async fn plant_account(&self, currency: &str) -> String {
        let id = self.open("USD").await;
        let tenant = self
            .database
            .word(&format!("SELECT tenant_id FROM accounts WHERE id = '{id}'"));
        let tenant = TenantId(tenant.parse().expect("a UUID"));
        let external = AccountId::external(tenant, currency.parse().expect("a currency"));
        self.database.run_unguarded(&format!(
            "INSERT INTO accounts (tenant_id, id, currency, kind, status, balance, entry_count, name, created_at)
             SELECT tenant_id, '{external}', '{currency}', kind, status, 0, 0, name, created_at FROM accounts
             WHERE tenant_id = '{}' AND kind = 'external' ORDER BY created_at LIMIT 1 ON CONFLICT DO NOTHING;
             UPDATE accounts SET currency = '{currency}' WHERE id = '{id}'",
            tenant.0
        ));
        id
    }

    /// A client of another tenant.
    pub fn tenant(&self, name: &str) -> Client {
        self.with_scopes(name, &["read", "write"])
    }

    /// A client of a tenant whose key permits just these.
    pub fn with_scopes(&self, tenant: &str, scopes: &[&str]) -> Client {
        Client::new(&self.instances[0].base, &create_api_key(&self.database, tenant, scopes))
    }

    /// The same tenant's client at instance `number`.
    pub fn on(&self, number: usize) -> Client {
        self.client.at(&self.instances[number])
    }

    /// Makes keys look older, as if so many hours had passed since they were used.
    pub fn age_keys(&self, hours: u32) {
        self.database.run_unguarded(&format!(
            "UPDATE idempotency_keys SET created_at = created_at - interval '{hours} hours',
             expires_at = expires_at - interval '{hours} hours', forget_at = forget_at - interval '{hours} hours'"
        ));
    }

    /// Makes everything look older, the books too.
    pub fn age(&self, hours: u32) {
        self.age_keys(hours);
        for table in ["accounts", "transfers", "payments", "refunds"] {
            self.database.run_unguarded(&format!(
                "UPDATE {table} SET created_at = created_at - interval '{hours} hours'"
            ));
        }
    }

    /// A subcommand of the program on this database: exit status, stdout, stderr.
    pub fn cli(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = program()
            .args(arguments)
            .env("DATABASE_URL", &self.database.url)
            .output()
            .expect("payonce runs");
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }
}

/// The program, without anything of the environment that could change its settings.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
    command.env_clear().env("RUST_LOG", "warn").stdin(Stdio::null());
    command
}

impl Instance {
    fn start(database_url: &str, setup: &Setup) -> Self {
        let mut command = program();
        // In the environment, so that a flag of the setup may say otherwise.
        command.env("LISTEN", "127.0.0.1:0").env("CLEANUP_INTERVAL", "0");
        command.arg("serve").args(&setup.flags);
        command.env("DATABASE_URL", database_url).stdout(Stdio::piped());
        if let Some(redis_url) = &setup.redis_url {
            command.env("REDIS_URL", redis_url);
        }
        let mut child = command.spawn().expect("payonce starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout"))
            .read_line(&mut line)
            .expect("a line");
        let base = line
            .split_whitespace()
            .find(|word| word.starts_with("http://"))
            .map(|word| word.trim_end_matches(','));
        let base = base
            .unwrap_or_else(|| panic!("payonce did not say where it listens: {line:?}"))
            .to_owned();
        Self { child, base }
    }

    /// Sends a signal by name: `KILL`, `TERM`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success(), "kill -{name}");
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Waits for the end; the exit status.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status;
            }
            assert!(Instant::now() < deadline, "the instance does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Resident memory in KiB.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("/proc");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits until `condition` holds, which asks the service; fails with `what` after thirty seconds.
pub async fn until_async(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + START_LIMIT;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited thirty seconds for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until `condition` holds; fails with `what` after ten seconds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "waited ten seconds for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
