//! How a client asks: as real ones do, with time-outs, hang-ups, retries and duplicates, until he has an answer under his key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use uuid::Uuid;

use crate::Outcome;
use crate::model::Digest;
use crate::report::Tally;
use crate::stage::Service;

/// How long a patient client waits for one answer: longer than the service ever takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client without patience hangs up after 1 to this many milliseconds, often in mid-transaction.
const HANGS_UP_AFTER_MS: u64 = 60;

/// The longest pause between two tries.
const LONGEST_PAUSE_MS: u64 = 200;

/// A key that is not answered by then is a violation: no fault lasts as long.
const GIVE_UP: Duration = Duration::from_mins(2);

/// What is posted.
#[derive(Clone)]
pub struct Ask {
    pub path: String,
    pub body: String,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    pub replayed: bool,
    pub retry_after: bool,
}

impl Answer {
    pub fn digest(&self) -> Digest {
        Sha256::digest(&self.body).into()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn code(&self) -> String {
        self.json()
            .get("code")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// Does the key belong to another request?
    pub fn is_reused(&self) -> bool {
        self.status == 422 && self.code() == "idempotency_key_reused"
    }

    pub fn id(&self) -> Option<Uuid> {
        self.json().get("id")?.as_str()?.parse().ok()
    }

    fn in_short(&self) -> String {
        let replayed = if self.replayed { ", replayed" } else { "" };
        format!("{} {}{replayed}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// One client's line to the service.
#[derive(Clone)]
pub struct Line {
    http: reqwest::Client,
    service: Arc<Service>,
    pub tally: Arc<Tally>,
    pub random: fastrand::Rng,
}

/// All that was said under a key so far: it must be one answer.
#[derive(Default)]
struct Heard {
    first: Option<(u16, Digest)>,
    not_replayed: u32,
}

impl Line {
    pub fn new(service: &Arc<Service>, tally: &Arc<Tally>, seed: u64) -> Outcome<Self> {
        Ok(Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            service: Arc::clone(service),
            tally: Arc::clone(tally),
            random: fastrand::Rng::with_seed(seed),
        })
    }

    /// Another line, for asking at the same time.
    pub fn fork(&mut self) -> Self {
        let random = self.random.fork();
        Self { random, ..self.clone() }
    }

    pub fn new_key(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.random.u128(..).to_be_bytes()).into_uuid()
    }

    /// Asks under a key that nobody has used. If it is answered at the first try, that answer is no replay, whatever happened to
    /// the service's own line meanwhile.
    pub async fn ask_first(&mut self, key: Uuid, ask: &Ask) -> Option<Answer> {
        let began = Instant::now();
        let to = self.random.usize(0..2);
        match self
            .post(to, key, ask, PATIENCE)
            .await
            .filter(|answer| self.is_final(key, answer))
        {
            Some(answer) => {
                if answer.replayed {
                    self.tally
                        .violation(format!("{key} is new, and its first answer is marked as a replay"));
                }
                Some(answer)
            }
            None if began.elapsed() < GIVE_UP => self.ask(key, ask).await,
            None => None,
        }
    }

    /// Asks until there is an answer. `None` is noted as a violation.
    pub async fn ask(&mut self, key: Uuid, ask: &Ask) -> Option<Answer> {
        let began = Instant::now();
        let mut heard = Heard::default();
        while began.elapsed() < GIVE_UP {
            let mut answers = self.ask_once(key, ask).await;
            answers.retain(|answer| self.is_final(key, answer));
            for answer in &answers {
                self.compare(key, answer, &mut heard);
            }
            if let Some(answer) = answers.pop() {
                return Some(answer);
            }
            self.tally.count("retries");
            sleep(Duration::from_millis(self.random.u64(1..=LONGEST_PAUSE_MS))).await;
        }
        self.tally
            .violation(format!("{key} was not answered in {} s", GIVE_UP.as_secs()));
        None
    }

    /// One try: in a fifteenth of all cases impatient, in another one sent twice at once, to both instances.
    async fn ask_once(&mut self, key: Uuid, ask: &Ask) -> Vec<Answer> {
        let to = self.random.usize(0..2);
        match self.random.u8(0..15) {
            0 => {
                let patience = Duration::from_millis(self.random.u64(1..=HANGS_UP_AFTER_MS));
                let answer = self.post(to, key, ask, patience).await;
                if answer.is_none() {
                    self.tally.count("hang-ups");
                }
                answer.into_iter().collect()
            }
            1 => {
                self.tally.count("duplicates at once");
                let (one, other) =
                    tokio::join!(self.post(to, key, ask, PATIENCE), self.post(to + 1, key, ask, PATIENCE));
                one.into_iter().chain(other).collect()
            }
            _ => self.post(to, key, ask, PATIENCE).await.into_iter().collect(),
        }
    }

    /// One request, and what came back, if anything did.
    async fn post(&self, to: usize, key: Uuid, ask: &Ask, patience: Duration) -> Option<Answer> {
        let url = format!("{}{}", self.service.url(to), ask.path);
        let request = self.http.post(url).header("Idempotency-Key", key.to_string());
        let request = request
            .header("Content-Type", "application/json")
            .body(ask.body.clone());
        self.send(request, patience).await
    }

    /// A read, repeated until there is an answer that is not "try again".
    pub async fn get(&mut self, path: &str) -> Option<Answer> {
        let began = Instant::now();
        while began.elapsed() < GIVE_UP {
            let url = format!("{}{path}", self.service.url(self.random.usize(0..2)));
            let answer = self.send(self.http.get(url), PATIENCE).await;
            self.tally.count("reads");
            if let Some(answer) = answer.filter(|answer| self.is_final(path, answer)) {
                return Some(answer);
            }
            sleep(Duration::from_millis(self.random.u64(1..=LONGEST_PAUSE_MS))).await;
        }
        self.tally
            .violation(format!("GET {path} was not answered in {} s", GIVE_UP.as_secs()));
        None
    }

    async fn send(&self, request: reqwest::RequestBuilder, patience: Duration) -> Option<Answer> {
        self.tally.count("requests");
        let answer = async {
            let response = request.bearer_auth(&self.service.api_key).send().await?;
            let has = |name| response.headers().contains_key(name);
            Ok::<_, reqwest::Error>(Answer {
                status: response.status().as_u16(),
                replayed: has("Idempotent-Replayed"),
                retry_after: has("Retry-After"),
                body: response.bytes().await?.to_vec(),
            })
        };
        let Ok(Ok(answer)) = tokio::time::timeout(patience, answer).await else {
            self.tally.answer("none".to_owned());
            return None;
        };
        let code = if answer.status < 400 {
            String::new()
        } else {
            answer.code()
        };
        self.tally
            .answer(format!("{} {code}", answer.status).trim_end().to_owned());
        if answer.replayed {
            self.tally.count("replays");
        }
        Some(answer)
    }

    /// Is that the end of it, or does it say: ask again? Anything else is a violation.
    fn is_final(&self, what: impl std::fmt::Display, answer: &Answer) -> bool {
        let again = match answer.status {
            503 => true,
            409 => answer.code() == "idempotency_key_in_use",
            _ => false,
        };
        if again && !answer.retry_after {
            self.tally
                .violation(format!("{what}: no Retry-After in {}", answer.in_short()));
        }
        if answer.status >= 500 && !again {
            self.tally
                .violation(format!("{what} was answered {}", answer.in_short()));
        }
        !again && answer.status < 500
    }

    /// Answers to one request are the same bytes, and one of them at most is no replay. Only that the key is somebody else's
    /// is not stored, and told anew each time.
    fn compare(&self, key: Uuid, answer: &Answer, heard: &mut Heard) {
        let refused = answer.is_reused();
        let this = (answer.status, if refused { Digest::default() } else { answer.digest() });
        let first = *heard.first.get_or_insert(this);
        if first != this {
            self.tally
                .violation(format!("two answers under {key}; the second is {}", answer.in_short()));
        }
        heard.not_replayed += u32::from(!answer.replayed && !refused);
        if heard.not_replayed > 1 {
            self.tally.violation(format!(
                "{key} was executed twice, it seems: two answers, none a replay"
            ));
        }
    }
}
