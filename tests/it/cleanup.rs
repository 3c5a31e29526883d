//! The clean-up: in small batches, past whoever is busy, as often and as many at once as anybody likes.

use payonce::commands::cleanup::{Cleaned, clean_up};

use crate::support::database::settings;
use crate::support::{App, TestDatabase, assert_books_balance, new_key};

const ERASED: &str = "SELECT count(*) FROM idempotency_keys WHERE erased_at IS NOT NULL AND response_body IS NULL";
const ALL: &str = "SELECT count(*) FROM idempotency_keys";

/// So many keys, whose window ended an hour ago, and whose tombstone ends in so many hours.
fn plant(database: &TestDatabase, prefix: &str, count: u32, tombstone_ends_in: i32) {
    database.run_unguarded(&format!(
        "INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, response_code, response_body, created_at, expires_at, forget_at)
         SELECT gen_random_uuid(), '{prefix}' || n, sha256('r'), '/payments', 402, '{{}}',
                now() - interval '40 hours', now() - interval '16 hours', now() + interval '{tombstone_ends_in} hours'
         FROM generate_series(1, {count}) n"
    ));
}

fn clean(database: &TestDatabase) -> Cleaned {
    clean_up(&settings(&database.url)).unwrap()
}

/// One statement over a million keys holds its locks for minutes; batches do not. All is done in the end, and a second run finds nothing.
#[test]
fn it_erases_and_forgets_in_batches_until_nothing_is_left_to_do() {
    let database = TestDatabase::new();
    plant(&database, "tombstone", 1200, 10);
    plant(&database, "gone", 700, -1);
    let cleaned = clean(&database);
    // What is past both of its times is erased first and forgotten then.
    assert_eq!(
        cleaned,
        Cleaned {
            erased: 1900,
            forgotten: 700
        }
    );
    assert_eq!((database.number(ERASED), database.number(ALL)), (1200, 1200));
    assert_eq!(clean(&database), Cleaned::default());
}

/// A live key is nobody's to touch, and a tombstone stands for its whole time.
#[tokio::test]
async fn it_touches_nothing_before_its_time() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "10.00").await;
    app.age(23);
    assert_eq!(clean(&app.database), Cleaned::default());
    assert_eq!(app.pay_under(&key, &payer, &payee, "10.00").await.body, first.body);
    app.age(2);
    let all = usize::try_from(app.database.number(ALL)).unwrap();
    assert_eq!(
        clean(&app.database),
        Cleaned {
            erased: all,
            forgotten: 0
        }
    );
    app.age(90 * 24 - 3);
    assert_eq!(clean(&app.database), Cleaned::default());
    app.age(2);
    assert_eq!(
        clean(&app.database),
        Cleaned {
            erased: 0,
            forgotten: all
        }
    );
    assert_eq!(app.database.number(ALL), 0);
    assert_books_balance(&app.database);
}

/// A key that a request has just locked must not make the clean-up wait, nor the other way round.
#[test]
fn it_steps_over_a_row_that_somebody_has_locked() {
    let database = TestDatabase::new();
    plant(&database, "tombstone", 20, 10);
    plant(&database, "gone", 20, -1);
    let held = database.hold("SELECT FROM idempotency_keys WHERE key IN ('tombstone7', 'gone7') FOR UPDATE");
    assert_eq!(
        clean(&database),
        Cleaned {
            erased: 38,
            forgotten: 19
        }
    );
    drop(held);
    assert_eq!(
        clean(&database),
        Cleaned {
            erased: 2,
            forgotten: 1
        }
    );
    assert_eq!((database.number(ERASED), database.number(ALL)), (20, 20));
}

/// Every instance runs one. They share the work; none of it is done twice, and none fails.
#[test]
fn several_at_once_share_the_work() {
    let database = TestDatabase::new();
    plant(&database, "tombstone", 3000, 10);
    plant(&database, "gone", 3000, -1);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let settings = settings(&database.url);
            std::thread::spawn(move || clean_up(&settings).unwrap())
        })
        .collect();
    let mut sum = Cleaned::default();
    for thread in threads {
        let cleaned = thread.join().unwrap();
        sum.erased += cleaned.erased;
        sum.forgotten += cleaned.forgotten;
    }
    let rest = clean(&database);
    assert_eq!((sum.erased + rest.erased, sum.forgotten + rest.forgotten), (6000, 3000));
    assert_eq!((database.number(ERASED), database.number(ALL)), (3000, 3000));
}

/// Cut off in the middle it has done whole batches, and the next one goes on from there.
#[test]
fn one_that_fails_in_the_middle_is_made_up_for_by_the_next() {
    let database = TestDatabase::new();
    plant(&database, "tombstone", 1200, 10);
    database.run(
        "CREATE SEQUENCE done; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('done') = 700 THEN RAISE 'planted'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER fail BEFORE UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION fail()",
    );
    clean_up(&settings(&database.url)).unwrap_err();
    assert_eq!(database.number(ERASED), 500);
    assert_eq!(
        clean(&database),
        Cleaned {
            erased: 700,
            forgotten: 0
        }
    );
}

/// The command says what it has done.
#[tokio::test]
async fn the_command_says_what_it_has_done() {
    let app = App::start().await;
    plant(&app.database, "tombstone", 3, 10);
    plant(&app.database, "gone", 2, -1);
    let (status, out, error) = app.cli(&["cleanup"]);
    assert_eq!((status, error.as_str()), (0, ""));
    assert_eq!(out, "5 stored responses erased, 2 keys forgotten\n");
    assert_eq!(app.cli(&["cleanup"]).1, "0 stored responses erased, 0 keys forgotten\n");
}

/// Both queues of the clean-up are read off an index, whatever the table holds besides.
#[test]
fn it_finds_its_work_by_index() {
    let database = TestDatabase::new();
    plant(&database, "tombstone", 50, 10);
    database.run_unguarded(
        "INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, response_code, response_body, created_at, expires_at, forget_at)
         SELECT gen_random_uuid(), 'live', sha256('r'), '/payments', 402, '{}', now(), now() + interval '1 day', now() + interval '9 days'
         FROM generate_series(1, 20000)",
    );
    database.run("VACUUM ANALYZE idempotency_keys");
    for (condition, order, index) in [
        (
            "erased_at IS NULL AND expires_at <= now()",
            "expires_at",
            "idempotency_keys_to_erase",
        ),
        (
            "erased_at IS NOT NULL AND forget_at <= now()",
            "forget_at",
            "idempotency_keys_to_forget",
        ),
    ] {
        let source = std::fs::read_to_string("src/storage/idempotency_keys.rs").unwrap();
        let asked = format!("SELECT tenant_id, key FROM idempotency_keys WHERE {condition}");
        assert!(source.contains(&asked), "the source asks something else than {asked:?}");
        database.run(
            "CREATE OR REPLACE FUNCTION plan(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
             BEGIN RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || statement; END $$",
        );
        let plan = database.lines(&format!(
            "SELECT plan AS value FROM plan('{asked} ORDER BY {order} LIMIT 500 FOR UPDATE SKIP LOCKED') plan"
        ));
        assert!(plan.iter().any(|line| line.contains(index)), "{plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("Seq Scan")), "{plan:#?}");
    }
}
