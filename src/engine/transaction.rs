//! THE transaction. Check, execute and save the response: all of it happens, or none.
//!
//! | step | statement | why it is one of its own |
//! |---|---|---|
//! | claim | `INSERT INTO idempotency_keys … ON CONFLICT DO NOTHING RETURNING` | must come first: who inserts the key is first, and everybody else with it waits here for the outcome |
//! | lock | `SELECT payments … FOR NO KEY UPDATE` | a refund learns from its payment which accounts to lock; left out if nothing is refunded, as each of these is if it had nothing to do |
//! |  | `SELECT accounts … FOR NO KEY UPDATE` | what is decided must still be true at the commit |
//! | decide | none | pure: `domain::decide` |
//! | persist | `UPDATE accounts`, `INSERT transfers`, `INSERT payments` (`INSERT refunds`, `UPDATE payments`, `INSERT accounts`) | one for each table that the batch touches |
//! | save | `UPDATE idempotency_keys` | the response becomes durable together with its effect, or not at all |
//! | repeats | `SELECT idempotency_keys` | must come after the claim: a statement sees what was committed before it began, and the claim has waited for just that. After the save, too: then it also sees what this very batch has stored |
//! | | `COMMIT` | |
//!
//! With `BEGIN` that makes eight round trips for a batch of payments, however many they are.
//!
//! **Locks** are taken in one global order by all instances: keys, then payments, then accounts, each sorted by tenant and id in
//! the statement that locks. So two transactions can wait for each other in one direction only, which is no deadlock.
//!
//! **READ COMMITTED** is the right level: everything decided on is locked first, and at a higher level a plain duplicate
//! would raise 40001 from `ON CONFLICT DO NOTHING` instead of being one.
//!
//! Nothing remote is called in here, and answers travel with their requests: no two sequences are ever paired by position.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::{Connection, PgConnection, QueryResult};

use super::persist::persist;
use crate::api::render;
use crate::domain::{Books, Context, Effect, Refusal, decide};
use crate::idempotency::{Request, Retention, StoredResponse, Verdict, judge};
use crate::storage::{StorageError, accounts, idempotency_keys, payments};

/// A request and the place for its answer.
#[derive(Debug)]
pub struct Slot {
    /// What is asked.
    pub request: Request,
    /// What is answered; `None` until the transaction has run.
    pub answered: Option<Answered>,
}

impl Slot {
    /// Not answered yet.
    #[must_use]
    pub fn new(request: Request) -> Self {
        Self {
            request,
            answered: None,
        }
    }
}

/// What the transaction found out about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It was the first under its key, and this is now stored.
    First(StoredResponse),
    /// Its key was known.
    Known(Verdict),
}

/// How far the transaction had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Not yet in it.
    Begin,
    /// Claiming; here it waits for others that run under the same keys.
    Claim,
    /// Between claim and commit.
    Execute,
    /// The commit.
    Commit,
}

/// A transaction that failed, as a whole.
#[derive(Debug, Clone)]
pub struct Failure {
    /// How far it came.
    pub step: Step,
    /// How long it ran.
    pub took: Duration,
    /// What it met.
    pub error: StorageError,
}

/// Runs a batch: after `Ok` every slot is answered, and each first is committed together with its effect.
///
/// # Errors
/// A [`Failure`]: then nothing was committed, except perhaps at [`StorageError::OutcomeUnknown`], when all or nothing was.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that may open a transaction"
)]
pub fn run(connection: &mut PgConnection, mut slots: Vec<&mut Slot>, retention: Retention) -> Result<(), Failure> {
    let mut step = Step::Begin;
    let started = Instant::now();
    let outcome = connection.transaction(|connection| {
        step = Step::Claim;
        let mut claimed = idempotency_keys::claim(connection, slots.iter().map(|slot| &slot.request), retention)?;
        let (firsts, repeats): (Vec<&mut Slot>, Vec<&mut Slot>) =
            slots.drain(..).partition(|slot| claimed.take(&slot.request));

        step = Step::Execute;
        if let Some(claimed_at) = claimed.at {
            let (mut books, locked_at) = lock(connection, &firsts)?;
            let now = locked_at.unwrap_or(claimed_at);
            let decided = firsts
                .into_iter()
                .map(|slot| Decided::new(&mut books, slot, now))
                .collect::<QueryResult<_>>()?;
            persist(connection, &books)?;
            save(connection, decided)?;
        }
        if !repeats.is_empty() {
            answer_repeats(connection, repeats)?;
        }
        step = Step::Commit;
        Ok(())
    });
    outcome.map_err(|error: diesel::result::Error| Failure {
        step,
        took: started.elapsed(),
        error: match step {
            Step::Commit => StorageError::at_commit(&error),
            Step::Begin | Step::Claim | Step::Execute => StorageError::before_commit(&error),
        },
    })
}

/// Locks what the commands may look at: payments, then accounts, since a payment leads to its accounts.
fn lock(connection: &mut PgConnection, firsts: &[&mut Slot]) -> QueryResult<(Books, Option<DateTime<Utc>>)> {
    let mut books = Books::default();
    for Slot { request, .. } in firsts.iter().map(|slot| &**slot) {
        books.ask_for(request.tenant, request.command.needs(request.tenant));
    }
    for (tenant, payment) in payments::lock(connection, books.wanted_payments())? {
        books.hold_payment(tenant, payment);
    }
    let (locked, locked_at) = accounts::lock(connection, books.wanted_accounts())?;
    for (tenant, account) in locked {
        books.hold_account(tenant, account);
    }
    Ok((books, locked_at))
}

/// A first request with what was decided on it.
struct Decided<'a> {
    slot: &'a mut Slot,
    decision: Result<Effect, Refusal>,
}

impl<'a> Decided<'a> {
    fn new(books: &mut Books, slot: &'a mut Slot, now: DateTime<Utc>) -> QueryResult<Self> {
        let Request {
            tenant,
            command,
            new_id,
            ..
        } = &slot.request;
        let context = Context {
            tenant: *tenant,
            now,
            new_id: *new_id,
        };
        let decision =
            decide(books, command, context).map_err(|bug| diesel::result::Error::SerializationError(bug.into()))?;
        Ok(Self { slot, decision })
    }
}

/// Renders the answers and completes the claims with them.
fn save(connection: &mut PgConnection, decided: Vec<Decided<'_>>) -> QueryResult<()> {
    let mut answers = Vec::with_capacity(decided.len());
    for Decided { slot, decision } in decided {
        let response = render(slot.request.id, &decision)
            .map_err(|error| diesel::result::Error::SerializationError(error.into()))?;
        slot.answered = Some(Answered::First(response.clone()));
        answers.push((&slot.request, response));
    }
    idempotency_keys::save_responses(
        connection,
        answers.iter().map(|(request, response)| (*request, response)),
    )
}

/// Answers those whose key was known from what is stored under it.
fn answer_repeats(connection: &mut PgConnection, repeats: Vec<&mut Slot>) -> QueryResult<()> {
    let records = idempotency_keys::find(connection, repeats.iter().map(|slot| &slot.request))?;
    for slot in repeats {
        let known = records.get(&(slot.request.tenant.0, slot.request.key.as_str().to_owned()));
        // Gone between claim and look: the clean-up has just forgotten it.
        let verdict = known.map_or(Verdict::Free, |record| judge(record.clone(), &slot.request));
        slot.answered = Some(Answered::Known(verdict));
    }
    Ok(())
}
