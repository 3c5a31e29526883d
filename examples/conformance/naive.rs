//! A small payment service in memory, with one flaw that real ones have had. The cases must find it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use uuid::Uuid;

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing: what the others are measured by.
    None,
    /// Wants a key, and never looks at it.
    IgnoresTheKey,
    /// Remembers that there was a request and not what was answered: a repetition is a conflict.
    StoresOnlyTheFact,
    /// Replays, whatever it is that is asked under the key.
    ComparesNothing,
    /// Remembers successes only.
    ForgetsRefusals,
    /// Keeps the keys of all tenants in one place.
    SharesKeys,
    /// Looks first and writes later; what happens in between goes unnoticed.
    ChecksThenActs,
    /// Takes numbers for amounts, and rounds.
    GuessesAmounts,
    /// Counts cents in 32 bits.
    CountsInSmallNumbers,
    /// Keeps the refusal of a body that it could not read, so that the key is no longer free.
    KeepsInvalid,
    /// Takes an equal payment or refund for a repetition, whatever its key.
    SuspectsEquals,
    /// Refunds without a look at what remains.
    RefundsAnything,
    /// Lets accounts pay themselves.
    PaysItself,
    /// Serves whoever comes without a known API key as its first tenant.
    TrustsEverybody,
}

/// How long [`Flaw::ChecksThenActs`] takes between its two steps: a round trip to a database, on a bad day.
const BETWEEN: Duration = Duration::from_millis(150);

/// Each API key is a tenant.
pub const API_KEYS: [&str; 2] = ["alice", "bob"];

struct Bank {
    flaw: Flaw,
    books: Mutex<Books>,
}

#[derive(Clone, Default)]
struct Books {
    /// By tenant and path.
    resources: HashMap<String, Value>,
    /// By tenant and key: what was asked, and the answer.
    answers: HashMap<String, (Value, Answer)>,
}

#[derive(Clone)]
struct Answer {
    status: u16,
    location: Option<String>,
    body: Value,
}

/// The resources to write, by path, what was made first; or a no.
type Decision = Result<Vec<(String, Value)>, Answer>;

/// Starts it on a free port; it ends with the program.
pub fn start(flaw: Flaw) -> std::io::Result<SocketAddr> {
    let books = Mutex::default();
    let bank = Data::new(Bank { flaw, books });
    let app = move || App::new().app_data(bank.clone()).default_service(web::to(serve));
    // No time limit for requests: a busy machine is not the flaw.
    let server = HttpServer::new(app).client_request_timeout(Duration::ZERO);
    let server = server.workers(1).disable_signals();
    let server = server.bind(("127.0.0.1", 0))?;
    let address = server.addrs().first().copied();
    tokio::spawn(server.run());
    address.ok_or_else(|| std::io::Error::other("it listens nowhere"))
}

async fn serve(request: HttpRequest, body: Bytes, bank: Data<Bank>) -> HttpResponse {
    let header = |name| request.headers().get(name)?.to_str().ok();
    let tenant = header("Authorization").and_then(|value| value.strip_prefix("Bearer "));
    let known = tenant.filter(|key| API_KEYS.contains(key));
    let Some(tenant) = known.or_else(|| (bank.flaw == Flaw::TrustsEverybody).then_some(API_KEYS[0])) else {
        return response(no(401, "unauthenticated"), false);
    };
    if request.method() == "GET" {
        return response(bank.books.lock().await.read(tenant, request.path()), false);
    }
    let Some(key) = header("Idempotency-Key") else {
        return response(no(400, "idempotency_key_missing"), false);
    };
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (answer, replayed) = bank.post(tenant, key, request.path(), &body).await;
    response(answer, replayed)
}

fn response(answer: Answer, replayed: bool) -> HttpResponse {
    let mut response = HttpResponse::build(answer.status.try_into().unwrap_or_default());
    if let Some(location) = answer.location {
        response.insert_header(("Location", location));
    }
    if replayed {
        response.insert_header(("Idempotent-Replayed", "true"));
    }
    let good = answer.status < 400;
    response.content_type(if good {
        "application/json"
    } else {
        "application/problem+json"
    });
    response.body(answer.body.to_string())
}

fn no(status: u16, code: &str) -> Answer {
    Answer {
        status,
        location: None,
        body: json!({"status": status, "code": code}),
    }
}

impl Bank {
    /// The answer, and whether it is a replay.
    async fn post(&self, tenant: &str, key: &str, path: &str, body: &Value) -> (Answer, bool) {
        let owner = if self.flaw == Flaw::SharesKeys { "" } else { tenant };
        let (mut key, asked) = (format!("{owner} {key}"), json!([path, meaning(body)]));
        if self.flaw == Flaw::SuspectsEquals && path.starts_with("/payments") {
            key = asked.to_string();
        }
        let mut books = self.books.lock().await;
        let mut stale = None;
        if self.flaw == Flaw::ChecksThenActs {
            stale = Some(books.clone());
            drop(books);
            tokio::time::sleep(BETWEEN).await;
            books = self.books.lock().await;
        }
        let seen = stale.as_ref().unwrap_or(&books);

        match seen.answers.get(&key).filter(|_| self.flaw != Flaw::IgnoresTheKey) {
            None => {}
            Some(_) if self.flaw == Flaw::StoresOnlyTheFact => return (no(409, "duplicate"), false),
            Some((first, answer)) if *first == asked || self.flaw == Flaw::ComparesNothing => {
                return (answer.clone(), true);
            }
            Some(_) => return (no(422, "idempotency_key_reused"), false),
        }
        let answer = match self.decide(seen, tenant, path, body) {
            Ok(changes) => books.write(tenant, changes),
            Err(refusal) => refusal,
        };
        let invalid = answer.body["code"] == "validation_failed";
        let keeps = !invalid || self.flaw == Flaw::KeepsInvalid;
        if keeps && !(self.flaw == Flaw::ForgetsRefusals && answer.status >= 400) {
            books.answers.insert(key, (asked, answer.clone()));
        }
        (answer, false)
    }

    fn decide(&self, books: &Books, tenant: &str, path: &str, body: &Value) -> Decision {
        match path.split('/').skip(1).collect::<Vec<_>>().as_slice() {
            ["accounts"] => Ok(vec![make(
                "accounts",
                json!({"currency": body["currency"], "balance": "0.00", "status": "active"}),
            )]),
            ["accounts", id, "deposits"] => {
                let mut account = books.find(tenant, "accounts", id)?;
                let amount = self.amount(body, &account.1["currency"])?;
                add(&mut account, amount)?;
                let deposit = make("deposits", json!({"account_id": id, "amount": amount.to_string()}));
                Ok(vec![deposit, account])
            }
            ["payments"] => self.pay(books, tenant, body),
            ["payments", id, "refunds"] => self.refund(books, tenant, id, body),
            _ => Err(no(404, "not_found")),
        }
    }

    fn pay(&self, books: &Books, tenant: &str, body: &Value) -> Decision {
        let account = |member: &str| books.find(tenant, "accounts", text(&body[member]));
        let (mut payer, mut payee) = (account("payer_account_id")?, account("payee_account_id")?);
        if payer.0 == payee.0 && self.flaw != Flaw::PaysItself {
            return Err(no(422, "same_account"));
        }
        let amount = self.amount(body, &payer.1["currency"])?;
        add(&mut payer, -amount)?;
        add(&mut payee, amount)?;
        let mut payment = body.clone();
        payment["amount"] = json!(amount.to_string());
        payment["refunded_amount"] = json!("0.00");
        payment["status"] = json!("succeeded");
        Ok(vec![make("payments", payment), payer, payee])
    }

    fn refund(&self, books: &Books, tenant: &str, id: &str, body: &Value) -> Decision {
        let mut payment = books.find(tenant, "payments", id)?;
        let account = |member: &str| books.find(tenant, "accounts", text(&payment.1[member]));
        let (mut payer, mut payee) = (account("payer_account_id")?, account("payee_account_id")?);
        let refunded = decimal(&payment.1["refunded_amount"]);
        let remaining = decimal(&payment.1["amount"]) - refunded;
        let amount = match &body["amount"] {
            Value::Null => remaining,
            _ => self.amount(body, &payment.1["currency"])?,
        };
        if self.flaw != Flaw::RefundsAnything && (amount > remaining || remaining.is_zero()) {
            let mut refusal = no(422, "refund_exceeds_remaining");
            refusal.body["refundable_amount"] = json!(remaining.to_string());
            return Err(refusal);
        }
        add(&mut payee, -amount)?;
        add(&mut payer, amount)?;
        payment.1["refunded_amount"] = json!((refunded + amount).to_string());
        let rest = remaining - amount;
        payment.1["status"] = json!(if rest.is_zero() {
            "refunded"
        } else {
            "partially_refunded"
        });
        let refund = make("refunds", json!({"payment_id": id, "amount": amount.to_string()}));
        Ok(vec![refund, payment, payer, payee])
    }

    fn amount(&self, body: &Value, currency: &Value) -> Result<Decimal, Answer> {
        let guesses = self.flaw == Flaw::GuessesAmounts;
        let mut invalid = no(422, "validation_failed");
        invalid.body["errors"] = json!([{"field": "amount", "message": "must be such as \"12.50\""}]);
        let decimals = match text(currency) {
            "JPY" => 0,
            "KWD" => 3,
            _ => 2,
        };
        let written = match &body["amount"] {
            Value::Number(number) if guesses => number.to_string(),
            other => text(other).to_owned(),
        };
        let plain = written.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let amount = written.parse::<Decimal>().map_err(|_| invalid.clone())?;
        if amount <= Decimal::ZERO || !(guesses || plain && amount.scale() <= decimals) {
            return Err(invalid);
        }
        let mut amount = amount.round_dp(decimals);
        amount.rescale(decimals);
        if self.flaw == Flaw::CountsInSmallNumbers && amount.mantissa() > i32::MAX.into() {
            return Err(no(500, "internal_error"));
        }
        Ok(amount)
    }
}

impl Books {
    fn find(&self, tenant: &str, kind: &str, id: &str) -> Result<(String, Value), Answer> {
        let path = format!("/{kind}/{}", id.to_lowercase());
        let found = self.resources.get(&format!("{tenant} {path}")).cloned();
        found.map(|found| (path, found)).ok_or_else(|| no(404, "not_found"))
    }

    fn read(&self, tenant: &str, path: &str) -> Answer {
        match self.resources.get(&format!("{tenant} {path}")).cloned() {
            Some(body) => Answer {
                status: 200,
                location: None,
                body,
            },
            None => no(404, "not_found"),
        }
    }

    /// Returns what was made.
    fn write(&mut self, tenant: &str, changes: Vec<(String, Value)>) -> Answer {
        let made = changes.first().cloned().unwrap_or_default();
        for (path, body) in changes {
            self.resources.insert(format!("{tenant} {path}"), body);
        }
        Answer {
            status: 201,
            location: Some(made.0),
            body: made.1,
        }
    }
}

fn make(kind: &str, mut body: Value) -> (String, Value) {
    let id = Uuid::now_v7();
    body["id"] = json!(id);
    (format!("/{kind}/{id}"), body)
}

fn add(account: &mut (String, Value), amount: Decimal) -> Result<(), Answer> {
    let balance = decimal(&account.1["balance"]) + amount;
    account.1["balance"] = json!(balance.to_string());
    if balance < Decimal::ZERO {
        Err(no(402, "insufficient_funds"))
    } else {
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn decimal(value: &Value) -> Decimal {
    text(value).parse().unwrap_or_default()
}

/// A body in one spelling.
fn meaning(body: &Value) -> Value {
    let spelled = |value: &Value| match value.as_str() {
        Some(text) if text.parse::<Uuid>().is_ok() => json!(text.to_lowercase()),
        Some(text) => text
            .parse::<Decimal>()
            .map_or(json!(text), |amount| json!(amount.normalize().to_string())),
        None => value.clone(),
    };
    let members = body.as_object().into_iter().flatten();
    members.map(|(name, value)| (name.clone(), spelled(value))).collect()
}
