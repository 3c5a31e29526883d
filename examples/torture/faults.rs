//! What fails, drawn like cards from a shuffled deck, so that each kind comes as often as the others.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::sleep;

use crate::Outcome;
use crate::proxy::Proxy;
use crate::report::Tally;
use crate::stage::{DATABASE, Stage};

/// How long a fault lasts, and how long there is none, in milliseconds.
const LASTS_MS: std::ops::RangeInclusive<u64> = 50..=900;
const PAUSE_MS: std::ops::RangeInclusive<u64> = 300..=1800;

/// An instance sometimes stays frozen longer than its transactions may be idle (`IDLE_IN_TRANSACTION_TIMEOUT`, 2 s).
const FROZEN_MS: std::ops::RangeInclusive<u64> = 100..=3500;

/// How late a delayed reply is.
const DELAY: Duration = Duration::from_millis(30);

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` of an instance, which is started again.
    KillInstance,
    /// SIGSTOP, then SIGCONT.
    FreezeInstance,
    /// `pg_terminate_backend` of half of the service's sessions, at random.
    TerminateSessions,
    /// `kill -9` of one session: PostgreSQL ends all others, and recovers.
    KillSession,
    /// `pg_ctl stop -m immediate`, and a start.
    StopPostgres,
    FreezePostgres,
    KillRedis,
    FreezeRedis,
    FlushRedis,
    /// No memory for one more key.
    FillRedis,
    /// The line between an instance and a server.
    Line(Server, Trouble),
    /// An error that PostgreSQL raises in every fifth statement, or every fifth commit.
    Raise(&'static str),
    RaiseAtCommit(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Postgres,
    Redis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    DropReplies,
    HoldReplies,
    Cut,
    Delay,
    Garbage,
    Freeze,
}

impl Fault {
    /// All there are.
    pub const ALL: [Self; 29] = {
        use Server::{Postgres, Redis};
        use Trouble::{Cut, Delay, DropReplies, Freeze, Garbage, HoldReplies};
        [
            Self::KillInstance,
            Self::FreezeInstance,
            Self::TerminateSessions,
            Self::KillSession,
            Self::StopPostgres,
            Self::FreezePostgres,
            Self::KillRedis,
            Self::FreezeRedis,
            Self::FlushRedis,
            Self::FillRedis,
            Self::Line(Postgres, DropReplies),
            Self::Line(Postgres, HoldReplies),
            Self::Line(Postgres, Cut),
            Self::Line(Postgres, Delay),
            Self::Line(Postgres, Garbage),
            Self::Line(Postgres, Freeze),
            Self::Line(Redis, DropReplies),
            Self::Line(Redis, HoldReplies),
            Self::Line(Redis, Cut),
            Self::Line(Redis, Delay),
            Self::Line(Redis, Garbage),
            Self::Line(Redis, Freeze),
            Self::Raise("40001"),
            Self::Raise("40P01"),
            Self::Raise("55P03"),
            Self::Raise("57014"),
            Self::Raise("57P01"),
            Self::RaiseAtCommit("40001"),
            Self::RaiseAtCommit("57P01"),
        ]
    };

    /// May it come while `other` lasts? Not if it needs what that one takes away.
    fn can_join(self, other: Self) -> bool {
        match self {
            Self::Line(..) => true,
            Self::FreezeInstance => other != Self::KillInstance,
            Self::FreezeRedis | Self::FlushRedis | Self::FillRedis => {
                !matches!(other, Self::KillRedis | Self::FreezeRedis | Self::FillRedis)
            }
            _ => false,
        }
    }

    fn lasts(self, random: &mut fastrand::Rng) -> Duration {
        let range = if self == Self::FreezeInstance {
            FROZEN_MS
        } else {
            LASTS_MS
        };
        Duration::from_millis(random.u64(range))
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillInstance => write!(f, "kill -9 of an instance"),
            Self::FreezeInstance => write!(f, "an instance freezes"),
            Self::TerminateSessions => write!(f, "sessions are terminated"),
            Self::KillSession => write!(f, "kill -9 of a session"),
            Self::StopPostgres => write!(f, "PostgreSQL stops at once"),
            Self::FreezePostgres => write!(f, "PostgreSQL freezes"),
            Self::KillRedis => write!(f, "kill -9 of Redis"),
            Self::FreezeRedis => write!(f, "Redis freezes"),
            Self::FlushRedis => write!(f, "Redis forgets all"),
            Self::FillRedis => write!(f, "Redis is full"),
            Self::Line(server, trouble) => write!(f, "line to {server:?}: {trouble:?}"),
            Self::Raise(state) => write!(f, "{state} in statements"),
            Self::RaiseAtCommit(state) => write!(f, "{state} at commits"),
        }
    }
}

/// The deck, and where its cards are noted.
pub struct Faults {
    random: fastrand::Rng,
    deck: Vec<Fault>,
    log: File,
    began: Instant,
}

impl Faults {
    pub fn new(seed: u64, folder: &Path) -> Outcome<Self> {
        Ok(Self {
            random: fastrand::Rng::with_seed(seed),
            deck: Vec::new(),
            log: File::create(folder.join("faults.log"))?,
            began: Instant::now(),
        })
    }

    /// One fault, sometimes two at a time, and the quiet after it.
    pub async fn strike(&mut self, stage: &mut Stage, tally: &Tally) -> Outcome {
        let fault = self.draw();
        let second = self.draw_another(fault);
        let (at, second_at) = (self.random.usize(0..2), self.random.usize(0..2));
        self.begin(fault, at, stage, tally).await?;
        if let Some(second) = second {
            self.begin(second, second_at, stage, tally).await?;
        }
        sleep(fault.lasts(&mut self.random)).await;
        if let Some(second) = second {
            end(second, second_at, stage).await?;
        }
        end(fault, at, stage).await?;
        sleep(Duration::from_millis(self.random.u64(PAUSE_MS))).await;
        Ok(())
    }

    /// The next card.
    fn draw(&mut self) -> Fault {
        if self.deck.is_empty() {
            self.deck = Fault::ALL.to_vec();
            self.random.shuffle(&mut self.deck);
        }
        self.deck.pop().unwrap_or(Fault::KillInstance)
    }

    /// In a quarter of all cases, the next card that can join the first.
    fn draw_another(&mut self, first: Fault) -> Option<Fault> {
        if self.random.u8(0..4) > 0 {
            return None;
        }
        let place = self.deck.iter().rposition(|fault| fault.can_join(first))?;
        Some(self.deck.remove(place))
    }

    async fn begin(&mut self, fault: Fault, at: usize, stage: &mut Stage, tally: &Tally) -> Outcome {
        tally.fault(fault.to_string());
        writeln!(self.log, "{:>9} ms  {fault} ({at})", self.began.elapsed().as_millis())?;
        match fault {
            Fault::KillInstance => stage.kill(at).await,
            Fault::FreezeInstance => signal(stage.service.process(at), Signal::SIGSTOP),
            Fault::TerminateSessions => {
                let half = format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = '{DATABASE}' AND pid <> pg_backend_pid() AND random() < 0.5"
                );
                stage.postgres.sql(&half).await.map(drop)
            }
            Fault::KillSession => stage.postgres.kill_9_session(DATABASE).await.map(drop),
            Fault::StopPostgres => stage.postgres.stop_immediate().await,
            Fault::FreezePostgres => stage.postgres.freeze(),
            Fault::KillRedis => stage.redis.kill().await,
            Fault::FreezeRedis => stage.redis.freeze(),
            Fault::FlushRedis => stage.redis.cli(&["flushall"]).await.map(drop),
            Fault::FillRedis => stage.redis.cli(&["config", "set", "maxmemory", "1"]).await.map(drop),
            Fault::Line(server, trouble) => {
                let line = line(stage, server, at);
                match trouble {
                    Trouble::DropReplies => line.drop_replies(),
                    Trouble::HoldReplies => line.hold_replies(),
                    Trouble::Cut => line.cut(),
                    Trouble::Delay => line.delay(DELAY),
                    Trouble::Garbage => line.garbage(),
                    Trouble::Freeze => line.freeze(),
                }
                Ok(())
            }
            Fault::Raise(state) => inject(stage, "statement", state).await,
            Fault::RaiseAtCommit(state) => inject(stage, "commit", state).await,
        }
    }
}

/// All is well again.
async fn end(fault: Fault, at: usize, stage: &mut Stage) -> Outcome {
    match fault {
        Fault::KillInstance => stage.start(at).await,
        Fault::FreezeInstance => signal(stage.service.process(at), Signal::SIGCONT),
        Fault::StopPostgres => stage.postgres.restart().await,
        Fault::FreezePostgres => stage.postgres.thaw(),
        Fault::KillRedis => stage.redis.restart().await,
        Fault::FreezeRedis => stage.redis.thaw(),
        Fault::FillRedis => stage.redis.cli(&["config", "set", "maxmemory", "0"]).await.map(drop),
        Fault::Line(server, trouble) => {
            let line = line(stage, server, at);
            if matches!(trouble, Trouble::DropReplies | Trouble::Garbage) {
                // What was swallowed never comes: such a connection is of no more use.
                line.cut();
            }
            line.pass();
            Ok(())
        }
        Fault::Raise(_) | Fault::RaiseAtCommit(_) => {
            let none = "DELETE FROM torture.injection";
            stage.postgres.sql_in(DATABASE, none).await.map(drop)
        }
        Fault::TerminateSessions | Fault::KillSession | Fault::FlushRedis => Ok(()),
    }
}

fn line(stage: &Stage, server: Server, at: usize) -> &Proxy {
    let [a, b] = match server {
        Server::Postgres => &stage.to_postgres,
        Server::Redis => &stage.to_redis,
    };
    if at == 0 { a } else { b }
}

async fn inject(stage: &Stage, at: &str, state: &str) -> Outcome {
    let one = format!("INSERT INTO torture.injection VALUES ('{at}', '{state}', 0.2)");
    stage.postgres.sql_in(DATABASE, &one).await.map(drop)
}

fn signal(process: u32, signal: Signal) -> Outcome {
    Ok(kill(Pid::from_raw(process.try_into()?), signal)?)
}
