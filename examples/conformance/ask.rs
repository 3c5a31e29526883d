//! A request in the making: `api.pay(…).under(key).with(…).await` sends it.

use futures_util::future::{BoxFuture, FutureExt, join_all, try_join_all};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::caller::{Caller, PATIENCE};
use crate::card::{Checked, Miss};
use crate::raw;
use crate::reply::{Reply, shorten};

/// A request; `.await` sends it. A clone is the same request once more, key included.
#[derive(Clone)]
#[must_use = "it is sent by `.await`"]
pub struct Ask {
    caller: Caller,
    method: Method,
    path: String,
    body: Option<Vec<u8>>,
    content_type: &'static str,
    key: Option<String>,
    /// Sent in place of `key`, byte for byte.
    key_lines: Option<Vec<Vec<u8>>>,
}

impl Ask {
    pub fn get(caller: &Caller, path: String) -> Self {
        Self {
            caller: caller.clone(),
            method: Method::GET,
            path,
            body: None,
            content_type: "application/json",
            key: None,
            key_lines: None,
        }
    }

    /// With a key of its own.
    pub fn post(caller: &Caller, path: String, body: &Value) -> Self {
        Self {
            method: Method::POST,
            body: Some(body.to_string().into_bytes()),
            key: Some(new_key()),
            ..Self::get(caller, path)
        }
    }

    pub fn under(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub fn without_key(mut self) -> Self {
        self.key = None;
        self
    }

    /// The key as these header lines, without their ends, be they well-formed or not.
    pub fn with_key_lines(mut self, lines: &[&[u8]]) -> Self {
        self.key_lines = Some(lines.iter().map(|line| line.to_vec()).collect());
        self
    }

    /// Adds or changes members of the body.
    pub fn with(mut self, members: Value) -> Self {
        let mut body = self.members();
        if let Value::Object(members) = members {
            body.extend(members);
        }
        self.body = Some(Value::Object(body).to_string().into_bytes());
        self
    }

    /// The body without one of its members.
    pub fn leaving_out(mut self, member: &str) -> Self {
        let mut body = self.members();
        body.remove(member);
        self.body = Some(Value::Object(body).to_string().into_bytes());
        self
    }

    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub fn with_content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub fn with_method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// The same request by another caller, or to another instance.
    pub fn by(mut self, caller: &Caller) -> Self {
        self.caller = caller.clone();
        self
    }

    /// Sends it and hangs up without waiting for the answer.
    pub async fn hang_up(self) -> Checked {
        raw::send_and_hang_up(&self.caller.host, &self.bytes())
            .await
            .map_err(|error| self.unanswered(&error.to_string()))
    }

    fn members(&self) -> Map<String, Value> {
        let body = self.body.as_deref().unwrap_or_default();
        serde_json::from_slice(body).unwrap_or_default()
    }

    async fn send(self) -> Checked<Reply> {
        let answered = if self.key_lines.is_some() {
            raw::exchange(&self.caller.host, &self.bytes(), PATIENCE)
                .await
                .map_err(|error| error.to_string())
        } else {
            self.send_by_client().await.map_err(|error| format!("{error:?}"))
        };
        let (status, headers, body) = answered.map_err(|error| self.unanswered(&error))?;
        Ok(Reply {
            request: self.shown(),
            status,
            headers,
            body,
        })
    }

    async fn send_by_client(&self) -> reqwest::Result<(u16, HeaderMap, Vec<u8>)> {
        let Caller {
            http, base, api_key, ..
        } = &self.caller;
        let mut request = http.request(self.method.clone(), format!("{base}{}", self.path));
        request = request.bearer_auth(api_key);
        if let Some(key) = &self.key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = &self.body {
            request = request.header("Content-Type", self.content_type).body(body.clone());
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok((status, headers, response.bytes().await?.to_vec()))
    }

    /// The whole request. HTTP/1.0, so that no answer comes in chunks and each one ends with the connection.
    fn bytes(&self) -> Vec<u8> {
        let Caller {
            host, prefix, api_key, ..
        } = &self.caller;
        let (method, path, content_type) = (&self.method, &self.path, self.content_type);
        let body = self.body.as_deref().unwrap_or_default();
        let length = body.len();
        let mut bytes = format!(
            "{method} {prefix}{path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {api_key}\r\n\
             Content-Type: {content_type}\r\nContent-Length: {length}\r\n"
        )
        .into_bytes();
        let usual = self
            .key
            .iter()
            .map(|key| format!("Idempotency-Key: {key}").into_bytes());
        let lines = self.key_lines.clone().unwrap_or_else(|| usual.collect());
        for line in lines {
            bytes.extend(line);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"\r\n");
        bytes.extend(body);
        bytes
    }

    fn unanswered(&self, error: &str) -> Miss {
        Miss::wrong(self.shown(), format!("no answer: {error}"), "an answer")
    }

    fn shown(&self) -> String {
        let mut shown = format!("{} {}", self.method, self.path);
        if let Some(lines) = &self.key_lines {
            let line = |line: &Vec<u8>| format!(" [{}]", shorten(&line.escape_ascii().to_string()));
            shown.extend(lines.iter().map(line));
        } else if let Some(key) = &self.key {
            shown.extend([" [Idempotency-Key: ", &shorten(key), "]"]);
        }
        if let Some(body) = &self.body {
            shown.push(' ');
            shown.push_str(&shorten(&String::from_utf8_lossy(body)));
        }
        shown
    }
}

impl IntoFuture for Ask {
    type Output = Checked<Reply>;
    type IntoFuture = BoxFuture<'static, Checked<Reply>>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// Sends them all at the same time. Each gets its connection first; otherwise they would arrive one by one, as their
/// connections come up, and hardly race.
pub async fn at_once(asks: impl IntoIterator<Item = Ask>) -> Checked<Vec<Reply>> {
    let asks: Vec<Ask> = asks.into_iter().collect();
    join_all(asks.iter().map(|ask| ask.caller.get("/health/live").into_future())).await;
    try_join_all(asks.into_iter().map(Ask::into_future)).await
}

/// A key that nobody has used.
pub fn new_key() -> String {
    Uuid::new_v4().to_string()
}
