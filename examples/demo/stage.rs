//! What the scenes play on: two instances, the proxies, the caller, and the view into the books.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use diesel::QueryResult;
use reqwest::Url;
use uuid::Uuid;

use crate::Outcome;
use crate::books::Books;
use crate::client::Client;
use crate::instance::{Instance, Payonce};
use crate::proxy::Proxy;

/// How long something may take that takes milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

/// How often is looked whether it has happened.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// All of it; what was started ends when it is dropped.
pub struct Stage {
    pub payonce: Payonce,
    pub client: Client,
    pub books: Books,
    pub a: Instance,
    pub b: Instance,
    /// Before A's PostgreSQL.
    pub postgres: Proxy,
    pub redis: Redis,
    /// Past the proxy.
    pub database_url: String,
    database_url_of_a: String,
    redis_url: String,
}

/// How Redis can be made to fail.
pub enum Redis {
    /// By a shell command that kills it.
    Ours { kill: String, address: String },
    /// It belongs to somebody else, and may not be killed: a proxy before it is cut instead.
    Theirs(Proxy),
}

impl Stage {
    /// Brings up everything.
    pub async fn set(logs: PathBuf) -> Outcome<Self> {
        let setting = |name| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| format!("{name} is not set; `make demo` sets it"))
        };
        let (database_url, redis_url) = (setting("DATABASE_URL")?, setting("REDIS_URL")?);
        let payonce = Payonce::find(logs)?;

        // A tenant of its own: what else is in the database is of no concern here.
        let tenant = format!("demo {}", Uuid::now_v7());
        payonce.ask(&["migrate"], &database_url).await?;
        let create_key = ["api-key", "create", "--tenant", &tenant, "--quiet"];
        let api_key = payonce.ask(&create_key, &database_url).await?;

        let postgres = Proxy::start(host_and_port(&database_url, 5432)?);
        let database_url_of_a = through(&postgres, &database_url)?;
        let redis_address = host_and_port(&redis_url, 6379)?;
        let (redis, redis_url) = if let Ok(kill) = setting("PAYONCE_KILL_REDIS") {
            let address = redis_address;
            (Redis::Ours { kill, address }, redis_url)
        } else {
            let proxy = Proxy::start(redis_address);
            let redis_url = through(&proxy, &redis_url)?;
            (Redis::Theirs(proxy), redis_url)
        };
        Ok(Self {
            client: Client::new(api_key)?,
            books: Books::open(&database_url, &tenant)?,
            a: payonce
                .serve("A", &settings_of_a(&database_url_of_a, &redis_url))
                .await?,
            b: payonce.serve("B", &settings(&database_url, &redis_url)).await?,
            payonce,
            postgres,
            redis,
            database_url,
            database_url_of_a,
            redis_url,
        })
    }

    /// A again, after it was killed.
    pub async fn restart_a(&mut self) -> Outcome {
        let settings = settings_of_a(&self.database_url_of_a, &self.redis_url);
        self.a = self.payonce.serve("A", &settings).await?;
        Ok(())
    }

    /// The two instances in turn.
    pub fn url(&self, turn: usize) -> &str {
        if turn.is_multiple_of(2) {
            &self.a.url
        } else {
            &self.b.url
        }
    }

    /// Waits until the books say so.
    pub async fn until_books(&mut self, what: &str, so: impl Fn(&mut Books) -> QueryResult<bool>) -> Outcome {
        until(what, || Ok(so(&mut self.books)?)).await
    }
}

/// Waits until it is so, but not for ever.
pub async fn until(what: &str, mut so: impl FnMut() -> Outcome<bool>) -> Outcome {
    let deadline = Instant::now() + LIMIT;
    while !so()? {
        if Instant::now() > deadline {
            return Err(format!("waited {} s in vain until {what}", LIMIT.as_secs()).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

fn settings<'a>(database_url: &'a str, redis_url: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![("DATABASE_URL", database_url), ("REDIS_URL", redis_url)]
}

/// A's transactions wait for a lock for as long as they may, so that it can be killed while one does.
fn settings_of_a<'a>(database_url: &'a str, redis_url: &'a str) -> Vec<(&'static str, &'a str)> {
    let mut settings = settings(database_url, redis_url);
    settings.push(("LOCK_TIMEOUT", "10s"));
    settings
}

fn host_and_port(url: &str, default_port: u16) -> Outcome<String> {
    let parsed = Url::parse(url)?;
    let host = parsed.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or("DATABASE_URL and REDIS_URL must be URLs with a host, for a proxy to stand before it")?;
    Ok(format!("{host}:{}", parsed.port().unwrap_or(default_port)))
}

/// The same URL, by way of the proxy.
fn through(proxy: &Proxy, url: &str) -> Outcome<String> {
    let mut parsed = Url::parse(url)?;
    let address = proxy.address();
    parsed.set_host(Some(&address.ip().to_string()))?;
    parsed
        .set_port(Some(address.port()))
        .map_err(|()| "a URL without a port")?;
    if parsed.scheme().starts_with("postgres") {
        // The proxy waits for the word COMMIT, so it has to understand what it hears.
        let kept = parsed.query().unwrap_or_default().split('&');
        let kept =
            kept.filter(|pair| !pair.is_empty() && !pair.starts_with("sslmode=") && !pair.starts_with("gssencmode="));
        let query: Vec<_> = kept.chain(["sslmode=disable", "gssencmode=disable"]).collect();
        let query = query.join("&");
        parsed.set_query(Some(&query));
    }
    Ok(parsed.into())
}
