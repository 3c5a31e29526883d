//! `make torture`: a random load of everything the service does, from clients that behave as real ones do, while everything
//! under it fails: instances, PostgreSQL, Redis, and the lines between them. Then a checker that shares no code with the
//! service compares what every client was told with what the database holds. Before all that, strangers flood an instance, whose
//! memory must not grow.
//!
//! All that is random comes from one seed, which is printed. What is drawn is then the same again; how the threads and processes
//! meet is not. The exit status is 0 only if nothing was wrong and enough has happened to say so.

mod ask;
mod caller;
mod check;
#[expect(dead_code, reason = "make failover needs the rest")]
mod cluster;
mod faults;
mod flood;
#[path = "../support/instance.rs"]
mod instance;
#[path = "../support/interrupt.rs"]
mod interrupt;
mod model;
#[expect(dead_code, reason = "shared with the tests, which throw the other switches")]
#[path = "../../tests/it/support/proxy.rs"]
mod proxy;
mod question;
mod races;
mod reads;
mod report;
mod stage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::caller::Caller;
use crate::faults::Faults;
use crate::interrupt::{INTERRUPTED, interrupted};
use crate::model::History;
use crate::report::{Report, Tally};
use crate::stage::Stage;

/// It stops at the first surprise; a violation is none, and is noted in the [`Tally`].
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How often the memory of the instances is read, and progress told.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
const TELL_EVERY: u64 = 15;

#[derive(Parser)]
struct Args {
    /// What all that is random comes from; drawn if not given
    #[arg(long, env = "TORTURE_SEED")]
    seed: Option<u64>,
    /// How many minutes faults go on
    #[arg(long, env = "TORTURE_MINUTES", default_value_t = 3)]
    minutes: u64,
    /// How many seconds, instead
    #[arg(long, env = "TORTURE_SECONDS")]
    seconds: Option<u64>,
    /// Clients at work at the same time
    #[arg(long, env = "TORTURE_CALLERS", default_value_t = 96, value_parser = clap::value_parser!(u64).range(1..=1000))]
    callers: u64,
    /// Writes the report as JSON, too
    #[arg(long)]
    json: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let folder = std::env::temp_dir().join(format!("payonce-torture-{}", Uuid::now_v7()));
    let played = tokio::select! {
        played = play(&args, &folder) => played,
        // The play is dropped, and ends with it all that it has started.
        _ = interrupted() => {
            drop(std::fs::remove_dir_all(&folder));
            return ExitCode::from(INTERRUPTED);
        }
    };
    match played {
        Ok(true) => {
            drop(std::fs::remove_dir_all(&folder));
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("The logs: {}", folder.display());
            ExitCode::FAILURE
        }
        Err(surprise) => {
            println!("It could not go on: {surprise}\nThe logs: {}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Load and faults; then a calm in which every question gets its answer; then the check. Was all of it right?
async fn play(args: &Args, folder: &Path) -> Outcome<bool> {
    std::fs::create_dir_all(folder)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let seconds = args.seconds.unwrap_or(args.minutes * 60);
    println!(
        "seed {seed}: {} clients, two instances, faults for {seconds} s",
        args.callers
    );
    let tally = Arc::new(Tally::default());
    let mut stage = Stage::set(folder).await?;
    flood::flood(&stage.service, &tally).await?;
    let (stop, stopping) = watch::channel(false);
    let shared = caller::open_shared(&stage.service, &tally, seed).await?;
    let accounts = Arc::new(shared.accounts());
    let mut callers = JoinSet::new();
    for number in 0..args.callers {
        let caller = Caller::new(&stage.service, &tally, &accounts, seed, number)?;
        callers.spawn(caller.call(stopping.clone()));
    }
    let began = Instant::now();
    let watcher = tokio::spawn(watch_over(Arc::clone(&tally), Arc::clone(&stage.service)));
    let mut faults = Faults::new(seed, folder)?;
    let deadline = began + Duration::from_secs(seconds);
    while Instant::now() < deadline {
        faults.strike(&mut stage, &tally).await?;
    }
    println!("calm: every question is asked until it is answered");
    stop.send_replace(true);
    let mut histories: Vec<History> = vec![shared];
    while let Some(ended) = callers.join_next().await {
        histories.push(ended?);
    }
    let took = began.elapsed();
    watcher.abort();
    println!("check: what was told against what is stored");
    check::all(&mut stage, &histories, &tally).await?;
    tally.check_enough(seconds);
    tally.check_memory();
    let report = Report::new(seed, took, &tally, &histories);
    println!("{report}");
    if let Some(path) = &args.json {
        std::fs::write(path, report.json()?)?;
    }
    Ok(report.is_good())
}

/// Notes the memory of the instances, and tells now and then how far it is.
async fn watch_over(tally: Arc<Tally>, service: Arc<stage::Service>) {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    for tick in 0_u64.. {
        ticks.tick().await;
        for resident in service.resident_kib() {
            tally.sample(resident);
        }
        if tick > 0 && tick.is_multiple_of(TELL_EVERY) {
            println!("{:>5} s  {}", tick * SAMPLE_EVERY.as_secs(), tally.in_short());
        }
    }
}
