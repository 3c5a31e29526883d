//! What has happened, counted; and what was wrong.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::Outcome;
use crate::faults::Fault;
use crate::model::History;

/// Violations that are told in full; all are counted.
const TOLD_IN_FULL: usize = 20;

/// A run of at least this many seconds must have seen every kind of fault.
const ALL_FAULTS_SECONDS: u64 = 150;

/// How much more memory an instance may take in the last tenth of a run than in the first, beside a half: buffers, and caches that
/// are not full at once.
const MOST_GROWTH_KIB: u64 = 8 * 1024;

/// What is counted while it happens.
#[derive(Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    events: BTreeMap<&'static str, u64>,
    answers: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    resident_kib: Vec<u64>,
    violations: Vec<String>,
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self, event: &'static str) {
        *self.counts().events.entry(event).or_default() += 1;
    }

    pub fn answer(&self, kind: String) {
        *self.counts().answers.entry(kind).or_default() += 1;
    }

    pub fn fault(&self, fault: String) {
        *self.counts().faults.entry(fault).or_default() += 1;
    }

    pub fn sample(&self, resident_kib: u64) {
        self.counts().resident_kib.push(resident_kib);
    }

    pub fn violation(&self, what: String) {
        let mut counts = self.counts();
        if counts.violations.len() < TOLD_IN_FULL {
            println!("VIOLATION {what}");
        }
        counts.violations.push(what);
    }

    /// A run in which too little happened proves nothing.
    pub fn check_enough(&self, seconds: u64) {
        let (events, faults) = {
            let counts = self.counts();
            (counts.events.clone(), counts.faults.clone())
        };
        for event in [
            "retries",
            "replays",
            "hang-ups",
            "duplicates at once",
            "keys used again for something else",
            "races",
            "reads",
        ] {
            if !events.contains_key(event) {
                self.violation(format!("it proves nothing: there were no {event}"));
            }
        }
        for fault in Fault::ALL {
            if seconds >= ALL_FAULTS_SECONDS && !faults.contains_key(&fault.to_string()) {
                self.violation(format!("it proves nothing: the fault '{fault}' never came"));
            }
        }
    }

    /// What grows with the number of requests grows for ever.
    pub fn check_memory(&self) {
        let resident = resident(&self.counts().resident_kib);
        let [first, last] = ["median of the first tenth", "median of the last tenth"]
            .map(|part| resident.get(part).copied().unwrap_or_default());
        if last > first + first / 2 + MOST_GROWTH_KIB {
            self.violation(format!("the memory of an instance grew from {first} to {last} KiB"));
        }
    }

    pub fn in_short(&self) -> String {
        let counts = self.counts();
        format!(
            "{} requests, {} replays, {} faults, {} violations",
            counts.events.get("requests").unwrap_or(&0),
            counts.events.get("replays").unwrap_or(&0),
            counts.faults.values().sum::<u64>(),
            counts.violations.len()
        )
    }
}

/// The table at the end.
pub struct Report {
    seed: u64,
    seconds: u64,
    events: BTreeMap<&'static str, u64>,
    answers: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    keys: usize,
    effects: usize,
    resident_kib: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
}

impl Report {
    pub fn new(seed: u64, took: Duration, tally: &Tally, histories: &[History]) -> Self {
        let counts = tally.counts();
        let told = || histories.iter().flat_map(|history| &history.told);
        Self {
            seed,
            seconds: took.as_secs(),
            events: counts.events.clone(),
            answers: counts.answers.clone(),
            faults: counts.faults.clone(),
            keys: told().count(),
            effects: told().filter(|told| told.effect.is_some()).count(),
            resident_kib: resident(&counts.resident_kib),
            violations: counts.violations.clone(),
        }
    }

    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    pub fn json(&self) -> Outcome<String> {
        Ok(serde_json::to_string_pretty(&json!({
            "seed": self.seed,
            "seconds": self.seconds,
            "events": self.events,
            "answers": self.answers,
            "faults": self.faults,
            "keys": self.keys,
            "effects": self.effects,
            "resident_kib": self.resident_kib,
            "violations": self.violations,
        }))?)
    }
}

/// The middle of the first and of the last tenth, and the most: a leak shows as a difference.
fn resident(samples: &[u64]) -> BTreeMap<&'static str, u64> {
    let tenth = (samples.len() / 10).max(1);
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part.get(part.len() / 2).copied().unwrap_or_default()
    };
    let most = samples.iter().max().copied().unwrap_or_default();
    BTreeMap::from([
        (
            "median of the first tenth",
            median(samples.get(..tenth).unwrap_or_default()),
        ),
        (
            "median of the last tenth",
            median(samples.get(samples.len().saturating_sub(tenth)..).unwrap_or_default()),
        ),
        ("most", most),
    ])
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &dyn Display| writeln!(f, "{name:>44}  {value}");
        for (event, count) in &self.events {
            row(event, count)?;
        }
        row("keys", &self.keys)?;
        row("effects", &self.effects)?;
        for (answer, count) in &self.answers {
            row(&format!("answer: {answer}"), count)?;
        }
        for (fault, count) in &self.faults {
            row(&format!("fault: {fault}"), count)?;
        }
        row("faults", &self.faults.values().sum::<u64>())?;
        for (what, kib) in &self.resident_kib {
            row(&format!("memory of an instance, KiB, {what}"), kib)?;
        }
        row("seconds", &self.seconds)?;
        row("seed", &self.seed)?;
        row("VIOLATIONS", &self.violations.len())
    }
}
