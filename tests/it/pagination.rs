//! Lists: pages that join without a gap, whatever happens in between.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::client::{data, ids};
use crate::support::{App, Client, assert_books_balance};

/// Reads a list to its end, page by page, and does `between` after each page. The ids, in their order.
async fn read_through(client: &Client, path: &str, limit: usize, mut between: impl AsyncFnMut()) -> Vec<String> {
    let path = format!("{path}{}limit={limit}", if path.contains('?') { '&' } else { '?' });
    let mut page = client.read(&path).await;
    let mut seen = ids(&data(&page));
    while let Some(cursor) = page["next_cursor"].as_str() {
        assert_eq!(data(&page).len(), limit, "only the last page is short");
        between().await;
        page = client.read(&format!("{path}&cursor={cursor}")).await;
        seen.extend(ids(&data(&page)));
    }
    seen
}

/// Makes everything the same age.
fn level_times(app: &App) {
    app.database.run_unguarded(
        "UPDATE transfers SET created_at = '2020-01-01 12:00:00Z'; UPDATE payments SET created_at = '2020-01-01 12:00:00Z';
         UPDATE refunds SET created_at = '2020-01-01 12:00:00Z'; UPDATE accounts SET created_at = '2020-01-01 12:00:00Z'",
    );
}

/// Each of `all` was seen once, and nothing at all twice.
#[track_caller]
fn assert_each_once(seen: &[String], all: &[String]) {
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    for id in seen {
        *times.entry(id).or_default() += 1;
    }
    assert_eq!(times.values().max(), Some(&1), "something was seen twice");
    let lost: Vec<_> = all.iter().filter(|id| !times.contains_key(id)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
}

/// X7: A thousand payments of one instant, in pages of seven, while more are made at the same instant: each is seen once.
/// Without the id as a tie-breaker whole pages are lost or doubled; with an offset every new row shifts the rest.
#[tokio::test]
async fn a_thousand_payments_of_one_instant_are_each_seen_once() {
    let app = App::start().await;
    let (a, b) = (app.open_with("9999.00").await, app.open_with("9999.00").await);
    let mut made = Vec::new();
    for _ in 0..10 {
        let (from_a, from_b) = tokio::join!(
            join_all((0..50).map(|_| app.pay(&a, &b, "1.00"))),
            join_all((0..50).map(|_| app.pay(&b, &a, "1.00")))
        );
        made.extend(from_a.iter().chain(&from_b).map(|reply| reply.created()));
    }
    level_times(&app);
    let mut pages = 0;
    let seen = read_through(&app, "/payments", 7, async || {
        pages += 1;
        if pages % 10 == 0 {
            app.pay(&a, &b, "1.00").await.created();
            level_times(&app);
        }
    })
    .await;
    assert_each_once(&seen, &made);
    assert_eq!(seen.len(), 1000);
    // Payer and payee are two index scans that are merged: the merge must not lose its place either.
    let seen = read_through(&app, &format!("/payments?account_id={a}"), 97, async || {}).await;
    assert_each_once(&seen, &made);
    assert_books_balance(&app.database);
}

/// The same for accounts and refunds.
#[tokio::test]
async fn accounts_and_refunds_of_one_instant_are_each_seen_once() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("99.00").await, app.open_with("99.00").await);
    let paid = app.pay(&payer, &payee, "99.00").await.created();
    let mut accounts = vec![payer, payee];
    let mut refunds = Vec::new();
    for _ in 0..15 {
        accounts.push(app.open("USD").await);
        refunds.push(app.refund(&paid, Some("1.00")).await.created());
    }
    level_times(&app);
    let between = async || {
        app.open("USD").await;
        app.refund(&paid, Some("1.00")).await.created();
        level_times(&app);
    };
    let seen = read_through(&app, "/accounts", 2, between).await;
    assert_each_once(&seen, &accounts);
    let seen = read_through(&app, &format!("/payments/{paid}/refunds"), 2, between).await;
    assert_each_once(&seen, &refunds);
    assert_books_balance(&app.database);
}

/// What no index knows is looked for a bounded way down: a page may end early, even empty, but it never pretends to be the last, and what
/// stands far apart is found all the same, once. Without the way on, the third refund of a year is said not to exist.
#[tokio::test]
async fn what_stands_far_apart_is_found_over_short_pages() {
    let app = App::start().await;
    let (a, b) = (app.open_with("99.00").await, app.open_with("99.00").await);
    let paid = app.pay(&a, &b, "1.00").await.created();
    // Fourteen thousand older ones, from a to b and back; all refunded in whole, but four in part and three not at all.
    app.database.run_unguarded(&format!(
        "INSERT INTO payments (tenant_id, id, payer_account_id, payee_account_id, currency, amount, refunded_amount, reference, created_at)
         SELECT tenant_id, gen_random_uuid(), CASE n % 3 WHEN 0 THEN payee_account_id ELSE payer_account_id END,
             CASE n % 3 WHEN 0 THEN payer_account_id ELSE payee_account_id END, currency, 10,
             CASE WHEN n IN (1, 5002, 9999, 13999) THEN 1 WHEN n IN (2, 7001, 14000) THEN 0 ELSE 10 END,
             'r', created_at - n * interval '1 second'
         FROM payments, generate_series(1, 14000) n WHERE id = '{paid}'"
    ));
    let (part, whole) = (
        "refunded_amount > 0 AND refunded_amount < amount",
        "refunded_amount = amount",
    );
    for (query, condition) in [
        ("status=partially_refunded".to_owned(), part),
        (format!("status=partially_refunded&account_id={a}"), part),
        ("status=partially_refunded&reference=r".to_owned(), part),
        (format!("status=partially_refunded&reference=r&account_id={b}"), part),
        (format!("status=succeeded&account_id={b}"), "refunded_amount = 0"),
        (
            "status=succeeded&created_from=2000-01-01T00:00:00Z".to_owned(),
            "refunded_amount = 0",
        ),
        (format!("status=refunded&account_id={a}"), whole),
    ] {
        let all = app.database.lines(&format!(
            "SELECT id::text AS value FROM payments WHERE {condition} ORDER BY created_at DESC, id DESC"
        ));
        let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = app.read(&format!("/payments?limit=100&{query}{cursor}")).await;
            seen.extend(ids(&data(&page)));
            pages += 1;
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
            if pages == 1 {
                app.pay(&a, &b, "1.00").await.created();
            }
        }
        assert_eq!(seen, all, "{query}");
        let needed = all.len() / 100;
        assert!((needed..=needed + 6).contains(&pages), "{query}: {pages} pages");
    }
}

/// Newest first, on one page and over pages. Without this a list begins with what nobody looks for.
#[tokio::test]
async fn lists_are_newest_first() {
    let app = App::start().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(app.open("USD").await);
    }
    made.reverse();
    assert_eq!(ids(&app.list("/accounts").await), made);
    for limit in 1..=5 {
        assert_eq!(
            read_through(&app, "/accounts", limit, async || {}).await,
            made,
            "{limit}"
        );
    }
}

/// A list is `{"data": […], "next_cursor": …}` and nothing else; `next_cursor` is `null` exactly on the last page, also when
/// that is full. Without this a client asks for one page too few, or for ever.
#[tokio::test]
async fn the_last_page_has_no_cursor() {
    let app = App::start().await;
    assert_eq!(app.read("/accounts").await, json!({"data": [], "next_cursor": null}));
    for _ in 0..4 {
        app.open("USD").await;
    }
    let first = app.read("/accounts?limit=2").await;
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let last = app.read(&format!("/accounts?limit=2&cursor={cursor}")).await;
    assert_eq!((data(&last).len(), &last["next_cursor"]), (2, &Value::Null));
    assert_eq!(app.read("/accounts?limit=4").await["next_cursor"], Value::Null);
    assert_eq!(last.as_object().expect("an object").len(), 2);
}

/// `limit` is 1 to 100 and 20 if it is not said; anything else is refused, not cut. Without this `limit=0` is an endless loop.
#[tokio::test]
async fn a_limit_is_1_to_100() {
    let app = App::start().await;
    let account = app.open_with("200.00").await;
    let other = app.open("USD").await;
    let payments = join_all((0..101).map(|_| app.pay(&account, &other, "1.00"))).await;
    let refunded = payments[0].created();
    for path in [
        "/accounts".to_owned(),
        "/payments".to_owned(),
        format!("/accounts/{account}/entries"),
        format!("/payments/{refunded}/refunds"),
    ] {
        for limit in [
            "0",
            "101",
            "abc",
            "-1",
            "",
            "1.5",
            "1e1",
            "99999999999999999999",
            "%201",
        ] {
            app.get(&format!("{path}?limit={limit}"))
                .await
                .problem(400, "malformed_request");
        }
        app.read(&format!("{path}?limit=1")).await;
        app.read(&format!("{path}?limit=100")).await;
    }
    for (query, length) in [("", 20), ("?limit=1", 1), ("?limit=100", 100)] {
        assert_eq!(app.list(&format!("/payments{query}")).await.len(), length, "{query}");
    }
    assert_books_balance(&app.database);
}

/// A cursor that is garbage, or of another list, is refused. Without this a mixed-up cursor shows a page from the middle of
/// nowhere, and nobody notices what is missing.
#[tokio::test]
async fn a_cursor_fits_only_the_list_it_came_from() {
    let app = App::start().await;
    let (account, other) = (app.open_with("10.00").await, app.open_with("10.00").await);
    let mut paid = Vec::new();
    for _ in 0..2 {
        let id = app.pay(&account, &other, "2.00").await.created();
        app.refund(&id, Some("1.00")).await.created();
        app.refund(&id, Some("0.50")).await.created();
        paid.push(id);
    }
    let lists = [
        "/accounts".to_owned(),
        "/payments".to_owned(),
        format!("/accounts/{account}/entries"),
        format!("/accounts/{other}/entries"),
        format!("/payments/{}/refunds", paid[0]),
        format!("/payments/{}/refunds", paid[1]),
    ];
    for list in &lists {
        let page = app.read(&format!("{list}?limit=1")).await;
        let cursor = page["next_cursor"].as_str().expect("a cursor");
        for place in &lists {
            let reply = app.get(&format!("{place}?limit=1&cursor={cursor}")).await;
            if place == list {
                reply.ok();
            } else {
                reply.problem(400, "malformed_request");
            }
        }
        let (half, longer) = (&cursor[..cursor.len() / 2], format!("{cursor}00"));
        let first = if cursor.starts_with('0') { "1" } else { "0" };
        let changed = format!("{first}{}", &cursor[1..]);
        for garbage in [
            half,
            &longer,
            &changed,
            "",
            "abc",
            "deadbeef",
            "%22",
            "null",
            "0",
            "ü",
            &"f".repeat(56),
        ] {
            app.get(&format!("{list}?cursor={garbage}"))
                .await
                .problem(400, "malformed_request");
        }
    }
    assert_books_balance(&app.database);
}

/// A list has one address, however its id is spelled: a cursor made under one spelling is good under all. Without this a client
/// that takes the id from another system, in capitals, gets a first page and never a second.
#[tokio::test]
async fn a_cursor_is_good_under_every_spelling_of_its_address() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let paid = app.pay(&payer, &payee, "5.00").await.created();
    for _ in 0..2 {
        app.refund(&paid, Some("1.00")).await.created();
    }
    let encoded = |id: &str| {
        id.bytes()
            .map(percent_encoding::percent_encode_byte)
            .collect::<String>()
    };
    let lists = [("accounts", &payer, "entries"), ("payments", &paid, "refunds")];
    for (collection, id, list) in lists {
        let spellings = [
            format!("/{collection}/{id}/{list}"),
            format!("/{collection}/{}/{list}", id.to_uppercase()),
            format!("/{collection}/{}/{list}", encoded(id)),
            format!("/{collection}/{}/{list}", encoded(&id.to_uppercase())),
            format!("/{collection}/{}/{list}", id.replace('-', "%2d")),
            format!("/{}/{id}/{}", encoded(collection), encoded(list)),
        ];
        let first = app.read(&format!("{}?limit=1", spellings[0])).await;
        let second = first["next_cursor"].as_str().expect("a cursor");
        let expected = app.read(&format!("{}?limit=1&cursor={second}", spellings[0])).await;
        for spelling in &spellings {
            let page = app.read(&format!("{spelling}?limit=1")).await;
            assert_eq!(page, first, "{spelling}");
            let page = app.read(&format!("{spelling}?limit=1&cursor={second}")).await;
            assert_eq!(page, expected, "{spelling}");
        }
    }
    for path in ["/%61ccounts", "/%70ayments"] {
        app.read(&format!("{path}?limit=1")).await;
    }
    assert_books_balance(&app.database);
}

/// A cursor is good with another `limit`, and with the filters that it came with. Without this a reader can't slow down.
#[tokio::test]
async fn a_cursor_goes_with_any_limit() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(app.pay(&payer, &payee, "1.00").await.created());
    }
    made.reverse();
    let path = format!("/payments?account_id={payee}&status=succeeded");
    let page = app.read(&format!("{path}&limit=1")).await;
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    let rest = app.list(&format!("{path}&cursor={cursor}")).await;
    assert_eq!(ids(&rest), made[1..]);
    assert_books_balance(&app.database);
}

/// The checksum of a cursor is no secret, so somebody can make one up for an instant that PostgreSQL does not know. It is refused.
/// Without this it is a 500.
#[tokio::test]
async fn a_cursor_from_beyond_all_time_is_refused() {
    let app = App::start().await;
    app.open("USD").await;
    let status_of = async |micros: i64| {
        let cursor = app.database.word(&format!(
            "SELECT encode(place || substr(sha256(uuid_send(tenant_id) || place || '/payments'), 1, 4), 'hex')
             FROM tenants, LATERAL (SELECT int8send({micros}) || uuid_send(gen_random_uuid()) AS place) AS made_up
             WHERE name = 'tenant-a'"
        ));
        app.get(&format!("/payments?cursor={cursor}")).await.status
    };
    assert_eq!(status_of(1_800_000_000_000_000).await, 200, "a cursor like any other");
    for beyond in [
        i64::MIN,
        -8_334_601_228_800_000_000,
        -300_000_000_000_000_000,
        8_210_266_876_799_999_999,
        i64::MAX,
    ] {
        assert_eq!(status_of(beyond).await, 400, "{beyond}");
    }
}
