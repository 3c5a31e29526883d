//! Revoking API keys: one key is meant, no other is touched, and every instance hears of it or does not remember.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use futures_util::future::join_all;
use payonce::http::hash_api_key;
use payonce::storage::api_keys::{self, Scope};

use crate::support::app::{address_in, program, until_async};
use crate::support::{App, Client, Proxy, TestDatabase};

/// The visible beginning that keys of this file share.
const PREFIX: &str = "payonce_01234567";

/// A key that begins like all the others of this file, and a client that uses it.
fn key_of(app: &App, tenant: &str, rest: &str) -> Client {
    let key = format!("{PREFIX}{}", rest.repeat(56));
    let mut connection = app.database.connect();
    let created = api_keys::create(
        &mut connection,
        tenant,
        PREFIX,
        &hash_api_key(&key),
        &[Scope::Read],
        None,
    );
    assert!(created.expect("a key"), "{tenant} has one that begins like this");
    app.with_api_key(&key)
}

/// `payonce api-key revoke` that must refuse: what it said, without the secret.
fn refused(app: &App, arguments: &[&str]) -> String {
    let (status, out, error) = app.cli(&[&["api-key", "revoke"], arguments].concat());
    assert_eq!((status, out.as_str()), (1, ""), "{arguments:?}: {error}");
    for argument in arguments.iter().filter(|argument| argument.len() > PREFIX.len()) {
        assert!(!error.contains(argument), "{error}");
    }
    error
}

fn revoked_keys(app: &App) -> i64 {
    app.database
        .number("SELECT count(*) FROM api_keys WHERE revoked_at IS NOT NULL")
}

/// The whole key ends that key and no other, though another tenant's begins with the same visible characters. Without this
/// one customer's leaked key locks another customer out.
#[tokio::test]
async fn a_whole_key_ends_itself_and_nothing_else() {
    let app = App::start().await;
    let (a, b) = (key_of(&app, "tenant-a", "a"), key_of(&app, "tenant-b", "b"));
    assert_eq!(app.cli(&["api-key", "revoke", &a.api_key]).0, 0);
    a.get("/accounts").await.problem(401, "unauthenticated");
    b.get("/accounts").await.ok();
    assert_eq!(revoked_keys(&app), 1);
}

/// A whole key that nobody has is refused, and not taken for what it begins with. Without this a slip of the finger in the last
/// character ends somebody else's key.
#[tokio::test]
async fn a_whole_key_that_nobody_has_ends_nothing() {
    let app = App::start().await;
    let a = key_of(&app, "tenant-a", "a");
    let (longer, shorter) = (format!("{}0", a.api_key), &a.api_key[..a.api_key.len() - 1]);
    for key in [longer.as_str(), shorter, &a.api_key[..17]] {
        for arguments in [&[key][..], &[key, "--tenant", "tenant-a"]] {
            let error = refused(&app, arguments);
            assert!(error.contains("no such API key"), "{error}");
        }
    }
    assert_eq!(revoked_keys(&app), 0);
    a.get("/accounts").await.ok();
}

/// A visible beginning that several tenants' keys have is refused, with the keys that it may mean and how to name one. Without
/// this, who revokes by what the list shows ends strangers' keys as well.
#[tokio::test]
async fn an_ambiguous_beginning_ends_nothing_until_the_tenant_is_named() {
    let app = App::start().await;
    let (a, b) = (key_of(&app, "tenant-a", "a"), key_of(&app, "tenant-b", "b"));
    let error = refused(&app, &[PREFIX]);
    assert!(
        error.contains("2 API keys") && error.contains("--tenant NAME"),
        "{error}"
    );
    for tenant in ["tenant-a", "tenant-b"] {
        let line = error.lines().find(|line| line.contains(tenant));
        let line = line.unwrap_or_else(|| panic!("{tenant}: {error}"));
        assert!(line.starts_with(PREFIX) && line.contains("created 20"), "{line}");
    }
    let error = refused(&app, &[PREFIX, "--tenant=tenant-c"]);
    assert!(
        error.contains("\"tenant-c\"") && error.contains("tenant-a") && error.contains("tenant-b"),
        "{error}"
    );
    assert_eq!(revoked_keys(&app), 0);

    assert_eq!(
        app.cli(&["api-key", "revoke", PREFIX, "--tenant=tenant-b"]).1,
        "revoked\n"
    );
    b.get("/accounts").await.problem(401, "unauthenticated");
    a.get("/accounts").await.ok();
    // Who means the one that was revoked already must not end the other.
    assert!(refused(&app, &[PREFIX]).contains("revoked 20"));
    assert!(refused(&app, &[PREFIX, "--tenant=tenant-b"]).contains("revoked already"));
    a.get("/accounts").await.ok();
    assert_eq!(revoked_keys(&app), 1);
}

/// A tenant that is named with a whole key must be its tenant. Without this the name would say one thing and the key another,
/// and one of them is wrong.
#[tokio::test]
async fn a_whole_key_of_another_tenant_than_the_named_one_is_refused() {
    let app = App::start().await;
    let a = key_of(&app, "tenant-a", "a");
    let error = refused(&app, &[&a.api_key, "--tenant=tenant-b"]);
    assert!(
        error.contains("\"tenant-b\"") && error.contains("tenant-a") && error.contains(PREFIX),
        "{error}"
    );
    assert_eq!(revoked_keys(&app), 0);
    assert_eq!(
        app.cli(&["api-key", "revoke", &a.api_key, "--tenant=tenant-a"]).1,
        "revoked\n"
    );
    assert!(refused(&app, &[&a.api_key]).contains("revoked already"));
}

/// A line of the list may be copied as it is, white space and ellipsis included; what begins no key says so. Without this a
/// part of a beginning ends whichever key comes first.
#[tokio::test]
async fn a_beginning_is_taken_as_the_list_shows_it_and_not_in_part() {
    let app = App::start().await;
    key_of(&app, "tenant-a", "a");
    for beginning in ["", "payonce_", &PREFIX[..15], "payonce_76543210", "%"] {
        let error = refused(&app, &[beginning]);
        assert!(error.contains(&format!("{beginning:?}")), "{error}");
    }
    let shown = format!(" {PREFIX}…\n");
    assert_eq!(app.cli(&["api-key", "revoke", &shown]).1, "revoked\n");
}

/// Of several that revoke one key at once, one does it and the others say that it was done; afterwards it is out. Without this two
/// people who react to one leak hear that there is no such key, and go looking for another.
#[tokio::test]
async fn of_concurrent_revocations_one_succeeds() {
    let app = App::start().await;
    let a = key_of(&app, "tenant-a", "a");
    a.get("/accounts").await.ok();
    let revocations = (0..4).map(|_| {
        let mut revoke = program();
        revoke
            .args(["api-key", "revoke", &a.api_key])
            .env("DATABASE_URL", &app.database.url);
        tokio::task::spawn_blocking(move || {
            let output = revoke.output().expect("payonce runs");
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        })
    });
    let mut done = 0;
    for outcome in join_all(revocations).await {
        match outcome.expect("no panic") {
            (Some(0), _) => done += 1,
            (status, error) => assert!(status == Some(1) && error.contains("revoked already"), "{error}"),
        }
    }
    assert_eq!(done, 1);
    a.get("/accounts").await.problem(401, "unauthenticated");
}

/// A key in the wrong place is in no message either. Without this it is in the log of whatever ran the command.
#[tokio::test]
async fn a_whole_key_is_not_repeated_by_any_error() {
    let app = App::start().await;
    let key = key_of(&app, "tenant-a", "a").api_key;
    for arguments in [
        &["api-key", key.as_str()][..],
        &["api-key", "list", &key],
        &["api-key", "revoke", &key, &key],
        &["api-key", "revoke", PREFIX, "--tenant", &key],
        &["api-key", "create", "--tenant=a", "--scopes", &key],
        &[&key],
    ] {
        let (status, out, error) = app.cli(arguments);
        assert_ne!(status, 0, "{arguments:?}");
        assert!(!out.contains(&key) && !error.contains(&key), "{error}");
        assert!(error.contains(PREFIX), "{error}");
    }
}

/// A new key that happens to begin like another one of the tenant is thrown away for a third. Without this `create` fails once
/// in a while and calls it a bug.
#[tokio::test]
async fn a_new_key_that_begins_like_another_is_made_again() {
    let app = App::start().await;
    key_of(&app, "shop", "a");
    app.database.run(&format!(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN IF nextval('tries') <= 2 THEN NEW.prefix := '{PREFIX}'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER collide BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION collide()"
    ));
    let (status, key, error) = app.cli(&["api-key", "create", "--tenant=shop", "--quiet"]);
    assert_eq!((status, error.as_str()), (0, ""));
    app.with_api_key(key.trim()).get("/accounts").await.ok();

    app.database
        .run("ALTER SEQUENCE tries MINVALUE -1000 RESTART WITH -1000");
    let (status, out, error) = app.cli(&["api-key", "create", "--tenant=shop", "--quiet"]);
    assert_eq!((status, out.as_str()), (1, ""));
    assert!(error.contains("random") && !error.contains("bug"), "{error}");
}

/// A tenant's name has 1 to 255 characters, and who gives another one reads that. Without this it reads like a bug of the program.
#[tokio::test]
async fn a_tenant_whose_name_is_too_long_or_empty_is_refused_with_a_reason() {
    let app = App::start().await;
    for name in [String::new(), "é".repeat(256)] {
        let (status, out, error) = app.cli(&["api-key", "create", "--tenant", &name]);
        assert_eq!((status, out.as_str()), (2, ""));
        assert!(error.contains("--tenant") && error.contains("1 to 255"), "{error}");
    }
    let longest = "é".repeat(255);
    assert_eq!(app.cli(&["api-key", "create", "--tenant", &longest]).0, 0);
}

/// A key is let in without a look at the database, once it was looked up and as long as revocations are heard of. Without this every
/// request is a read more, and nobody notices.
#[tokio::test]
async fn a_key_is_remembered_while_revocations_are_heard_of() {
    let app = App::setup().flag("--statement-timeout=100ms").start().await;
    until_async("the key to be remembered", async || {
        app.get("/accounts").await.ok();
        let _nobody_can_look_it_up = app.database.hold("LOCK TABLE api_keys");
        app.get("/accounts").await.status == 200
    })
    .await;
}

/// Behind a pooler in transaction mode `LISTEN` succeeds and nothing is heard. A key that was revoked, whoever did it and however, is
/// out at the very next request all the same. Without this a stolen key pays on for as long as it is remembered.
#[tokio::test]
async fn a_revoked_key_is_out_at_once_where_notifications_do_not_arrive() {
    let database = TestDatabase::new();
    let pooler = Proxy::start(address_in(&database.url));
    pooler.swallow_notifications();
    let app = App::setup()
        .start_on(database, Some(&pooler.address().to_string()))
        .await;
    for tenant in 0..50 {
        let client = app.tenant(&format!("tenant-{tenant}"));
        for _ in 0..3 {
            client.get("/accounts").await.ok();
        }
        app.database.run(&format!(
            "UPDATE api_keys SET revoked_at = now() WHERE key_hash = sha256('{}')",
            client.api_key
        ));
        client.get("/accounts").await.problem(401, "unauthenticated");
    }
}

/// That nothing is heard, and that it is again, is one line each in the log, however long it lasts. Without this either nobody
/// learns why every request reads the database twice, or the log is full of it.
#[test]
fn that_notifications_do_not_arrive_is_logged_once() {
    let database = TestDatabase::new();
    let mut serve = program();
    serve
        .args(["serve", "--listen=127.0.0.1:0"])
        .env("RUST_LOG", "payonce=info");
    serve
        .env("DATABASE_URL", &database.url)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut serve = serve.spawn().expect("payonce starts");
    let log = BufReader::new(serve.stderr.take().expect("stderr"));
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || log.lines().try_for_each(|line| sender.send(line.expect("a line"))));
    let until = |what: &str| {
        let mut seen: Vec<String> = Vec::new();
        while !seen.last().is_some_and(|line| line.contains(what)) {
            let line = lines.recv_timeout(Duration::from_secs(30));
            seen.push(line.unwrap_or_else(|_| panic!("not logged: {what}: {seen:#?}")));
        }
        seen
    };
    until("listening");
    let mut seen = Vec::new();
    for _ in 0..2 {
        database.lock_out();
        seen.extend(until("no notification of PostgreSQL is heard"));
        database.let_in();
        seen.extend(until("notifications are heard"));
    }
    let stop = Command::new("kill").arg(serve.id().to_string()).status();
    assert!(stop.expect("kill runs").success());
    seen.extend(until("stopped"));
    serve.wait().expect("wait");
    let about = |line: &&String| line.contains("notification");
    assert_eq!(seen.iter().filter(about).count(), 4, "{seen:#?}");
}
