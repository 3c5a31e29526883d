//! The verbs that tests are written in.

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Instance;

/// A caller with an API key.
#[derive(Clone)]
pub struct Client {
    pub base: String,
    pub api_key: String,
    pub http: reqwest::Client,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A key that nobody has used.
pub fn new_key() -> String {
    Uuid::new_v4().to_string()
}

impl Client {
    pub fn new(base: &str, api_key: &str) -> Self {
        Self {
            base: base.to_owned(),
            api_key: api_key.to_owned(),
            http: reqwest::Client::new(),
        }
    }

    /// The same caller at another instance.
    pub fn at(&self, instance: &Instance) -> Self {
        Self {
            base: instance.base.clone(),
            ..self.clone()
        }
    }

    /// The same instance with another API key.
    pub fn with_api_key(&self, api_key: &str) -> Self {
        Self {
            api_key: api_key.to_owned(),
            ..self.clone()
        }
    }

    /// A request with the API key and nothing else, to be completed and given to [`Client::send`].
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(&self.api_key)
    }

    pub async fn send(&self, request: RequestBuilder) -> Reply {
        Self::try_send(request).await.expect("an answer")
    }

    pub async fn try_send(request: RequestBuilder) -> reqwest::Result<Reply> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Reply {
            status,
            headers,
            body: response.bytes().await?.to_vec(),
        })
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path)).await
    }

    /// `GET` of something that is there; its body.
    pub async fn read(&self, path: &str) -> Value {
        self.get(path).await.ok()
    }

    /// The first page of a list.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        data(&self.read(path).await)
    }

    pub fn post_request(&self, path: &str, key: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path)
            .header("Idempotency-Key", key)
            .json(body)
    }

    /// `POST` with a key.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Reply {
        self.send(self.post_request(path, key, body)).await
    }

    /// `POST` of exact bytes as JSON, with a new key.
    pub async fn post_bytes(&self, path: &str, body: impl Into<reqwest::Body>) -> Reply {
        let request = self.request(Method::POST, path).header("Idempotency-Key", new_key());
        self.send(request.header("Content-Type", "application/json").body(body))
            .await
    }

    /// Opens an account; its id.
    pub async fn open(&self, currency: &str) -> String {
        self.post(
            "/accounts",
            &new_key(),
            &json!({"currency": currency, "name": "An account"}),
        )
        .await
        .created()
    }

    /// Opens a USD account with so much in it; its id.
    pub async fn open_with(&self, amount: &str) -> String {
        let id = self.open("USD").await;
        self.deposit(&id, amount).await.created();
        id
    }

    pub async fn deposit(&self, account: &str, amount: &str) -> Reply {
        self.post(
            &format!("/accounts/{account}/deposits"),
            &new_key(),
            &json!({"amount": amount, "currency": "USD"}),
        )
        .await
    }

    /// The same in another currency.
    pub async fn deposit_in(&self, account: &str, amount: &str, currency: &str) -> Reply {
        let body = json!({"amount": amount, "currency": currency});
        self.post(&format!("/accounts/{account}/deposits"), &new_key(), &body)
            .await
    }

    pub async fn withdraw(&self, account: &str, amount: &str) -> Reply {
        self.post(
            &format!("/accounts/{account}/withdrawals"),
            &new_key(),
            &json!({"amount": amount, "currency": "USD"}),
        )
        .await
    }

    /// `freeze`, `unfreeze` or `close`.
    pub async fn set(&self, account: &str, what: &str) -> Reply {
        self.post(&format!("/accounts/{account}/{what}"), &new_key(), &json!({}))
            .await
    }

    /// Pays in USD with a new key.
    pub async fn pay(&self, payer: &str, payee: &str, amount: &str) -> Reply {
        self.pay_under(&new_key(), payer, payee, amount).await
    }

    /// Pays in USD under this key.
    pub async fn pay_under(&self, key: &str, payer: &str, payee: &str, amount: &str) -> Reply {
        self.post("/payments", key, &payment(payer, payee, amount)).await
    }

    /// Refunds with a new key; `None` is all that remains.
    pub async fn refund(&self, payment: &str, amount: Option<&str>) -> Reply {
        let body = amount.map_or(json!({}), |amount| json!({"amount": amount}));
        self.post(&format!("/payments/{payment}/refunds"), &new_key(), &body)
            .await
    }

    /// Pays in USD with a new key and further members.
    pub async fn pay_with(&self, payer: &str, payee: &str, amount: &str, more: Value) -> Reply {
        let mut body = payment(payer, payee, amount);
        merge(&mut body, more);
        self.post("/payments", &new_key(), &body).await
    }

    /// The same of any amount, right or wrong, in any currency.
    pub async fn pay_in(&self, payer: &str, payee: &str, amount: &Value, currency: &str) -> Reply {
        let more = json!({"amount": amount, "currency": currency});
        self.pay_with(payer, payee, "1", more).await
    }

    pub async fn balance(&self, account: &str) -> String {
        self.get(&format!("/accounts/{account}")).await.text("balance")
    }

    /// The sum of a counter or gauge of this instance over all series that contain `labels`.
    pub async fn metric(&self, name: &str, labels: &str) -> u64 {
        let reply = self.send(self.http.get(format!("{}/metrics", self.base))).await;
        let text = String::from_utf8(reply.body).expect("UTF-8");
        text.lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(name) && line.contains(labels))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Waits until the instance can serve.
    pub async fn until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let ready = Self::try_send(self.http.get(format!("{}/health/ready", self.base))).await;
            if ready.is_ok_and(|reply| reply.status == 200) {
                return;
            }
            assert!(Instant::now() < deadline, "{} does not become ready", self.base);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The body of a payment in USD.
pub fn payment(payer: &str, payee: &str, amount: &str) -> Value {
    json!({"payer_account_id": payer, "payee_account_id": payee, "amount": amount, "currency": "USD"})
}

/// Adds the members of `more` to an object.
pub fn merge(object: &mut Value, more: Value) {
    let Value::Object(more) = more else {
        panic!("not an object: {more}")
    };
    object.as_object_mut().expect("an object").extend(more);
}

/// The things on a page of a list.
pub fn data(page: &Value) -> Vec<Value> {
    page["data"].as_array().expect("data").clone()
}

/// The ids of things, in their order.
pub fn ids(things: &[Value]) -> Vec<String> {
    let id = |thing: &Value| thing["id"].as_str().expect("an id").to_owned();
    things.iter().map(id).collect()
}

/// A resource without its `created_at`, which must be RFC 3339 in UTC, and after a look at its id, which must be a UUIDv7.
#[track_caller]
pub fn timeless(mut resource: Value) -> Value {
    let at = resource["created_at"].as_str().expect("created_at");
    assert!(
        chrono::DateTime::parse_from_rfc3339(at).is_ok() && at.ends_with('Z'),
        "{at}"
    );
    let id = Uuid::parse_str(resource["id"].as_str().expect("id")).expect("a UUID");
    assert_eq!(id.get_version_num(), 7, "{id}");
    resource.as_object_mut().expect("an object").remove("created_at");
    resource
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A member of the body that is a text.
    pub fn text(&self, member: &str) -> String {
        self.json()[member]
            .as_str()
            .unwrap_or_else(|| panic!("no text {member:?} in {}", self.shown()))
            .to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("a header in ASCII"))
    }

    pub fn is_replay(&self) -> bool {
        self.header("Idempotent-Replayed") == Some("true")
    }

    /// Asserts 201; the id of what was created.
    #[track_caller]
    pub fn created(&self) -> String {
        assert_eq!(self.status, 201, "{}", self.shown());
        self.text("id")
    }

    /// Asserts 200; the body.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.shown());
        self.json()
    }

    /// Asserts `validation_failed` on just these fields; its body.
    #[track_caller]
    pub fn invalid(&self, fields: &[&str]) -> Value {
        let problem = self.problem(422, "validation_failed");
        let errors = problem["errors"].as_array().expect("errors");
        let named: Vec<_> = errors.iter().filter_map(|error| error["field"].as_str()).collect();
        assert_eq!(named, fields, "{}", self.shown());
        problem
    }

    /// Asserts a problem with this status and code; its body.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status, self.json()["code"].as_str()),
            (status, Some(code)),
            "{}",
            self.shown()
        );
        assert_eq!(self.header("Content-Type"), Some("application/problem+json"));
        self.json()
    }

    pub fn shown(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}
