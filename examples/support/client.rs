//! The caller's side of HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::Outcome;

/// Far beyond what the service takes for any answer (`ANSWER_TIMEOUT`, 8 s).
const PATIENCE: Duration = Duration::from_secs(30);

/// Calls payonce with an API key.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    api_key: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Was it marked with `Idempotent-Replayed: true`?
    pub replayed: bool,
    /// Byte for byte.
    pub body: Vec<u8>,
}

/// Who pays whom.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub alice: Uuid,
    pub bob: Uuid,
}

impl Client {
    pub fn new(api_key: String) -> Outcome<Self> {
        // A proxy from the environment is for the world outside, not for the loopback.
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        Ok(Self { http, api_key })
    }

    /// The same caller, but one who gives up after `limit`.
    pub fn with_patience(&self, limit: Duration) -> Outcome<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(limit).build()?;
        Ok(Self { http, ..self.clone() })
    }

    /// `POST path`, with a key.
    pub async fn post(&self, url: &str, path: &str, key: &str, body: Value) -> Result<Answer, reqwest::Error> {
        let request = self.http.post(format!("{url}{path}")).bearer_auth(&self.api_key);
        let response = request.header("Idempotency-Key", key).json(&body).send().await?;
        Ok(Answer {
            status: response.status().as_u16(),
            replayed: response
                .headers()
                .get("Idempotent-Replayed")
                .is_some_and(|value| value == "true"),
            body: response.bytes().await?.to_vec(),
        })
    }

    /// Alice pays Bob.
    pub async fn pay(&self, url: &str, key: &str, pair: Pair, amount: &str) -> Result<Answer, reqwest::Error> {
        let Pair { alice, bob } = pair;
        let body = json!({"payer_account_id": alice, "payee_account_id": bob, "amount": amount, "currency": "USD"});
        self.post(url, "/payments", key, body).await
    }

    /// Opens accounts for an Alice with 100.00 and a Bob with nothing.
    pub async fn alice_and_bob(&self, url: &str) -> Outcome<Pair> {
        let open = async |name| {
            let account = json!({"currency": "USD", "name": name});
            self.post(url, "/accounts", &new_key(), account).await?.created()
        };
        let (alice, bob) = (open("Alice").await?, open("Bob").await?);
        let path = format!("/accounts/{alice}/deposits");
        let money = json!({"amount": "100.00", "currency": "USD"});
        self.post(url, &path, &new_key(), money).await?.created()?;
        Ok(Pair { alice, bob })
    }
}

impl Answer {
    /// A string member of the body.
    pub fn member(&self, name: &str) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        Some(body.get(name)?.as_str()?.to_owned())
    }

    /// The id of what was created; an error if nothing was.
    pub fn created(&self) -> Outcome<Uuid> {
        let id = self.member("id").filter(|_| self.status == 201);
        let id = id.ok_or_else(|| format!("expected a 201, found {}", self.in_short()))?;
        Ok(id.parse()?)
    }

    /// Status, problem code, and marker.
    pub fn in_short(&self) -> String {
        let mut text = self.status.to_string();
        if let Some(code) = self.member("code") {
            text.push(' ');
            text.push_str(&code);
        }
        if self.replayed {
            text.push_str(", Idempotent-Replayed: true");
        }
        text
    }
}

/// How many there are of each kind of answer.
pub fn tally<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> String {
    let mut kinds = BTreeMap::new();
    for answer in answers {
        *kinds.entry(answer.in_short()).or_insert(0) += 1;
    }
    let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    kinds.join("; ")
}

/// A key that nobody has used.
pub fn new_key() -> String {
    Uuid::now_v7().to_string()
}
