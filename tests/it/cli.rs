//! The command line: API keys, and settings that are checked before anything starts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::support::app::{App, program, redis_url};
use crate::support::{TestDatabase, new_key};
use serde_json::json;

/// Runs the program; exit status, stdout, stderr.
pub fn payonce(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = program();
    command.args(arguments).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

/// An API key that is made on the command line works, is listed without its secret, and stops working when it is revoked.
#[tokio::test]
async fn an_api_key_is_created_listed_used_and_revoked() {
    let app = App::start().await;
    let (status, key, error) = app.cli(&["api-key", "create", "--tenant", "shop", "--quiet"]);
    assert_eq!((status, error.as_str()), (0, ""));
    let key = key.trim();
    let client = app.with_api_key(key);
    let account = client.open("USD").await;
    assert_eq!(client.get(&format!("/accounts/{account}")).await.status, 200);

    let (status, list, _) = app.cli(&["api-key", "list"]);
    assert_eq!(status, 0);
    let prefix = &key[..16];
    let line = list.lines().find(|line| line.starts_with(prefix)).unwrap();
    assert!(
        line.contains("shop") && line.contains("read,write") && line.contains("does not expire"),
        "{line}"
    );
    assert!(!list.contains(key), "the list shows the secret");
    let hash = format!("SELECT count(*) FROM api_keys WHERE key_hash = sha256('{key}')");
    assert_eq!(app.database.number(&hash), 1);
    assert_eq!(
        app.database.number(&format!(
            "SELECT count(*) FROM api_keys WHERE api_keys::text LIKE '%{key}%'"
        )),
        0
    );

    let (status, out, _) = app.cli(&["api-key", "revoke", prefix]);
    assert_eq!((status, out.as_str()), (0, "revoked\n"));
    crate::support::app::until_async("the revocation to be heard of", async || {
        client.get(&format!("/accounts/{account}")).await.status == 401
    })
    .await;
    let (_, list, _) = app.cli(&["api-key", "list"]);
    assert!(
        list.lines()
            .any(|line| line.starts_with(prefix) && line.contains("revoked")),
        "{list}"
    );
    // A second time there is nothing to revoke, and it says so.
    let (status, _, error) = app.cli(&["api-key", "revoke", prefix]);
    assert_eq!(status, 1);
    assert!(error.contains(prefix), "{error}");
}

/// Scopes and the end of a key are what was asked for.
#[tokio::test]
async fn an_api_key_has_the_scopes_and_the_end_that_were_asked_for() {
    let app = App::start().await;
    let (status, out, _) = app.cli(&[
        "api-key",
        "create",
        "--tenant",
        "shop",
        "--scopes",
        "read",
        "--expires-in-days",
        "7",
    ]);
    assert_eq!(status, 0);
    assert!(
        out.contains("shop") && out.contains("(read)") && out.contains("only this once"),
        "{out}"
    );
    let key = out.lines().last().unwrap();
    let reader = app.with_api_key(key);
    assert_eq!(reader.get("/accounts").await.status, 200);
    reader
        .post("/accounts", &new_key(), &json!({"currency": "USD", "name": "A"}))
        .await
        .problem(403, "forbidden");
    let (_, list, _) = app.cli(&["api-key", "list"]);
    let line = list.lines().find(|line| line.starts_with(&key[..16])).unwrap();
    assert!(line.contains("expires 20"), "{line}");
    // Another instance has not seen it yet, and the end has come.
    app.database
        .run("UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE expires_at IS NOT NULL");
    crate::support::app::until_async("the key to end", async || reader.get("/accounts").await.status == 401).await;
    // Two keys of one tenant see the same accounts.
    for wrong in [
        &["--scopes", "admin"][..],
        &["--expires-in-days", "0"],
        &["--scopes", ""],
    ] {
        let arguments = [&["api-key", "create", "--tenant", "shop"], wrong].concat();
        assert_eq!(app.cli(&arguments).0, 2, "{wrong:?}");
    }
    let (status, _, error) = app.cli(&["api-key", "create", "--tenant", ""]);
    assert_ne!((status, error.as_str()), (0, ""));
}

/// Each setting with a value that is wrong, as the flag and as the environment variable of the same name.
const WRONG: [(&str, &str); 30] = [
    ("lock-timeout", "9ms"),
    ("lock-timeout", "500"),
    ("statement-timeout", "61s"),
    ("idle-in-transaction-timeout", "0"),
    ("read-pool-size", "0"),
    ("read-pool-size", "many"),
    ("read-timeout", "61s"),
    ("redis-timeout", "1s"),
    ("redis-window", "2h"),
    ("idempotency-wait", "10ms"),
    ("answer-timeout", "1d"),
    ("engine-workers", "0"),
    ("engine-workers", "65"),
    ("batch-max", "0"),
    ("batch-max", "1001"),
    ("queue-max", "0"),
    ("rate-limit", "0"),
    ("rate-limit", "-1"),
    ("http-workers", "0"),
    ("max-connections", "15"),
    ("max-connections", "1000001"),
    ("cleanup-interval", "10ms"),
    ("shutdown-timeout", "1h"),
    ("idempotency-ttl", "59m"),
    ("idempotency-ttl", "31d"),
    ("idempotency-ttl", "1.5h"),
    ("idempotency-tombstone-ttl", "1m"),
    ("idempotency-tombstone-ttl", "forever"),
    ("allow-unsafe-durability", "perhaps"),
    ("log-json", "perhaps"),
];

/// A setting that is wrong and ignored is a TTL of an hour in production that nobody asked for.
#[test]
fn a_wrong_setting_stops_the_start_with_a_sentence_that_names_it() {
    // Nothing listens there: if the start went on, it would fail with another sentence.
    let database = ("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none");
    for (name, value) in WRONG {
        let flag = format!("--{name}={value}");
        let variable = name.to_uppercase().replace('-', "_");
        let as_flag = payonce(&["serve", &flag], &[database]);
        let as_variable = payonce(&["serve"], &[database, (&variable, value)]);
        for (status, out, error) in [as_flag, as_variable] {
            assert_eq!((status, out.as_str()), (2, ""), "{flag}: {error}");
            assert!(
                error.contains(&format!("--{name}")) && error.contains(value),
                "{flag}: {error}"
            );
        }
    }
}

/// Every setting that has a wrong value is in the list above: a new one without a check would be missed.
#[test]
fn every_setting_of_serve_is_tried_with_a_wrong_value() {
    let (_, help, _) = payonce(&["serve", "--help"], &[]);
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let mut untried: Vec<&str> = flags
        .filter_map(|flag| flag.split([' ', '=']).next())
        .filter(|flag| !WRONG.iter().any(|(name, _)| name == flag))
        .collect();
    untried.sort_unstable();
    // Addresses: wrong in a way of their own, below.
    assert_eq!(untried, ["database-url", "listen", "redis-url"]);
}

/// Addresses that make no sense, or where nobody is.
#[test]
fn an_address_that_is_missing_or_makes_no_sense_stops_the_start_with_a_sentence_that_names_it() {
    let database = TestDatabase::new();
    for command in ["serve", "migrate", "audit", "cleanup"] {
        let (status, _, error) = payonce(&[command], &[]);
        assert_eq!(status, 2, "{command}");
        assert!(error.contains("--database-url"), "{command}: {error}");
        let (status, _, error) = payonce(&[command], &[("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")]);
        // An audit's 1 says that the books are wrong.
        assert_eq!(status, if command == "audit" { 2 } else { 1 }, "{command}");
        assert!(
            error.starts_with("payonce: ") && error.contains("127.0.0.1"),
            "{command}: {error}"
        );
    }
    let url = ("DATABASE_URL", database.url.as_str());
    let (status, _, error) = payonce(&["serve", "--redis-url=nonsense"], &[url]);
    assert_eq!(status, 1);
    assert!(error.contains("REDIS_URL"), "{error}");
    // Often, because threads have been started by then: one that was in the middle of something once crashed the exit.
    for listen in ["nonsense", "127.0.0.1:99999", "203.0.113.1:80"].repeat(8) {
        let (status, _, error) = payonce(&["serve", "--listen", listen], &[url]);
        assert_eq!(status, 1);
        assert!(error.contains("LISTEN") && error.contains(listen), "{error}");
    }
}

/// Secrets are in the addresses: `--help` and error messages go to logs and tickets.
#[test]
fn help_works_without_a_database_and_shows_no_secret() {
    let secret = ("DATABASE_URL", "postgres://user:secret@127.0.0.1:1/none");
    let redis = ("REDIS_URL", "redis://:secret@127.0.0.1:1");
    let (status, help, _) = payonce(&["--help"], &[secret]);
    assert_eq!(status, 0);
    for command in ["serve", "migrate", "api-key", "audit", "cleanup", "openapi"] {
        assert!(help.contains(command), "{help}");
        let (status, help, error) = payonce(&[command, "--help"], &[secret, redis]);
        assert_eq!((status, error.as_str()), (0, ""), "{command}");
        assert!(help.len() > 100 && !help.contains("secret"), "{help}");
    }
    assert_eq!(payonce(&["--version"], &[]).0, 0);
    for wrong in [&[][..], &["nonsense"], &["serve", "--nonsense"], &["api-key"]] {
        let (status, out, error) = payonce(wrong, &[]);
        assert_eq!((status, out.as_str()), (2, ""), "{wrong:?}");
        assert!(error.contains("Usage:"), "{error}");
    }
    let (_, _, error) = payonce(&["serve", "--lock-timeout=1"], &[secret, redis]);
    assert!(!error.contains("secret"), "{error}");
    let (_, _, error) = payonce(&["audit"], &[secret]);
    assert!(!error.contains("secret"), "{error}");
}

/// The document of the API needs nothing: neither a database nor a setting.
#[test]
fn the_openapi_document_is_printed_without_a_database() {
    let (status, document, error) = payonce(&["openapi"], &[]);
    assert_eq!((status, error.as_str()), (0, ""));
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["openapi"], json!("3.1.0"));
}

/// What comes from the environment is overruled by a flag; an empty `REDIS_URL` is none.
#[tokio::test]
async fn a_flag_overrules_the_environment() {
    assert!(redis_url().starts_with("redis"));
    let app = App::setup().redis("").flag("--cleanup-interval=1s").start().await;
    app.open("USD").await;
    assert_eq!(app.metric("payonce_redis_hints_total", "").await, 0);
    app.age(25);
    let database = &app.database;
    let bodies = "SELECT count(*) FROM idempotency_keys WHERE response_body IS NOT NULL";
    crate::support::app::until("the clean-up of the flag, not the one of the environment", || {
        database.number(bodies) == 0
    })
    .await;
}

/// With `--log-json` each line of the log is JSON, for machines that collect it.
#[test]
fn the_log_can_be_json_and_is_never_on_stdout() {
    let database = TestDatabase::empty();
    let (status, out, log) = payonce(
        &["migrate", "--log-json"],
        &[("DATABASE_URL", &database.url), ("RUST_LOG", "trace")],
    );
    assert_eq!(status, 0, "{log}");
    let migrations = std::fs::read_dir("migrations").unwrap();
    let folders = migrations.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(out.lines().count(), folders.count(), "{out}");
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

/// What `payonce serve` answers to each of these requests, and what it logs meanwhile.
fn answers_and_log(rust_log: Option<&str>, requests: &[&str]) -> (Vec<String>, String) {
    let database = TestDatabase::new();
    let mut serve = program();
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env_remove("RUST_LOG");
    serve.envs(rust_log.map(|filter| ("RUST_LOG", filter)));
    serve
        .env("DATABASE_URL", &database.url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut serve = serve.spawn().unwrap();
    let mut first_line = String::new();
    BufReader::new(serve.stdout.take().unwrap())
        .read_line(&mut first_line)
        .unwrap();
    let address = first_line.split(['/', ',']).nth(2).unwrap();
    let answer = |request: &&str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answers = requests.iter().map(answer).collect();
    let stop = Command::new("kill").arg(serve.id().to_string()).status();
    assert!(stop.unwrap().success());
    let log = String::from_utf8(serve.wait_with_output().unwrap().stderr).unwrap();
    (answers, log)
}

/// What breaks HTTP is answered 400, is counted, and is no error of ours: it is in the log of who asks for it. Without this a scanner
/// fills the log, and wakes somebody up.
#[test]
fn what_is_no_http_is_no_error_in_the_log() {
    let requests = [
        "GET / HTTP/1.1\r\nthis is no header\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: one\r\nHost: two\r\n\r\n",
        "POST /payments HTTP/1.1\r\nHost: one\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        "GET / HTTP/1.1\r\nHost: one\r\n folded\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}",
        "GET /metrics HTTP/1.1\r\nHost: one\r\nConnection: close\r\n\r\n",
    ];
    for (filter, shown) in [
        (None, false),
        (Some("warn"), false),
        (Some("info,payonce=debug"), false),
        (Some("info,actix_http=debug"), true),
    ] {
        let (mut answers, log) = answers_and_log(filter, &requests);
        let metrics = answers.pop().expect("an answer");
        for answer in &answers {
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        }
        let counted = format!("payonce_http_refused_total {}", answers.len());
        assert!(metrics.lines().any(|line| line == counted), "{metrics}");
        assert_eq!(log.contains("ERROR"), shown, "{filter:?}: {log}");
    }
}

/// More connections than files may be open are refused at the start, with what would fit; unset, as many as fit are taken. Without
/// this the service runs out of files under load, and then can't reach its database.
#[tokio::test]
async fn connections_have_to_fit_into_the_limit_of_open_files() {
    let database = TestDatabase::new();
    let serve = |flags: &str| {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!(
                "ulimit -n 128 && exec \"$0\" serve --listen=127.0.0.1:0 {flags}"
            ))
            .arg(env!("CARGO_BIN_EXE_payonce"))
            .env_clear()
            .env("DATABASE_URL", &database.url)
            .env("PATH", "/usr/bin:/bin");
        shell
    };
    let output = serve("--max-connections=500").output().expect("sh");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("MAX_CONNECTIONS: 500 connections need"), "{said}");
    assert!(
        said.contains("the limit of this process is 128: set 47 or fewer"),
        "{said}"
    );

    let mut child = serve("").stdout(Stdio::piped()).spawn().expect("sh");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    drop(child.kill());
    drop(child.wait());
    assert!(line.starts_with("payonce listens on"), "{line}");
}
