//! Query strings, strictly: what is unknown, repeated or unreadable is refused, not ignored.

use std::collections::BTreeMap;
use std::fmt::Display;

use chrono::{DateTime, Datelike, Timelike, Utc};
use uuid::Uuid;

use crate::api::{Code, Problem, body};
use crate::domain::excerpt;

/// The parameters of a query string, all of them known.
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a query string in which only `known` parameters may stand.
    pub fn parse(raw: &str, known: &[&'static str]) -> Result<Self, Problem> {
        let mut parameters = BTreeMap::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !known.contains(&name.as_str()) {
                let known = match known {
                    [] => "none is taken here".to_owned(),
                    known => format!("known here: {}", known.join(", ")),
                };
                return Err(Problem::new(
                    Code::UnknownParameter,
                    format!("query: unknown parameter {:?}; {known}", excerpt(&name)),
                ));
            }
            if parameters.contains_key(&name) {
                return Err(wrong(&name, "is given twice"));
            }
            parameters.insert(name, value);
        }
        Ok(Self(parameters))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A value that `read` understands.
    pub fn value<T, E: Display>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Problem> {
        self.text(name)
            .map(read)
            .transpose()
            .map_err(|error| wrong(name, error))
    }

    /// A UUID.
    pub fn uuid(&self, name: &str) -> Result<Option<Uuid>, Problem> {
        self.value(name, body::read_uuid)
    }

    /// An instant: RFC 3339 with an offset.
    pub fn instant(&self, name: &str) -> Result<Option<DateTime<Utc>>, Problem> {
        self.value(name, read_instant)
    }
}

fn read_instant(text: &str) -> Result<DateTime<Utc>, String> {
    // A `+` that was not percent-encoded arrives as a space; it can only be the sign of the offset.
    let text = text.replace(' ', "+");
    let instant = DateTime::parse_from_rfc3339(&text)
        .ok()
        // chrono takes a typographic minus sign (U+2212) as well.
        .filter(|_| text.is_ascii())
        .ok_or_else(|| {
            let sent = excerpt(&text);
            format!("must be an RFC 3339 instant with an offset, for example 2026-12-01T10:00:00Z, not {sent:?}")
        })?
        .to_utc();
    if !(1..=9999).contains(&instant.year()) {
        return Err("must be in the years 0001 to 9999 in UTC: RFC 3339 can't write any other".to_owned());
    }
    if is_leap_second(instant) && !may_be_leap_second(instant) {
        let place = "at 23:59:60 UTC on the last day of a month";
        return Err(format!(
            "must have a second 60 only where a leap second can be: {place}"
        ));
    }
    Ok(instant)
}

/// chrono keeps second 60 as second 59 of more than a second's nanoseconds.
fn is_leap_second(instant: DateTime<Utc>) -> bool {
    instant.nanosecond() >= 1_000_000_000
}

/// ITU-R TF.460-6 permits a leap second at the end of any month, and those of the future are not known yet: so no list of
/// those that there have been is asked.
fn may_be_leap_second(instant: DateTime<Utc>) -> bool {
    let last_day = instant.date_naive().succ_opt().is_some_and(|next| next.day() == 1);
    last_day && (instant.hour(), instant.minute(), instant.second()) == (23, 59, 59)
}

fn wrong(name: &str, error: impl Display) -> Problem {
    Problem::new(Code::MalformedRequest, format!("query: {name} {error}"))
}

fn decode(encoded: &str) -> Result<String, Problem> {
    let spaced = encoded.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&spaced)
        .decode_utf8()
        .map_err(|_| Problem::new(Code::MalformedRequest, "query: must be UTF-8"))?;
    if decoded.contains('\0') {
        return Err(Problem::new(
            Code::MalformedRequest,
            "query: the character U+0000 is not allowed",
        ));
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
#[path = "query_test.rs"]
mod tests;
