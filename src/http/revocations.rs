//! Hears of revoked API keys, so that not every request has to look its key up.
//!
//! One thread listens (`LISTEN`). It vouches for the remembered keys for [`HEARSAY`] from the last moment up to which it has heard of
//! everything; who revokes a key waits for as long.
//!
//! That it hears nothing does not mean that nothing was said. A pooler in transaction mode accepts `LISTEN` and swallows what comes
//! of it; a primary that was replaced goes on answering. So a second thread announces itself (`NOTIFY`) again and again, on a new
//! connection each time, as who revokes a key would. Only while the first one hears that does it vouch; else every key is looked
//! up at every request.

use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use diesel::{PgConnection, QueryResult};
use uuid::Uuid;

use super::remembered_keys::RememberedKeys;
use crate::storage::api_keys::{self, News};
use crate::storage::{DatabaseSettings, connect};

/// How often the listener asks for notifications. Asking costs one round trip.
const LISTEN_EVERY: Duration = Duration::from_millis(20);

/// How long after the listener last asked the remembered keys count. Some [`LISTEN_EVERY`]s, so that a busy machine does not
/// have to look every key up; short, because `payonce api-key revoke` waits for as long.
pub const HEARSAY: Duration = Duration::from_millis(250);

/// How often it is tried whether an announcement is heard. Each costs a connection and a transaction.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);

/// How long one that was heard proves that revocations are heard as well.
const PROOF_LASTS: Duration = Duration::from_secs(30);

/// How long the listener waits before it tries to connect again.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);

/// How long it may be deaf before that is worth a line in the log: a start or a restart of PostgreSQL takes a moment.
const WARN_AFTER: Duration = Duration::from_secs(3);

/// Starts to vouch for the keys, until they are dropped.
pub(super) fn start(keys: &Arc<RememberedKeys>, settings: &DatabaseSettings) -> std::io::Result<()> {
    let token = Uuid::now_v7();
    let announcer = spawn("api-key-announcer", {
        let (keys, settings) = (Arc::downgrade(keys), settings.clone());
        move || announce(&keys, &settings, token)
    })?;
    let listener = Listener {
        keys: Arc::downgrade(keys),
        token,
        announcer,
        proved_until: None,
        deaf_since: None,
        warned: false,
    };
    let settings = settings.clone();
    spawn("api-key-listener", move || listener.run(&settings)).map(drop)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(thread.thread().clone())
}

/// Announces itself now and then, and whenever the listener wakes it.
fn announce(keys: &Weak<RememberedKeys>, settings: &DatabaseSettings, token: Uuid) {
    while keys.strong_count() > 0 {
        thread::park_timeout(ANNOUNCE_EVERY);
        let announced = connect(settings).map(|mut connection| api_keys::announce(&mut connection, token));
        if !matches!(announced, Ok(Ok(()))) {
            tracing::debug!(?announced, "could not announce itself");
        }
    }
}

/// How something came: by itself, or between a question and its answer. A pooler in transaction mode lets the latter through, so it
/// proves nothing, and is tried again.
#[derive(Clone, Copy)]
enum Asked {
    No,
    Yes,
}

struct Listener {
    keys: Weak<RememberedKeys>,
    /// What the announcer says.
    token: Uuid,
    announcer: Thread,
    proved_until: Option<Instant>,
    deaf_since: Option<Instant>,
    warned: bool,
}

impl Listener {
    fn run(mut self, settings: &DatabaseSettings) {
        while self.keys.strong_count() > 0 {
            let ended = connect(settings).map(|mut connection| self.listen_on(&mut connection));
            self.proved_until = None;
            if let Some(keys) = self.keys.upgrade() {
                keys.doubt_all();
            }
            self.tell();
            if !matches!(ended, Ok(Ok(()))) {
                thread::sleep(RECONNECT_AFTER);
            }
        }
    }

    fn listen_on(&mut self, connection: &mut PgConnection) -> QueryResult<()> {
        api_keys::listen(connection)?;
        self.announcer.unpark();
        let since = Instant::now();
        // One that stays deaf is given up: it may lead to a server that has been replaced.
        while self.is_proved() || since.elapsed() < PROOF_LASTS {
            let Some(keys) = self.keys.upgrade() else { break };
            self.hear(connection, &keys, Asked::No)?;
            let asked = Instant::now();
            api_keys::listen(connection)?;
            self.hear(connection, &keys, Asked::Yes)?;
            if self.is_proved() {
                keys.rely_until(asked + HEARSAY);
            }
            drop(keys);
            self.tell();
            thread::sleep(LISTEN_EVERY);
        }
        Ok(())
    }

    fn hear(&mut self, connection: &mut PgConnection, keys: &RememberedKeys, asked: Asked) -> QueryResult<()> {
        for news in api_keys::heard(connection)? {
            match (news, asked) {
                (News::Changed, _) => keys.doubt_all(),
                (News::Announced(token), _) if token != self.token => {}
                (News::Announced(_), Asked::No) => {
                    if !self.is_proved() {
                        // What was remembered before may have been revoked unheard.
                        keys.doubt_all();
                    }
                    self.proved_until = Some(Instant::now() + PROOF_LASTS);
                }
                (News::Announced(_), Asked::Yes) => self.announcer.unpark(),
            }
        }
        Ok(())
    }

    fn is_proved(&self) -> bool {
        self.proved_until.is_some_and(|until| Instant::now() < until)
    }

    /// Logs that revocations are not heard of, or are again, once each.
    fn tell(&mut self) {
        if self.is_proved() {
            self.deaf_since = None;
            if std::mem::take(&mut self.warned) {
                tracing::info!("PostgreSQL's notifications are heard: API keys are remembered again");
            }
            return;
        }
        let deaf_since = *self.deaf_since.get_or_insert_with(Instant::now);
        if !self.warned && deaf_since.elapsed() > WARN_AFTER {
            self.warned = true;
            tracing::warn!(
                "no notification of PostgreSQL is heard, so each API key is looked up at every request: the server is out of reach, \
                 or behind a pooler that is not in session mode"
            );
        }
    }
}
