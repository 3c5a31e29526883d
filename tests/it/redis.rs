//! Redis in each bad state. It is a hint: whatever it does, the answers are those of a service without it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::support::app::{address_in, redis_url, until_async};
use crate::support::{App, Proxy, assert_books_balance, new_key};

/// A Redis that answers every command but the greeting with these bytes.
struct FakeRedis {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl FakeRedis {
    fn start(reply: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || serve(client, reply, &counter));
            }
        });
        Self { url, asked }
    }
}

/// Reads commands (arrays of bulk strings) and answers until the client has gone.
fn serve(client: TcpStream, reply: &[u8], asked: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut writer = client;
    loop {
        let mut words = Vec::new();
        for _ in 0..number(&mut reader, '*')? {
            let mut word = vec![0; number(&mut reader, '$')? + 2];
            reader.read_exact(&mut word).ok()?;
            words.push(String::from_utf8_lossy(&word).trim().to_uppercase());
        }
        let greeting = words.first().is_some_and(|word| word != "SET");
        if greeting {
            writer.write_all(b"+OK\r\n").ok()?;
        } else {
            asked.fetch_add(1, Ordering::SeqCst);
            writer.write_all(reply).ok()?;
        }
    }
}

fn number(reader: &mut impl BufRead, sign: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim().strip_prefix(sign)?.parse().ok()
}

/// A word to Redis itself; its reply.
fn ask_redis(words: &[&str]) -> String {
    let mut socket = TcpStream::connect(address_in(&redis_url())).unwrap();
    write!(socket, "*{}\r\n", words.len()).unwrap();
    for word in words {
        write!(socket, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
    let mut reply = String::new();
    BufReader::new(socket).read_line(&mut reply).unwrap();
    reply
}

const COUNT: usize = 100;

/// Pays under 100 keys, each twice, the second time all at once with the first ones of others. Whatever Redis does
/// meanwhile (`harm` is called half-way), the answers must be right. Gives the number of hints that failed.
async fn pay_and_retry(app: &App, mut harm: impl FnMut()) -> u64 {
    let (payer, payee) = (app.open_with("1000.00").await, app.open("USD").await);
    let keys: Vec<String> = (0..COUNT).map(|_| new_key()).collect();
    let pay = async |keys: &[String]| {
        let mut replies = Vec::new();
        for some in keys.chunks(10) {
            replies.extend(join_all(some.iter().map(|key| app.pay_under(key, &payer, &payee, "1.00"))).await);
        }
        replies
    };
    let mut first = pay(&keys[..COUNT / 2]).await;
    harm();
    first.extend(pay(&keys[COUNT / 2..]).await);
    let started = Instant::now();
    let retried = pay(&keys).await;
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "the retries took {:?}",
        started.elapsed()
    );
    for (first, retried) in first.iter().zip(&retried) {
        assert_eq!(first.status, 201, "{}", first.shown());
        assert!(!first.is_replay(), "a first that is a replay");
        assert_eq!((retried.status, &retried.body), (201, &first.body));
        assert!(retried.is_replay());
    }
    // The rest of what is answered does not depend on it either.
    app.pay_under(&keys[0], &payer, &payee, "2.00")
        .await
        .problem(422, "idempotency_key_reused");
    let poor = new_key();
    for replayed in [false, true] {
        let refused = app.pay_under(&poor, &payee, &payer, "5000.00").await;
        refused.problem(402, "insufficient_funds");
        assert_eq!(refused.is_replay(), replayed);
    }
    assert_eq!(app.balance(&payee).await, "100.00");
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 100);
    assert_books_balance(&app.database);
    app.metric("payonce_redis_hints_total", "failed").await
}

/// Waits bounded once: three failures in a row and whoever was waiting with them, then one attempt every two seconds.
/// Without the breaker it would be one for each of more than 200 requests.
#[track_caller]
fn assert_few(failed: u64) {
    assert!((1..=60).contains(&failed), "{failed} hints failed");
}

/// The time limit for tests in which Redis is well, and only the machine may be slow.
const PATIENT: &str = "--redis-timeout=100ms";

/// I13: the yardstick: no Redis at all.
#[tokio::test]
async fn without_redis_every_answer_is_right() {
    let app = App::setup().without_redis().start().await;
    assert_eq!(pay_and_retry(&app, || {}).await, 0);
}

/// I13: and with a good one, of which the hints are used.
#[tokio::test]
async fn with_redis_every_answer_is_the_same_and_repeats_are_seen() {
    let app = App::setup().flag(PATIENT).start().await;
    pay_and_retry(&app, || {}).await;
    assert!(app.metric("payonce_redis_hints_total", "seen").await >= 50);
    assert!(app.metric("payonce_redis_hints_total", "new").await >= 50);
}

/// I13: nobody listens on Redis' port; a host that is down must not be a reason not to start either.
#[tokio::test]
async fn with_a_redis_that_is_not_there_every_answer_is_the_same() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let app = App::setup().redis(&format!("redis://{unused}")).start().await;
    assert_few(pay_and_retry(&app, || {}).await);
}

/// I13: Redis is killed half-way.
#[tokio::test]
async fn with_a_redis_that_is_cut_off_every_answer_is_the_same() {
    let proxy = Proxy::start(address_in(&redis_url()));
    let app = App::setup()
        .redis(&format!("redis://{}", proxy.address()))
        .start()
        .await;
    assert_few(pay_and_retry(&app, || proxy.cut()).await);
}

/// I13: Redis hangs half-way: it accepts everything and says nothing. The worst one, for every request would wait.
#[tokio::test]
async fn with_a_redis_that_hangs_every_answer_is_the_same() {
    let proxy = Proxy::start(address_in(&redis_url()));
    let app = App::setup()
        .redis(&format!("redis://{}", proxy.address()))
        .start()
        .await;
    assert_few(pay_and_retry(&app, || proxy.freeze()).await);
}

/// I13: every reply of Redis comes later than anybody waits for it. None may be taken for the answer to the next question.
#[tokio::test]
async fn with_a_redis_that_is_too_slow_every_answer_is_the_same() {
    let proxy = Proxy::start(address_in(&redis_url()));
    let app = App::setup()
        .redis(&format!("redis://{}", proxy.address()))
        .start()
        .await;
    assert_few(pay_and_retry(&app, || proxy.delay(Duration::from_millis(100))).await);
}

/// I13: what answers is no Redis.
#[tokio::test]
async fn with_a_redis_that_talks_garbage_every_answer_is_the_same() {
    let proxy = Proxy::start(address_in(&redis_url()));
    let app = App::setup()
        .redis(&format!("redis://{}", proxy.address()))
        .start()
        .await;
    assert_few(pay_and_retry(&app, || proxy.garbage()).await);
}

/// I13: Redis is full, or loading, or has become a replica: it answers, with errors.
#[tokio::test]
async fn with_a_redis_that_answers_errors_every_answer_is_the_same() {
    for reply in [
        &b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"[..],
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
    ] {
        let redis = FakeRedis::start(reply);
        let app = App::setup().redis(&redis.url).start().await;
        assert_few(pay_and_retry(&app, || {}).await);
        assert!(redis.asked.load(Ordering::SeqCst) > 0, "it was never asked");
    }
}

/// I13: a reply of another type than the question's.
#[tokio::test]
async fn with_a_redis_that_answers_something_else_every_answer_is_the_same() {
    for reply in [&b":42\r\n"[..], b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"$3\r\nfoo\r\n"] {
        let redis = FakeRedis::start(reply);
        let app = App::setup().redis(&redis.url).start().await;
        pay_and_retry(&app, || {}).await;
        assert!(redis.asked.load(Ordering::SeqCst) > 0, "it was never asked");
    }
}

/// A hint that says "seen" to everything costs one read each, and "new" to everything the write path; neither is an answer.
#[tokio::test]
async fn a_redis_that_always_lies_changes_no_answer() {
    for reply in [&b"$-1\r\n"[..], b"+OK\r\n"] {
        let redis = FakeRedis::start(reply);
        let app = App::setup().flag(PATIENT).redis(&redis.url).start().await;
        pay_and_retry(&app, || {}).await;
        assert!(redis.asked.load(Ordering::SeqCst) >= 100);
    }
}

/// I13: a flush, or an eviction, between the first attempt and the retry. Other tests share this Redis: only the keys of
/// this one are deleted.
#[tokio::test]
async fn with_a_redis_that_is_flushed_every_answer_is_the_same() {
    let app = App::setup().flag(PATIENT).start().await;
    let tenant = app.database.word("SELECT tenant_id FROM tenants");
    let flush = || {
        let script = "local keys = redis.call('KEYS', ARGV[1]) for _, key in ipairs(keys) do redis.call('DEL', key) end return #keys";
        let deleted = ask_redis(&["EVAL", script, "0", &format!("payonce:{tenant}:*")]);
        assert!(
            deleted.trim_start_matches(':').trim().parse::<usize>().unwrap() >= 50,
            "{deleted}"
        );
    };
    pay_and_retry(&app, flush).await;
}

/// A key that Redis believes to know, and PostgreSQL does not: left over from a crash between the hint and the claim, or set
/// by hand with another hash. The request is executed like any other.
#[tokio::test]
async fn a_stale_or_wrong_hint_costs_a_read_and_no_answer() {
    let app = App::setup().flag(PATIENT).start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let tenant = app.database.word("SELECT tenant_id FROM tenants");
    for hash in ["", "not a hash", &"0".repeat(64)] {
        let key = new_key();
        let set = ask_redis(&["SET", &format!("payonce:{tenant}:{key}"), hash, "PX", "60000"]);
        assert_eq!(set, "+OK\r\n");
        let seen = app.metric("payonce_redis_hints_total", "seen").await;
        let first = app.pay_under(&key, &payer, &payee, "1.00").await;
        first.created();
        assert!(!first.is_replay());
        assert_eq!(
            app.metric("payonce_redis_hints_total", "seen").await,
            seen + 1,
            "the hint was asked for"
        );
        let retry = app.pay_under(&key, &payer, &payee, "1.00").await;
        assert_eq!((retry.is_replay(), &retry.body), (true, &first.body));
    }
    // A value of another type than ours.
    let key = new_key();
    ask_redis(&["LPUSH", &format!("payonce:{tenant}:{key}"), "x"]);
    assert!(!app.pay_under(&key, &payer, &payee, "1.00").await.is_replay());
    ask_redis(&["DEL", &format!("payonce:{tenant}:{key}")]);
    assert_eq!(app.database.number("SELECT count(*) FROM payments"), 4);
    assert_books_balance(&app.database);
}

/// A breaker that never closes again turns one bad minute into a service without hints until the next restart.
#[tokio::test]
async fn the_hint_is_used_again_when_redis_is_back() {
    let proxy = Proxy::start(address_in(&redis_url()));
    let app = App::setup()
        .redis(&format!("redis://{}", proxy.address()))
        .start()
        .await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    proxy.freeze();
    until_async("hints to fail", async || {
        app.pay(&payer, &payee, "0.01").await.created();
        app.metric("payonce_redis_hints_total", "failed").await >= 3
    })
    .await;
    let failed = app.metric("payonce_redis_hints_total", "failed").await;
    for _ in 0..20 {
        app.pay(&payer, &payee, "0.01").await.created();
    }
    let while_open = app.metric("payonce_redis_hints_total", "failed").await - failed;
    assert!(
        while_open <= 2,
        "{while_open} of 20 waited for a Redis that is known to hang"
    );
    proxy.pass();
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "0.01").await.created();
    let seen = app.metric("payonce_redis_hints_total", "seen").await;
    until_async("a repeat to be seen", async || {
        assert!(app.pay_under(&key, &payer, &payee, "0.01").await.is_replay());
        app.metric("payonce_redis_hints_total", "seen").await > seen
    })
    .await;
    assert_books_balance(&app.database);
}
