//! The score card: what a case is, what can come of it, and how that is shown.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use serde::Serialize;
use serde_json::json;

use crate::caller::Service;

/// What a check says. A case ends at its first `Err`.
pub type Checked<T = ()> = Result<T, Miss>;

/// Why a case did not pass.
#[derive(Debug, Clone)]
pub enum Miss {
    /// The service breaks the rule. Boxed, because it is large and seldom.
    Wrong(Box<Failure>),
    /// The rule can't be checked with what was given.
    Skipped(String),
}

/// What somebody needs to find the bug.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    pub request: String,
    pub came_back: String,
    pub right: String,
}

impl Miss {
    pub fn wrong(request: impl Into<String>, came_back: impl Into<String>, right: impl Into<String>) -> Self {
        Self::Wrong(Box::new(Failure {
            request: request.into(),
            came_back: came_back.into(),
            right: right.into(),
        }))
    }
}

/// A rule, and how it is checked.
pub struct Case {
    /// Its name in the collection of faults that it comes from.
    pub id: &'static str,
    rule: &'static str,
    check: Box<dyn Fn(Service) -> BoxFuture<'static, Checked> + Send + Sync>,
}

/// A line of a family's table.
pub fn case<C>(id: &'static str, rule: &'static str, check: fn(Service) -> C) -> Case
where
    C: Future<Output = Checked> + Send + 'static,
{
    Case {
        id,
        rule,
        check: Box::new(move |service| check(service).boxed()),
    }
}

/// What came of a case.
pub struct Scored {
    pub id: &'static str,
    rule: &'static str,
    pub outcome: Checked,
    took: Duration,
}

impl Case {
    pub async fn run(&self, service: &Service) -> Scored {
        let began = Instant::now();
        Scored {
            id: self.id,
            rule: self.rule,
            outcome: (self.check)(service.clone()).await,
            took: began.elapsed(),
        }
    }
}

/// Prints each case as it ends, and keeps the score.
pub struct Card {
    base: String,
    scored: Vec<Scored>,
    colours: bool,
}

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

impl Card {
    /// Prints the headline. Colours are for people: a file or a CI log gets none.
    pub fn begin(base: &str) -> Self {
        println!("{base}");
        Self {
            base: base.to_owned(),
            scored: Vec::new(),
            colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    pub fn print(&mut self, scored: Scored) {
        let (colour, mark) = match scored.outcome {
            Ok(()) => (GREEN, "✓"),
            Err(Miss::Wrong(_)) => (RED, "✗"),
            Err(Miss::Skipped(_)) => (YELLOW, "–"),
        };
        println!("{} {:<4} {}", self.painted(colour, mark), scored.id, scored.rule);
        match &scored.outcome {
            Ok(()) => {}
            Err(Miss::Skipped(reason)) => println!("       skipped: {reason}"),
            Err(Miss::Wrong(failure)) => {
                println!("       request    {}", failure.request);
                println!("       came back  {}", failure.came_back);
                println!("       right is   {}", failure.right);
            }
        }
        self.scored.push(scored);
    }

    pub fn print_total(&self) {
        let (passed, failed, skipped) = self.count();
        let mark = if failed == 0 {
            self.painted(GREEN, "✓")
        } else {
            self.painted(RED, "✗")
        };
        println!("{mark} {passed} passed, {failed} failed, {skipped} skipped");
    }

    /// Nothing failed, and something was checked.
    pub fn is_good(&self) -> bool {
        let (passed, failed, _) = self.count();
        passed > 0 && failed == 0
    }

    fn count(&self) -> (usize, usize, usize) {
        let of = |verdict: &str| self.scored.iter().filter(|scored| scored.verdict() == verdict).count();
        (of("passed"), of("failed"), of("skipped"))
    }

    pub fn json(&self) -> String {
        let (passed, failed, skipped) = self.count();
        let cases: Vec<_> = self.scored.iter().map(Scored::json).collect();
        let card = json!({
            "service": self.base, "passed": passed, "failed": failed, "skipped": skipped, "cases": cases,
        });
        format!("{card:#}\n")
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Scored {
    fn verdict(&self) -> &'static str {
        match self.outcome {
            Ok(()) => "passed",
            Err(Miss::Wrong(_)) => "failed",
            Err(Miss::Skipped(_)) => "skipped",
        }
    }

    fn json(&self) -> serde_json::Value {
        let (failure, reason) = match &self.outcome {
            Ok(()) => (None, None),
            Err(Miss::Wrong(failure)) => (Some(failure), None),
            Err(Miss::Skipped(reason)) => (None, Some(reason)),
        };
        json!({
            "id": self.id, "rule": self.rule, "verdict": self.verdict(), "milliseconds": self.took.as_millis(),
            "failure": failure, "skipped_because": reason,
        })
    }
}
