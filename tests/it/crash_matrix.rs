//! The crash matrix: each kind of command is interrupted at every boundary between two statements of its transaction, before
//! the statement gets to PostgreSQL and after it is executed there. What dies is the service (`kill -9`), its session in
//! PostgreSQL, or the line between them. A retry on another instance executes or replays at once: nothing is lost, nothing
//! happens twice, whatever died and whenever.
//!
//! `CRASH_ROUNDS` says how often the matrix is gone through; once, if it is not set.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::app::{Setup, address_in, through_address, until, until_async};
use crate::support::client::payment;
use crate::support::commands;
use crate::support::{App, Client, Instance, Proxy, Reply, TestDatabase, assert_books_balance, new_key};

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Service,
    Session,
    Line,
}

/// When: before or after which statement of the transaction, counted from 1 = `BEGIN`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    Before(usize),
    After(usize),
}

/// What is posted where, and the status of the answer.
type Command = (String, Value, u16);

/// Whom the commands are about: new ones for each crash, so that their books can be compared as a whole.
struct Cast {
    payer: String,
    payee: String,
    /// Without any money.
    third: String,
    /// 20.00 from payer to payee.
    payment: String,
}

/// The books of a new cast.
const BEFORE: &str = "80.00 active 2, 20.00 active 1, 0.00 active 0; 1 payments, 0.00 refunded, 0 opened";

impl Cast {
    async fn new(client: &Client) -> Self {
        let (payer, payee, third) = tokio::join!(client.open_with("100.00"), client.open("USD"), client.open("USD"));
        let payment = client.pay(&payer, &payee, "20.00").await.created();
        Self {
            payer,
            payee,
            third,
            payment,
        }
    }

    /// All that commands may change: balance, status and number of entries of each account, and what there is beside.
    fn books(&self, database: &TestDatabase) -> String {
        let Self {
            payer,
            payee,
            third,
            payment,
        } = self;
        database.word(&format!(
            "SELECT string_agg(format('%s %s %s', round(balance, 2), status, entry_count), ', '
                    ORDER BY array_position(ARRAY['{payer}', '{payee}', '{third}'], id::text))
               || (SELECT format('; %s payments', count(*)) FROM payments WHERE payer_account_id = '{payer}')
               || (SELECT format(', %s refunded', round(coalesce(sum(amount), 0), 2))
                   FROM refunds WHERE payment_id = '{payment}')
               || (SELECT format(', %s opened', count(*)) FROM accounts WHERE name = 'opened beside {payer}')
             FROM accounts WHERE id IN ('{payer}', '{payee}', '{third}')"
        ))
    }

    fn pay(&self, amount: &str, status: u16) -> Command {
        let body = payment(&self.payer, &self.payee, amount);
        ("/payments".to_owned(), body, status)
    }

    fn refund(&self) -> Command {
        let path = format!("/payments/{}/refunds", self.payment);
        (path, json!({"amount": "5.00"}), 201)
    }

    fn deposit(&self) -> Command {
        let path = format!("/accounts/{}/deposits", self.payer);
        (path, json!({"amount": "7.00", "currency": "USD"}), 201)
    }

    fn withdraw(&self) -> Command {
        let path = format!("/accounts/{}/withdrawals", self.payee);
        (path, json!({"amount": "3.00", "currency": "USD"}), 201)
    }

    fn open(&self) -> Command {
        let name = format!("opened beside {}", self.payer);
        ("/accounts".to_owned(), json!({"currency": "USD", "name": name}), 201)
    }

    fn unfreeze_payer(&self) -> Command {
        (format!("/accounts/{}/unfreeze", self.payer), json!({}), 200)
    }

    fn set_third(&self, verb: &str) -> Command {
        (format!("/accounts/{}/{verb}", self.third), json!({}), 200)
    }
}

/// Commands that run as one batch.
#[derive(Clone, Copy)]
struct Case {
    commands: fn(&Cast) -> Vec<Command>,
    /// How many statements their transaction has, from `BEGIN` to `COMMIT`.
    statements: usize,
    /// The books when they are done.
    after: &'static str,
}

/// `BEGIN`, the claim, the stored responses, `COMMIT`: what every transaction has.
const FRAME: usize = 4;

/// Crashes of one kind: an instance A behind a proxy, which is what they happen to.
struct Lane<'a> {
    /// With instance B, which nothing happens to.
    app: &'a App,
    case: Case,
    victim: Victim,
    proxy: Proxy,
    a: Instance,
    a_url: String,
    /// Payer and payee of what A's worker is busy with while the commands arrive.
    busy: (String, String),
}

/// No limit may come before the crash.
fn patient() -> Setup {
    App::setup()
        .flag("--answer-timeout=60s")
        .flag("--statement-timeout=60s")
        .flag("--idle-in-transaction-timeout=60s")
}

/// With one worker, so that what arrives while it is busy becomes one batch.
fn start_a(url: &str) -> Instance {
    patient().flag("--engine-workers=1").start_instance(url)
}

impl<'a> Lane<'a> {
    async fn new(app: &'a App, case: Case, victim: Victim) -> Self {
        let proxy = Proxy::start(address_in(&app.database.url));
        let through = through_address(&app.database.url, &proxy.address().to_string());
        let a_url = format!("{through}&application_name={victim:?}");
        Self {
            app,
            case,
            victim,
            proxy,
            a: start_a(&a_url),
            a_url,
            busy: (app.open_with("1000.00").await, app.open("USD").await),
        }
    }

    /// Posts commands to A in a way that makes them one batch: while its worker is busy with a payment, whose answer comes
    /// first. The worker goes on at the next throw of the proxy's switch.
    async fn ask(&self, commands: &[(String, Command)]) -> Vec<JoinHandle<reqwest::Result<Reply>>> {
        let a = self.app.client.at(&self.a);
        let pay = || a.post_request("/payments", &new_key(), &payment(&self.busy.0, &self.busy.1, "0.01"));
        // So that the worker has a connection that lives.
        a.send(pay()).await.created();
        self.proxy.stop_before(1);
        let mut asked = vec![tokio::spawn(Client::try_send(pay()))];
        until("the worker to be busy", || self.proxy.has_stopped_it()).await;
        for (key, (path, body, _)) in commands {
            asked.push(tokio::spawn(Client::try_send(a.post_request(path, key, body))));
        }
        until_async("the commands to wait", async || {
            a.metric("payonce_queue_length", "").await == u64::try_from(commands.len()).unwrap()
        })
        .await;
        asked
    }

    fn commands(&self, cast: &Cast) -> Vec<(String, Command)> {
        let commands = (self.case.commands)(cast).into_iter();
        commands.map(|command| (new_key(), command)).collect()
    }

    /// Without any crash, the transaction has as many statements as the case says: the matrix leaves none out.
    async fn check_case(&self) {
        let cast = Cast::new(&self.app.client).await;
        assert_eq!(cast.books(&self.app.database), BEFORE);
        let commands = self.commands(&cast);
        let asked = self.ask(&commands).await;
        self.proxy.pass();
        for (reply, (_, (_, _, status))) in join_all(asked).await.into_iter().skip(1).zip(&commands) {
            assert_first(&reply.unwrap().unwrap(), *status);
        }
        assert_eq!(self.proxy.statements(), self.case.statements);
        assert_eq!(cast.books(&self.app.database), self.case.after);
    }

    async fn crash(&mut self, moment: Moment) {
        let place = format!("{:?} {moment:?}", self.victim);
        let cast = Cast::new(&self.app.client).await;
        let commands = self.commands(&cast);
        let mut asked = self.ask(&commands).await;
        match moment {
            Moment::Before(number) => self.proxy.stop_before(number),
            Moment::After(number) => self.proxy.stop_after(number),
        }
        assert_first(&asked.remove(0).await.unwrap().unwrap(), 201);
        until(&place, || self.proxy.has_stopped_it()).await;

        let committed = moment == Moment::After(self.case.statements);
        let as_it_stands = if committed { self.case.after } else { BEFORE };
        assert_eq!(cast.books(&self.app.database), as_it_stands, "{place}");
        self.kill().await;
        let told = join_all(asked).await;
        let retry = commands
            .iter()
            .map(|(key, (path, body, _))| self.app.post(path, key, body));
        let answers = told.into_iter().zip(join_all(retry).await);
        for ((told, retry), (_, (_, _, status))) in answers.zip(&commands) {
            assert_eq!(retry.status, *status, "{place}: {}", retry.shown());
            let Ok(told) = told.unwrap() else {
                assert_eq!(self.victim, Victim::Service, "{place}");
                assert_eq!(retry.is_replay(), committed, "{place}");
                continue;
            };
            assert_ne!(self.victim, Victim::Service, "{place}");
            // Also if A has not heard of its commit: it asks again under the key, and recognises its own work.
            assert_first(&told, *status);
            assert!(retry.is_replay(), "{place}");
            assert_eq!(told.shown(), retry.shown(), "{place}");
        }
        assert_eq!(cast.books(&self.app.database), self.case.after, "{place}");
        if self.victim == Victim::Service {
            self.a = start_a(&self.a_url);
        }
    }

    /// Kills the victim, and lets all others go on.
    async fn kill(&mut self) {
        match self.victim {
            Victim::Service => {
                self.a.kill();
                self.proxy.reset();
            }
            Victim::Session => {
                let database = &self.app.database;
                // Once is not enough: a session that is being opened has begun before it has a name.
                let terminate = format!(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE datname = current_database() AND application_name = 'Session' AND backend_start < '{}'",
                    database.word("SELECT clock_timestamp()")
                );
                until("the sessions to end", || database.number(&terminate) == 0).await;
                self.proxy.pass();
            }
            Victim::Line => self.proxy.reset(),
        }
    }

    async fn crash_everywhere(mut self, rounds: usize) {
        self.check_case().await;
        for _ in 0..rounds {
            for number in 1..=self.case.statements {
                self.crash(Moment::Before(number)).await;
                self.crash(Moment::After(number)).await;
            }
        }
    }
}

/// This is what was done, and it was not done before.
#[track_caller]
fn assert_first(reply: &Reply, status: u16) {
    assert_eq!((reply.status, reply.is_replay()), (status, false), "{}", reply.shown());
}

async fn crash_everywhere(case: Case) {
    let rounds = std::env::var("CRASH_ROUNDS").map_or(1, |rounds| rounds.parse().expect("CRASH_ROUNDS is a number"));
    // B waits for what is left of A's transaction, if anything is.
    let app = patient().flag("--lock-timeout=10s").start().await;
    let lanes = [Victim::Service, Victim::Session, Victim::Line].map(|victim| Lane::new(&app, case, victim));
    let crashes = join_all(lanes)
        .await
        .into_iter()
        .map(|lane| lane.crash_everywhere(rounds));
    join_all(crashes).await;
    let unanswered = "SELECT count(*) FROM idempotency_keys WHERE response_code IS NULL";
    assert_eq!(app.database.number(unanswered), 0);
    assert_books_balance(&app.database);
}

const OPENED: Case = Case {
    commands: |cast| vec![cast.open()],
    statements: FRAME + 2,
    after: "80.00 active 2, 20.00 active 1, 0.00 active 0; 1 payments, 0.00 refunded, 1 opened",
};

#[tokio::test]
async fn an_account_is_opened_once() {
    crash_everywhere(OPENED).await;
}

const DEPOSITED: Case = Case {
    commands: |cast| vec![cast.deposit()],
    statements: FRAME + 3,
    after: "87.00 active 3, 20.00 active 1, 0.00 active 0; 1 payments, 0.00 refunded, 0 opened",
};

#[tokio::test]
async fn a_deposit_happens_once() {
    crash_everywhere(DEPOSITED).await;
}

const PAID: Case = Case {
    commands: |cast| vec![cast.pay("10.00", 201)],
    statements: FRAME + 4,
    after: "70.00 active 3, 30.00 active 2, 0.00 active 0; 2 payments, 0.00 refunded, 0 opened",
};

#[tokio::test]
async fn a_payment_happens_once() {
    crash_everywhere(PAID).await;
}

const REFUSED: Case = Case {
    commands: |cast| vec![cast.pay("80.01", 402)],
    statements: FRAME + 1,
    after: BEFORE,
};

/// A refusal is an answer too.
#[tokio::test]
async fn a_payment_is_refused_once() {
    crash_everywhere(REFUSED).await;
}

const REFUNDED: Case = Case {
    commands: |cast| vec![cast.refund()],
    statements: FRAME + 6,
    after: "85.00 active 3, 15.00 active 2, 0.00 active 0; 1 payments, 5.00 refunded, 0 opened",
};

#[tokio::test]
async fn a_refund_happens_once() {
    crash_everywhere(REFUNDED).await;
}

const FROZEN: Case = Case {
    commands: |cast| vec![cast.set_third("freeze")],
    statements: FRAME + 2,
    after: "80.00 active 2, 20.00 active 1, 0.00 frozen 0; 1 payments, 0.00 refunded, 0 opened",
};

#[tokio::test]
async fn an_account_is_frozen_once() {
    crash_everywhere(FROZEN).await;
}

const BATCH: Case = Case {
    commands: |cast| {
        vec![
            cast.open(),
            cast.withdraw(),
            cast.pay("10.00", 201),
            cast.pay("1000.00", 402),
            cast.refund(),
            cast.unfreeze_payer(),
            cast.set_third("close"),
        ]
    },
    statements: FRAME + 9,
    after: "75.00 active 4, 22.00 active 4, 0.00 closed 0; 2 payments, 5.00 refunded, 1 opened",
};

/// All of a batch happens, or none of it, and each caller gets the answer to what he asked.
#[tokio::test]
async fn each_command_of_a_batch_happens_once() {
    crash_everywhere(BATCH).await;
}

/// A command that is in no case is one of which nobody knows what a crash makes of it.
#[tokio::test]
async fn every_command_is_in_the_matrix() {
    let app = App::start().await;
    let cast = Cast::new(&app).await;
    let route = |path: &str| {
        let parts = path.split('/').map(|part| if part.len() == 36 { "{id}" } else { part });
        parts.collect::<Vec<_>>().join("/")
    };
    let cases = [OPENED, DEPOSITED, PAID, REFUSED, REFUNDED, FROZEN, BATCH];
    let crashed: BTreeSet<String> = cases
        .iter()
        .flat_map(|case| (case.commands)(&cast))
        .map(|(path, ..)| route(&path))
        .collect();
    let all = commands::Cast::new(&app).await.each_command();
    let all: BTreeSet<String> = all.iter().map(|post| route(&post.path)).collect();
    assert_eq!(crashed, all);
}
