//! What is tortured: a PostgreSQL, a Redis, two instances, and a proxy before each server for each instance.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Outcome;
use crate::cluster::{Cluster, RedisServer};
use crate::instance::{Instance, Payonce};
use crate::proxy::Proxy;

pub const DATABASE: &str = "payonce";

const NAMES: [&str; 2] = ["A", "B"];

/// How often an instance is started again that did not come up: what it needs may be failing just now.
const STARTS: usize = 20;

/// Raises the error that the table names, with its probability, when a statement begins or when the transaction commits. It
/// is here and nowhere else: the service has no place for it.
const INJECTION: &str = "
CREATE SCHEMA torture;
CREATE TABLE torture.injection (at text NOT NULL, state text NOT NULL, probability float8 NOT NULL);
CREATE FUNCTION torture.inject() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wanted torture.injection;
BEGIN
    SELECT * INTO wanted FROM torture.injection WHERE at = TG_ARGV[0];
    IF FOUND AND random() < wanted.probability THEN
        RAISE EXCEPTION 'injected' USING ERRCODE = wanted.state;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER torture_claim BEFORE INSERT ON public.idempotency_keys FOR EACH STATEMENT EXECUTE FUNCTION torture.inject('statement');
CREATE TRIGGER torture_move BEFORE INSERT ON public.transfers FOR EACH STATEMENT EXECUTE FUNCTION torture.inject('statement');
CREATE TRIGGER torture_save BEFORE UPDATE ON public.idempotency_keys FOR EACH STATEMENT EXECUTE FUNCTION torture.inject('statement');
CREATE CONSTRAINT TRIGGER torture_commit AFTER INSERT ON public.transfers DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION torture.inject('commit');";

/// All of it; what was started ends when it is dropped.
pub struct Stage {
    pub postgres: Cluster,
    pub redis: RedisServer,
    /// Before PostgreSQL, one for each instance.
    pub to_postgres: [Proxy; 2],
    /// Before Redis.
    pub to_redis: [Proxy; 2],
    pub service: Arc<Service>,
    pub payonce: Payonce,
    instances: [Option<Instance>; 2],
}

/// What clients know of the service.
pub struct Service {
    pub api_key: String,
    /// Where the instances listen, and their process ids. Another start is another address.
    instances: Mutex<[(String, u32); 2]>,
}

impl Service {
    /// Where an instance listens now.
    pub fn url(&self, number: usize) -> String {
        let instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        let [a, b] = &*instances;
        if number.is_multiple_of(2) {
            a.0.clone()
        } else {
            b.0.clone()
        }
    }

    fn set(&self, number: usize, instance: &Instance) {
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = instances.get_mut(number) {
            *entry = (instance.url.clone(), instance.id().unwrap_or_default());
        }
    }

    pub fn process(&self, number: usize) -> u32 {
        let instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        instances.get(number).map_or(0, |(_, id)| *id)
    }

    /// The memory of each instance that runs.
    pub fn resident_kib(&self) -> Vec<u64> {
        let read = |number| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.process(number))).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        (0..NAMES.len()).filter_map(read).collect()
    }
}

impl Stage {
    /// Brings up everything.
    pub async fn set(folder: &Path) -> Outcome<Self> {
        let postgres = Cluster::start(&folder.join("postgres")).await?;
        let url = postgres.create_database(DATABASE).await?;
        let redis = RedisServer::start(&folder.join("redis")).await?;
        let payonce = Payonce::find(folder.to_owned())?;
        payonce.ask(&["migrate"], &url).await?;
        postgres.sql_in(DATABASE, INJECTION).await?;
        let create_key = ["api-key", "create", "--tenant", "torture", "--quiet"];
        let api_key = payonce.ask(&create_key, &url).await?;
        let before_postgres = || Proxy::start(postgres.address());
        let before_redis = || Proxy::start(redis.address());
        let mut stage = Self {
            to_postgres: [before_postgres(), before_postgres()],
            to_redis: [before_redis(), before_redis()],
            service: Arc::new(Service {
                api_key,
                instances: Mutex::default(),
            }),
            payonce,
            instances: [None, None],
            postgres,
            redis,
        };
        for number in 0..NAMES.len() {
            stage.start(number).await?;
        }
        Ok(stage)
    }

    /// Starts an instance.
    pub async fn start(&mut self, number: usize) -> Outcome {
        let mut tries = 0;
        let instance = loop {
            tries += 1;
            match self.try_to_start(number).await {
                Err(error) if tries == STARTS => return Err(error),
                Err(_) => {}
                Ok(instance) => break instance,
            }
        };
        self.service.set(number, &instance);
        if let Some(place) = self.instances.get_mut(number) {
            *place = Some(instance);
        }
        Ok(())
    }

    async fn try_to_start(&self, number: usize) -> Outcome<Instance> {
        let (to_postgres, to_redis) = match number {
            0 => (&self.to_postgres[0], &self.to_redis[0]),
            _ => (&self.to_postgres[1], &self.to_redis[1]),
        };
        let direct = self.postgres.url(DATABASE);
        let through = direct.replace(&self.postgres.address().to_string(), &to_postgres.address().to_string());
        let database_url = format!("{through}?sslmode=disable&gssencmode=disable");
        let redis_url = format!("redis://{}/", to_redis.address());
        let settings = [
            ("DATABASE_URL", database_url.as_str()),
            ("REDIS_URL", redis_url.as_str()),
        ];
        let name = NAMES.get(number).ok_or("there are two instances")?;
        self.payonce.serve(name, &settings).await
    }

    /// `kill -9`.
    pub async fn kill(&mut self, number: usize) -> Outcome {
        match self.instances.get_mut(number).and_then(Option::take) {
            Some(mut instance) => instance.kill().await,
            None => Ok(()),
        }
    }
}
