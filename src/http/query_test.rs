//! Proves that a query string is read as what it says, or refused.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

use super::*;

const KNOWN: &[&str] = &["reference", "at", "account_id"];

fn query(name: &str, value: &str) -> Result<Query, Problem> {
    Query::parse(
        &format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)),
        KNOWN,
    )
}

/// Anything at all, and texts that are nearly query strings.
fn texts() -> impl Strategy<Value = String> {
    let parts = [
        "reference",
        "at",
        "=",
        "&",
        "%",
        "%0",
        "%00",
        "%ff",
        "%C3%A9",
        "+",
        "é",
        "a",
        ";",
    ];
    prop_oneof![
        any::<String>(),
        prop::collection::vec(prop::sample::select(parts.to_vec()), 0..12).prop_map(|parts| parts.concat()),
    ]
}

/// Anything at all, and texts that are nearly instants.
fn instants() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,12})?([Zz]|[-+ ][0-9]{2}:?[0-9]{2})?",
        "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T(0[0-9]|1[0-9]):[0-5][0-9]:[0-6][0-9](Z|\\+00:00|-23:59)",
        "(0000|0001|2016|9999)-(01-01|12-3[01])T[0-2][0-9]:[05]9:(59|60)(Z|[-+](00:01|01:00|23:59))",
    ]
}

proptest! {
    /// Without it some address takes a worker down, or U+0000 gets through to PostgreSQL.
    #[test]
    fn any_text_is_refused_or_read_without_the_null_character(text in texts()) {
        if let Ok(query) = Query::parse(&text, KNOWN) {
            prop_assert!(query.0.keys().all(|name| KNOWN.contains(&name.as_str())));
            prop_assert!(!query.0.values().any(|value| value.contains('\0')));
        }
    }

    /// X4. Without it a list is filtered by something else than what was asked for.
    #[test]
    fn what_was_encoded_is_what_is_read(value in any::<String>()) {
        let read = query("reference", &value).ok();
        let read = read.as_ref().and_then(|query| query.text("reference"));
        prop_assert_eq!(read, Some(value.as_str()).filter(|value| !value.contains('\0')));
    }

    /// Without it a balance is told for another instant, or one that PostgreSQL can't store is a 500.
    #[test]
    fn an_instant_is_rfc_3339_and_no_other(text in instants()) {
        let Ok(query) = query("at", &text) else { return Ok(()) };
        if let Ok(Some(instant)) = query.instant("at") {
            let meant = DateTime::parse_from_rfc3339(&text.replace(' ', "+"));
            prop_assert_eq!(Ok(instant), meant.map(|meant| meant.to_utc()));
            prop_assert!((1..=9999).contains(&instant.year()));
            let shown = DateTime::parse_from_rfc3339(&instant.to_rfc3339());
            prop_assert_eq!(shown.map(|shown| shown.to_utc()), Ok(instant), "the answer can say it");
        }
    }

    /// Without it a minute's 61st second is taken for the next minute's first, or a real leap second is refused.
    #[test]
    fn second_60_is_read_at_a_months_end_in_utc_only(
        days in 0..20_000_u64,
        minute in 0..1440_u64,
        offset in -1439..=1439_i32,
        near_month_end in any::<bool>(),
    ) {
        use chrono::{Days, FixedOffset, Months, NaiveDate, TimeDelta};
        let day = NaiveDate::from_ymd_opt(1990, 1, 1).unwrap() + Days::new(days);
        let first_of_next = day.with_day(1).unwrap() + Months::new(1);
        let (date, minute) = if near_month_end { (first_of_next.pred_opt().unwrap(), 1439) } else { (day, minute) };
        let utc = date.and_hms_opt(0, 0, 0).unwrap().and_utc() + TimeDelta::minutes(minute.try_into().unwrap());
        let local = utc.with_timezone(&FixedOffset::east_opt(offset * 60).unwrap());
        let text = local.format("%Y-%m-%dT%H:%M:60%:z").to_string();
        let right = minute == 1439 && date.succ_opt() == Some(first_of_next);
        prop_assert_eq!(read_instant(&text).is_ok(), right, "{}", text);
    }

    /// Without it one id has two spellings, or a text that is none reaches PostgreSQL.
    #[test]
    fn an_id_has_one_form(id in any::<u128>(), text in "[-0-9a-fA-F{}]{0,40}") {
        let id = Uuid::from_u128(id);
        for spelled in [id.to_string(), id.to_string().to_uppercase()] {
            prop_assert_eq!(query("account_id", &spelled).unwrap().uuid("account_id").unwrap(), Some(id));
        }
        if let Ok(Some(read)) = query("account_id", &text).unwrap().uuid("account_id") {
            prop_assert_eq!(read.to_string(), text.to_lowercase());
        }
    }
}
