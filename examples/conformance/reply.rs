//! What came back, and what can be checked of it.

use std::collections::BTreeMap;

use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::card::{Checked, Miss};

/// Characters of a body that a failure shows.
const SHOWN: usize = 600;

/// What came back.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    /// Byte for byte.
    pub body: Vec<u8>,
    pub request: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A member of the body; null if there is none.
    pub fn member(&self, name: &str) -> Value {
        self.json().get(name).cloned().unwrap_or_default()
    }

    pub fn code(&self) -> String {
        self.member("code").as_str().unwrap_or_default().to_owned()
    }

    /// Is it marked as a replay?
    pub fn is_replay(&self) -> bool {
        self.header("Idempotent-Replayed") == Some("true")
    }

    /// This reply is not the right one.
    pub fn wrong(&self, right: impl Into<String>) -> Miss {
        let mut came_back = self.in_short();
        came_back.push(' ');
        came_back.push_str(&shorten(&String::from_utf8_lossy(&self.body)));
        Miss::wrong(&self.request, came_back, right)
    }

    pub fn must(&self, so: bool, right: impl Into<String>) -> Checked {
        if so { Ok(()) } else { Err(self.wrong(right)) }
    }

    /// 201 with an id and a `Location`; the id.
    pub fn created(&self) -> Checked<String> {
        let id = self.member("id").as_str().map(str::to_owned);
        id.filter(|_| self.status == 201 && self.header("Location").is_some())
            .ok_or_else(|| self.wrong("201 with an id and a Location"))
    }

    /// 201, and not marked as a replay; the id.
    pub fn created_now(&self) -> Checked<String> {
        self.must(!self.is_replay(), "201, executed now: no replay")?;
        self.created()
    }

    /// 200; the body.
    pub fn ok(&self) -> Checked<Value> {
        self.must(self.status == 200, "200")?;
        Ok(self.json())
    }

    /// 200 with a page; what is on it.
    pub fn data(&self) -> Checked<Vec<Value>> {
        let data = self.ok()?.get("data").and_then(Value::as_array).cloned();
        data.ok_or_else(|| self.wrong(r#"200 {"data":[…],"next_cursor":…}"#))
    }

    /// A success with this member.
    pub fn has(&self, member: &str, value: impl Into<Value>) -> Checked {
        let value = value.into();
        let good = (200..300).contains(&self.status) && self.member(member) == value;
        self.must(good, format!("a success with {member:?}: {value}"))
    }

    /// A problem with this status and code that does not look like a success; its body.
    pub fn refused(&self, status: u16, code: &str) -> Checked<Value> {
        let good = self.status == status && self.code() == code && self.is_problem();
        self.must(good, format!("{status} {code} as application/problem+json"))?;
        Ok(self.json())
    }

    /// One of these refusals.
    pub fn refused_as_one_of(&self, statuses: &[u16]) -> Checked {
        let good = statuses.contains(&self.status) && self.is_problem();
        self.must(good, format!("one of {statuses:?} as application/problem+json"))
    }

    fn is_problem(&self) -> bool {
        let media_type = self.header("Content-Type").unwrap_or_default();
        media_type.starts_with("application/problem+json") && self.member("id").is_null()
    }

    /// The first answer once more: marked, and otherwise alike, byte for byte.
    pub fn replays(&self, first: &Reply) -> Checked {
        let alike = self.status == first.status && self.body == first.body;
        let same_header = |name| self.header(name) == first.header(name);
        let good = alike && self.is_replay() && same_header("Location") && same_header("Content-Type");
        let first = String::from_utf8_lossy(&first.body);
        self.must(
            good,
            format!(
                "the first answer, marked Idempotent-Replayed: true: {}",
                shorten(&first)
            ),
        )
    }

    /// Status, problem code, and marker.
    fn in_short(&self) -> String {
        let mut text = self.status.to_string();
        let code = self.code();
        if !code.is_empty() {
            text.push(' ');
            text.push_str(&code);
        }
        if self.is_replay() {
            text.push_str(" (replayed)");
        }
        text
    }
}

/// The replies to requests that belong together.
pub trait Replies {
    /// How many there are for which it is so.
    fn count(&self, so: impl Fn(&Reply) -> bool) -> usize;
    /// These replies together are the right ones.
    fn must(&self, so: bool, right: impl Into<String>) -> Checked;
}

impl Replies for [Reply] {
    fn count(&self, so: impl Fn(&Reply) -> bool) -> usize {
        self.iter().filter(|reply| so(reply)).count()
    }

    fn must(&self, so: bool, right: impl Into<String>) -> Checked {
        if so {
            return Ok(());
        }
        let mut kinds = BTreeMap::new();
        for reply in self {
            *kinds.entry(reply.in_short()).or_insert(0_u32) += 1;
        }
        let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        let request = self.first().map_or_else(String::new, |first| first.request.clone());
        Err(Miss::wrong(
            format!("{} like {request}", self.len()),
            kinds.join("; "),
            right,
        ))
    }
}

pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes)", text.get(..end).unwrap_or_default(), text.len()),
        None => text.to_owned(),
    }
}
