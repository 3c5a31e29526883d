//! `make failover`: the primary is killed under load, its synchronous standby takes over, and the service follows.
//!
//! Two instances of the release binary, told of both servers; callers that pay under a key and ask again under the same
//! key until they are answered; and a note of every payment that was acknowledged. After each fail-over the new primary
//! must have them all, each once and with the answer that was given. The exit status is 0 only then.
//!
//! `--counter-proof` does the same with an asynchronous standby. Then payments get lost, and the exit status is 0 only if
//! that is found.

#[path = "failover/callers.rs"]
mod callers;
#[expect(dead_code, reason = "shared with the demo, which does more with it")]
#[path = "../support/client.rs"]
mod client;
#[expect(dead_code, unused_imports, reason = "make torture needs the rest")]
mod cluster;
#[expect(dead_code, reason = "shared with the demo, which does more with it")]
#[path = "../support/instance.rs"]
mod instance;
#[path = "../support/interrupt.rs"]
mod interrupt;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use crate::callers::{Caller, GIVE_UP, Heard, Paid};
use crate::client::{Client, new_key};
use crate::cluster::{Cluster, Commits};
use crate::instance::{Instance, Payonce};
use crate::interrupt::{INTERRUPTED, interrupted};

/// It stops at the first surprise; a payment that is lost is none, but a finding.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const DATABASE: &str = "payonce";

const CALLERS: usize = 16;

/// How long a caller waits for an answer before he asks the other instance.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long payments go on between two faults.
const QUIET: Duration = Duration::from_secs(2);

/// How long the primary goes on without its standby; and how long before what was under way may still be answered.
const ALONE: Duration = Duration::from_millis(500);

/// How often is looked whether the service is back.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many payments are asked for again, of the last before each kill.
const ASKED_AGAIN: usize = 50;

#[derive(Parser)]
struct Args {
    /// How often the primary is killed: 1 to 100
    #[arg(long, env = "FAILOVER_ROUNDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// With an asynchronous standby: succeeds if payments are found lost
    #[arg(long)]
    counter_proof: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let folder = std::env::temp_dir().join(format!("payonce-failover-{}", Uuid::now_v7()));
    let played = tokio::select! {
        played = play(&args, &folder) => Some(played),
        // The play is dropped, and ends with it all that it has started.
        _ = interrupted() => None,
    };
    let good = match &played {
        Some(Ok(findings)) => findings.is_empty() != args.counter_proof,
        Some(Err(surprise)) => {
            println!("It could not go on: {surprise}");
            false
        }
        None => true,
    };
    if good {
        drop(std::fs::remove_dir_all(&folder));
    } else {
        println!("The logs: {}", folder.display());
    }
    match (played, good) {
        (None, _) => ExitCode::from(INTERRUPTED),
        (_, true) => ExitCode::SUCCESS,
        (_, false) => ExitCode::FAILURE,
    }
}

/// Plays it all; what was found wrong.
async fn play(args: &Args, folder: &Path) -> Outcome<Vec<String>> {
    let mut stage = Stage::set(args, folder).await?;
    let heard = Arc::new(Heard::default());
    let (stop, stopping) = watch::channel(false);
    let mut callers = stage.callers(&heard, &stopping).await?;
    let mut findings = Vec::new();
    for round in 1..=args.rounds {
        let alone = args.counter_proof || round == args.rounds;
        tokio::select! {
            played = stage.round(round, alone, &heard, &mut findings) => played?,
            ended = callers.join_next() => return Err(why_ended(ended).into()),
        }
    }
    stop.send_replace(true);
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    stage.check_all(&heard, &mut findings).await?;
    for finding in &findings {
        println!("WRONG {finding}");
    }
    println!("{}", heard.in_short());
    println!("{}", verdict(args, &findings));
    Ok(findings)
}

fn verdict(args: &Args, findings: &[String]) -> &'static str {
    match (args.counter_proof, findings.is_empty()) {
        (false, true) => "Nothing was lost, and nothing happened twice.",
        (false, false) => "That must not be.",
        (true, false) => "That must be so with an asynchronous standby: what is lost is found.",
        (true, true) => "With an asynchronous standby something must be lost, and nothing was found.",
    }
}

fn why_ended(ended: Option<Result<Outcome, tokio::task::JoinError>>) -> String {
    match ended {
        Some(Ok(Err(error))) => error.to_string(),
        Some(Err(error)) => error.to_string(),
        _ => "a caller stopped before he was told to".to_owned(),
    }
}

/// Servers and instances.
struct Stage {
    commits: Commits,
    primary: Cluster,
    standby: Cluster,
    payonce: Payonce,
    instances: [Instance; 2],
    client: Client,
    kills: Vec<Instant>,
}

impl Stage {
    async fn set(args: &Args, folder: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(folder)?;
        let commits = if args.counter_proof {
            Commits::DoNotWait
        } else {
            Commits::WaitForStandby
        };
        let primary = Cluster::start(&folder.join("server-0")).await?;
        let url = primary.create_database(DATABASE).await?;
        let standby = Cluster::standby_of(&primary, &folder.join("server-1"), commits).await?;
        let payonce = Payonce::find(folder.to_owned())?;
        payonce.ask(&["migrate"], &url).await?;
        let create_key = ["api-key", "create", "--tenant", "failover", "--quiet"];
        let api_key = payonce.ask(&create_key, &url).await?;
        let database_url = Cluster::url_of_primary([&primary, &standby], DATABASE);
        // As the caller's environment may have one.
        let settings = [("DATABASE_URL", database_url.as_str()), ("REDIS_URL", "")];
        let instances = [
            payonce.serve("A", &settings).await?,
            payonce.serve("B", &settings).await?,
        ];
        println!(
            "Two instances, {CALLERS} callers, a primary on {} and its {} standby on {}",
            primary.address(),
            if args.counter_proof {
                "asynchronous"
            } else {
                "synchronous"
            },
            standby.address()
        );
        Ok(Self {
            commits,
            client: Client::new(api_key)?,
            primary,
            standby,
            payonce,
            instances,
            kills: Vec::new(),
        })
    }

    /// Has the callers begin, each with accounts of his own.
    async fn callers(&self, heard: &Arc<Heard>, stopping: &watch::Receiver<bool>) -> Outcome<JoinSet<Outcome>> {
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let [a, b] = &self.instances;
            let mut urls = [a.url.clone(), b.url.clone()];
            urls.rotate_left(number % 2);
            let pair = self.client.alice_and_bob(&a.url).await?;
            let much = json!({"amount": "1000000.00", "currency": "USD"});
            let path = format!("/accounts/{}/deposits", pair.alice);
            self.client.post(&a.url, &path, &new_key(), much).await?.created()?;
            let caller = Caller {
                client: self.client.with_patience(PATIENCE)?,
                urls,
                pair,
                heard: Arc::clone(heard),
                stopping: stopping.clone(),
            };
            callers.spawn(caller.call());
        }
        Ok(callers)
    }

    async fn round(&mut self, round: u32, alone: bool, heard: &Heard, findings: &mut Vec<String>) -> Outcome {
        self.crash(round, heard, findings).await?;
        self.fail_over(round, alone, heard, findings).await
    }

    /// `kill -9` of a session: the primary restarts itself, and recovers.
    async fn crash(&mut self, round: u32, heard: &Heard, findings: &mut Vec<String>) -> Outcome {
        sleep(QUIET).await;
        self.kills.push(Instant::now());
        if !self.primary.kill_9_session(DATABASE).await? {
            return Err("there was no session to kill".into());
        }
        println!("round {round}: a session of the primary is killed, and PostgreSQL restarts");
        self.say_silence(round, Instant::now(), heard).await?;
        self.check_kept(&format!("round {round}, restarted"), heard, findings)
            .await
    }

    /// The primary dies, the standby takes over, and gets a standby of its own in the place of the dead. The harder case is a
    /// standby that was down before: what the primary acknowledged `alone` is lost for certain.
    async fn fail_over(&mut self, round: u32, alone: bool, heard: &Heard, findings: &mut Vec<String>) -> Outcome {
        sleep(QUIET).await;
        if alone {
            self.standby.kill_9().await?;
            sleep(ALONE).await;
            let before = heard.count();
            sleep(ALONE).await;
            let more = heard.count() - before;
            println!(
                "round {round}: the standby is killed; in {} ms the primary alone acknowledges {more}",
                ALONE.as_millis()
            );
            if more > 0 && self.commits == Commits::WaitForStandby {
                findings.push(format!(
                    "round {round}: {more} payments were acknowledged without the standby"
                ));
            }
        }
        let killed = Instant::now();
        self.kills.push(killed);
        self.primary.kill_9().await?;
        if alone {
            self.standby.restart().await?;
        }
        self.standby.promote().await?;
        let promoted = Instant::now();
        let took = (promoted - killed).as_millis();
        println!("round {round}: the primary is killed; its standby is promoted {took} ms later");
        self.say_silence(round, promoted, heard).await?;
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.check_kept(&format!("round {round}, failed over"), heard, findings)
            .await?;
        self.standby.follow(&self.primary, self.commits).await
    }

    async fn say_silence(&self, round: u32, moment: Instant, heard: &Heard) -> Outcome {
        for (name, instance) in ["A", "B"].into_iter().zip(&self.instances) {
            let silence = silence(&instance.url, moment, heard).await?;
            println!("round {round}: no success from {name} for {} ms", silence.as_millis());
        }
        Ok(())
    }

    /// Every acknowledged payment must be in the database of the server that took over, with the answer that was given.
    async fn check_kept(&self, when: &str, heard: &Heard, findings: &mut Vec<String>) -> Outcome {
        // What is acknowledged later may not be there yet.
        let paid = heard.paid();
        let stored = "SELECT key || ' ' || encode(response_body, 'hex') FROM idempotency_keys
                      WHERE response_code = 201 AND resource_kind = 'payment'";
        let stored = self.primary.sql_in(DATABASE, stored).await?;
        let stored: HashMap<_, _> = stored.lines().filter_map(|line| line.split_once(' ')).collect();
        let lost = paid
            .iter()
            .filter(|paid| !stored.contains_key(paid.key.as_str()))
            .count();
        let kept = |paid: &&Paid| {
            stored
                .get(paid.key.as_str())
                .is_none_or(|body| *body == hex::encode(&paid.body))
        };
        let changed = paid.len() - paid.iter().filter(kept).count();
        if lost + changed > 0 {
            let all = paid.len();
            findings.push(format!(
                "{when}: of {all} acknowledged payments {lost} are lost, {changed} have another answer"
            ));
        }
        Ok(())
    }

    /// When all callers have their answers: one payment for each key, and no other; and the books are right.
    async fn check_all(&self, heard: &Heard, findings: &mut Vec<String>) -> Outcome {
        self.check_kept("at the end", heard, findings).await?;
        let paid = heard.paid();
        let acknowledged = paid.len().to_string();
        for (what, query) in [
            ("payments", "SELECT count(*) FROM payments"),
            (
                "of them by a key",
                "SELECT count(DISTINCT resource_id) FROM idempotency_keys WHERE resource_kind = 'payment'",
            ),
            (
                "paid by the balances",
                "SELECT round(sum(balance), 0) FROM accounts WHERE name = 'Bob'",
            ),
        ] {
            let found = self.primary.sql_in(DATABASE, query).await?;
            if found != acknowledged {
                findings.push(format!("{acknowledged} payments were acknowledged; {what}: {found}"));
            }
        }
        self.ask_again(&paid, findings).await?;
        let (good, printed) = self.payonce.run(&["audit"], &self.primary.url(DATABASE)).await?;
        println!("payonce audit: {printed}");
        if !good {
            findings.push("payonce audit finds the books broken".to_owned());
        }
        Ok(())
    }

    /// The callers ask once more for the last payments before each kill: they are told what they were told.
    async fn ask_again(&self, paid: &[Paid], findings: &mut Vec<String>) -> Outcome {
        let [a, _] = &self.instances;
        let (mut asked, mut otherwise) = (0, 0);
        for kill in &self.kills {
            // In the order in which they were told.
            let told = paid.iter().rev().filter(|paid| paid.told < *kill);
            for paid in told.take(ASKED_AGAIN) {
                let again = self.client.pay(&a.url, &paid.key, paid.pair, "1.00").await?;
                asked += 1;
                otherwise += usize::from(!again.replayed || again.body != paid.body);
            }
        }
        println!(
            "{asked} payments acknowledged just before a kill are asked for again: {otherwise} have another answer"
        );
        if otherwise > 0 {
            findings.push(format!(
                "asked for again, {otherwise} of {asked} payments had another answer"
            ));
        }
        Ok(())
    }
}

/// The longest time without a success of the instance, looked at when it has one after that moment.
async fn silence(url: &str, moment: Instant, heard: &Heard) -> Outcome<Duration> {
    let deadline = Instant::now() + GIVE_UP;
    loop {
        let mut told = heard.told_by(url);
        if told.last().is_some_and(|last| *last > moment) {
            told.sort_unstable();
            let recent = told.windows(2).filter_map(|pair| match pair {
                [earlier, later] if *later + QUIET > moment => Some(*later - *earlier),
                _ => None,
            });
            return Ok(recent.max().unwrap_or_default());
        }
        if Instant::now() > deadline {
            return Err(format!("no payment by {url} within {} s after the fail-over", GIVE_UP.as_secs()).into());
        }
        sleep(LOOK_EVERY).await;
    }
}
