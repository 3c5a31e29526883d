//! `payonce audit`: proves the books, law by law, and names the first row that breaks one.
//!
//! | exit status | means |
//! |---|---|
//! | 0 | all laws hold |
//! | 1 | at least one is broken |
//! | 2 | the audit could not be carried out, so nothing is known |

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::storage::audit::{self, Checked, Report};
use crate::storage::{DatabaseSettings, StorageError, connect};

/// An audit reads everything: no payment waits for it, and a statement may take long.
const NO_LIMIT: Duration = Duration::ZERO;

/// How long an audit that has been stopped (with Ctrl-Z, say) may keep its snapshot, which `VACUUM` has to heed.
const IDLE: Duration = Duration::from_mins(1);

/// Exit status of an audit that could not be carried out.
const NOT_DONE: u8 = 2;

/// Each law that is broken, with the first row that breaks it, in words.
///
/// # Errors
/// What the database says.
pub fn broken_laws(settings: &DatabaseSettings) -> Result<Vec<String>, StorageError> {
    Ok(in_words(&audit(settings, |_, _| {})?))
}

fn audit(settings: &DatabaseSettings, progress: impl FnMut(i64, i64)) -> Result<Report, StorageError> {
    let mut connection = connect(&DatabaseSettings {
        statement_timeout: NO_LIMIT,
        idle_in_transaction_timeout: IDLE,
        ..settings.clone()
    })?;
    audit::run(&mut connection, progress).map_err(|error| StorageError::before_commit(&error))
}

fn in_words(report: &Report) -> Vec<String> {
    let broken = report.laws.iter().filter_map(|checked| {
        let row = checked.broken.as_ref()?;
        let field = |name| row.get(name).map_or_else(String::new, text);
        let ids = row.get("at").and_then(Value::as_object).into_iter().flatten();
        let ids: Vec<String> = ids.map(|(name, id)| format!("{name} {}", text(id))).collect();
        let (law, ids, tenant) = (checked.law.law, ids.join(", "), field("tenant_id"));
        let (expected, found) = (field("expected"), field("found"));
        Some(format!(
            "{law}: {ids}, tenant_id {tenant}: expected {expected}, found {found}"
        ))
    });
    broken.collect()
}

/// A string without its quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Prints what was found. On a terminal a bar shows how far it is.
#[must_use]
pub fn run(settings: &DatabaseSettings, as_json: bool) -> ExitCode {
    let started = Instant::now();
    let bar = progress_bar();
    let checked = audit(settings, |done, total| {
        bar.update(|state| {
            state.set_len(u64::try_from(total).unwrap_or(0));
            state.set_pos(u64::try_from(done).unwrap_or(0));
        });
    });
    bar.finish_and_clear();
    let report = match checked {
        Ok(report) => report,
        Err(error) => {
            eprintln!("payonce: the books could not be audited: {error}");
            return ExitCode::from(NOT_DONE);
        }
    };
    let broken = in_words(&report);
    if as_json {
        println!("{:#}", document(&report, started.elapsed()));
    } else if broken.is_empty() {
        println!("the books are right: {} laws hold", report.laws.len());
    } else {
        for law in &broken {
            println!("BROKEN {law}");
        }
        println!("{} of {} laws are broken", broken.len(), report.laws.len());
    }
    ExitCode::from(u8::from(!broken.is_empty()))
}

/// On stderr, and only if that is a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("auditing {bar:40} {percent}% of {human_len} rows, {eta} to go");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn document(report: &Report, took: Duration) -> Value {
    let laws = report.laws.iter().map(
        |Checked { law, rows, broken }| json!({"id": law.id, "law": law.law, "rows": rows, "first_broken": broken}),
    );
    json!({
        "clean": report.laws.iter().all(|checked| checked.broken.is_none()),
        "snapshot_at": report.at,
        "seconds": took.as_secs_f64(),
        "laws": laws.collect::<Vec<_>>(),
    })
}
