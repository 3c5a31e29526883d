//! Proves each setting's default, and that a wrong one stops the start with a sentence that names it and what is allowed.

use clap::{CommandFactory, FromArgMatches, Parser};

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
}

const MINUTE: u64 = 60;

/// Reads these flags and no others: the environment of the machine that runs the test has no say.
fn serve(flags: &[&str]) -> Result<ServeArgs, String> {
    let without_environment = Cli::command().mut_args(|arg| arg.env(None::<&'static str>));
    let flags = ["payonce", "--database-url", "postgres://here/payonce"]
        .iter()
        .chain(flags);
    let matches = without_environment
        .try_get_matches_from(flags)
        .map_err(|error| error.to_string())?;
    Cli::from_arg_matches(&matches)
        .map(|cli| cli.serve)
        .map_err(|error| error.to_string())
}

fn refused(flag: &str, value: &str) -> String {
    match serve(&[flag, value]) {
        Ok(args) => panic!("{flag} {value} was accepted: {args:?}"),
        Err(message) => message,
    }
}

/// Without it a default drifts away from the contract: how long keys are kept is a promise to callers.
#[test]
fn the_defaults_are_those_of_the_contract() {
    let args = serve(&[]).unwrap();
    assert_eq!(args.retention.idempotency_ttl, Duration::from_secs(24 * HOUR));
    assert_eq!(args.retention.idempotency_tombstone_ttl, Duration::from_secs(90 * DAY));
    assert_eq!(args.idempotency_wait, Duration::from_secs(5));
    assert_eq!((args.engine_workers, args.batch_max), (2, 64));
    assert!(args.redis().is_none(), "Redis is off unless it is asked for");
    assert!(args.rate_limit.is_none());
    assert!(!args.allow_unsafe_durability);
}

/// Without it a duplicate is told that the service is out of reach while it waits for the first one, as it should.
#[test]
fn by_default_an_answer_may_take_longer_than_the_wait_for_an_equal_request() {
    let args = serve(&[]).unwrap();
    assert!(args.answer_timeout > args.idempotency_wait);
    assert!(args.database.lock_timeout < args.database.statement_timeout);
    assert!(args.database.statement_timeout < args.answer_timeout);
    assert!(args.database.idle_in_transaction_timeout < args.idempotency_wait);
    assert!(args.database.read_timeout < args.answer_timeout);
}

/// Without it what an operator sets by the documented name is silently not what the service reads.
#[test]
fn each_setting_is_read_from_the_environment_under_its_own_name() {
    let command = Cli::command();
    let names: Vec<_> = command
        .get_arguments()
        .filter_map(|arg| Some((arg.get_long()?, arg.get_env()?.to_str()?)))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for (flag, variable) in &names {
        assert_eq!(*variable, flag.to_uppercase().replace('-', "_"));
    }
    for name in [
        "DATABASE_URL",
        "REDIS_URL",
        "IDEMPOTENCY_TTL",
        "IDEMPOTENCY_TOMBSTONE_TTL",
        "IDEMPOTENCY_WAIT",
        "BATCH_MAX",
    ] {
        assert!(names.iter().any(|(_, variable)| *variable == name), "{name}");
    }
}

/// Without it a password stands in the usage text, and from there in somebody's ticket.
#[test]
fn addresses_that_hold_passwords_are_not_printed() {
    let command = Cli::command();
    for id in ["database_url", "redis_url"] {
        let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
        assert!(arg.is_hide_env_values_set(), "{id}");
    }
}

/// Without it `5` is five of something, and everybody has his own opinion of what.
#[test]
fn a_duration_is_a_whole_number_with_a_unit() {
    for (text, milliseconds) in [
        ("500ms", 500),
        ("5s", 5_000),
        ("10m", 600_000),
        ("24h", 86_400_000),
        ("90d", 7_776_000_000),
        ("0s", 0),
        ("007s", 7_000),
    ] {
        assert_eq!(read_duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in [
        "",
        "5",
        "s",
        "ms",
        "-5s",
        "+5s",
        "5 s",
        " 5s",
        "5s ",
        "1.5h",
        "5S",
        "5sec",
        "1h30m",
        "5µs",
        "٣s",
        "1w",
        "18446744073709551616s",
        "18446744073709551615d",
        "999999999999999999999h",
    ] {
        assert_eq!(read_duration(text), None, "{text:?}");
    }
}

/// Without it a duration without a unit is refused with a shrug.
#[test]
fn a_refused_duration_shows_the_right_form_and_the_setting() {
    for text in ["5", "soon", ""] {
        let message = refused("--idempotency-wait", text);
        assert!(message.contains("--idempotency-wait"), "{message}");
        assert!(
            message.contains("must be a whole number with a unit: 500ms, 5s, 10m, 24h, 90d"),
            "{message}"
        );
    }
}

/// The durations, each with its least and its most, as an operator may write them.
const DURATIONS: [(&str, &str, &str); 12] = [
    ("--idempotency-ttl", "1h", "30d"),
    ("--idempotency-tombstone-ttl", "1h", "3650d"),
    ("--idempotency-wait", "100ms", "60s"),
    ("--answer-timeout", "100ms", "120s"),
    ("--lock-timeout", "10ms", "10s"),
    ("--statement-timeout", "100ms", "60s"),
    ("--idle-in-transaction-timeout", "100ms", "60s"),
    ("--read-timeout", "100ms", "60s"),
    ("--redis-timeout", "1ms", "100ms"),
    ("--redis-window", "1s", "1h"),
    ("--cleanup-interval", "1s", "1d"),
    ("--shutdown-timeout", "1s", "10m"),
];

/// Without it a typing error of an operator makes keys forgotten within the minute, or locks kept for a day.
#[test]
fn a_duration_outside_its_range_is_refused_with_the_range() {
    let second = Duration::from_secs(1);
    for (flag, least, most) in DURATIONS {
        assert!(serve(&[flag, least]).is_ok(), "{flag} {least}");
        assert!(serve(&[flag, most]).is_ok(), "{flag} {most}");
        let [least, most] = [least, most].map(|text| read_duration(text).unwrap());
        let range = format!("must be between {least:?} and {most:?}");
        let beyond = format!("{}s", (most + second).as_secs());
        let below = format!("{}ms", least.as_millis() - 1);
        for value in [beyond, below] {
            let message = refused(flag, &value);
            assert!(message.contains(flag) && message.contains(&range), "{message}");
        }
    }
}

/// Without it the clean-up or the tombstones can't be turned off, or a key is remembered for no time at all.
#[test]
fn zero_turns_off_what_can_be_turned_off_and_nothing_else() {
    let off = [
        "--idempotency-tombstone-ttl",
        "--cleanup-interval",
        "--shutdown-timeout",
    ];
    for (flag, ..) in DURATIONS {
        for zero in ["0", "0s"] {
            assert_eq!(serve(&[flag, zero]).is_ok(), off.contains(&flag), "{flag} {zero}");
        }
    }
    let args = serve(&["--idempotency-tombstone-ttl", "0"]).unwrap();
    assert_eq!(args.workers().retention.tombstone, Duration::ZERO);
    for flag in off {
        assert!(
            refused(flag, "1ms").contains(", or 0"),
            "{flag}: the message says that 0 is allowed"
        );
    }
}

/// Without it a batch of none, no worker or a queue of no length lets the service start and answer nobody.
#[test]
fn a_number_outside_its_range_is_refused_with_the_range() {
    for (flag, least, most) in [
        ("--engine-workers", 1, 64),
        ("--http-workers", 1, 64),
        ("--batch-max", 1, 1000),
        ("--queue-max", 1, 100_000),
        ("--read-pool-size", 1, 100),
        ("--max-connections", 16, 1_000_000),
    ] {
        assert!(
            serve(&[flag, &least.to_string()]).is_ok() && serve(&[flag, &most.to_string()]).is_ok(),
            "{flag}"
        );
        for value in [least - 1, most + 1] {
            let message = refused(flag, &value.to_string());
            assert!(
                message.contains(flag) && message.contains(&format!("{least}..={most}")),
                "{message}"
            );
        }
    }
    assert!(refused("--rate-limit", "0").contains("--rate-limit"));
}

/// Without it `REDIS_URL=` in a compose file, which means "none", is an address.
#[test]
fn an_empty_redis_address_is_none() {
    assert!(serve(&["--redis-url", ""]).unwrap().redis().is_none());
    let redis = serve(&["--redis-url", "redis://there", "--redis-window", "2m"])
        .unwrap()
        .redis()
        .unwrap();
    assert_eq!(
        (redis.url.as_str(), redis.window),
        ("redis://there", Duration::from_secs(2 * MINUTE))
    );
}

/// Without it a setting is read, checked, and handed to nobody.
#[test]
fn each_layer_gets_its_settings() {
    let args = serve(&[
        "--engine-workers",
        "3",
        "--batch-max",
        "5",
        "--queue-max",
        "7",
        "--read-pool-size",
        "9",
        "--lock-timeout",
        "11ms",
        "--statement-timeout",
        "13s",
        "--idle-in-transaction-timeout",
        "17s",
        "--idempotency-ttl",
        "19h",
        "--idempotency-tombstone-ttl",
        "23d",
        "--idempotency-wait",
        "29s",
        "--answer-timeout",
        "31s",
        "--rate-limit",
        "37",
    ])
    .unwrap();
    let workers = args.workers();
    assert_eq!((workers.workers, workers.batch_max, workers.queue_max), (3, 5, 7));
    assert_eq!(workers.retention.response, Duration::from_secs(19 * HOUR));
    assert_eq!(workers.retention.tombstone, Duration::from_secs(23 * DAY));
    let database = workers.database;
    assert_eq!(
        (database.url.as_str(), database.read_pool_size),
        ("postgres://here/payonce", 9)
    );
    assert_eq!(database.lock_timeout, Duration::from_millis(11));
    assert_eq!(database.statement_timeout, Duration::from_secs(13));
    assert_eq!(database.idle_in_transaction_timeout, Duration::from_secs(17));
    assert_eq!(
        (args.wait().duplicate, args.wait().answer),
        (Duration::from_secs(29), Duration::from_secs(31))
    );
    assert_eq!(args.http().answer_timeout, Duration::from_secs(31));
    assert_eq!(args.http().rate_limit.map(NonZeroU32::get), Some(37));
}
