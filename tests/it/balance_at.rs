//! `/accounts/{id}/balance`: what an account held at an instant.

use serde_json::json;
use uuid::Uuid;

use crate::support::app::until;
use crate::support::{App, assert_books_balance};

/// An account with 10.00 from 10:00 UTC on and 15.00 from 12:00 on, on the first of January 2020.
async fn account_with_a_past(app: &App) -> String {
    let account = app.open("USD").await;
    for (amount, hour) in [("10.00", "10"), ("5.00", "12")] {
        let id = app.deposit(&account, amount).await.created();
        app.database.run_unguarded(&format!(
            "UPDATE transfers SET created_at = '2020-01-01 {hour}:00:00Z' WHERE id = '{id}'"
        ));
    }
    account
}

/// The database's time.
fn now(app: &App) -> String {
    app.database
        .word(r#"SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"#)
}

/// Before the first entry it is zero, between two it is what the earlier one left, and an entry counts from its own
/// instant on. Without this a month-end balance is off by the last payment.
#[tokio::test]
async fn the_balance_at_an_instant_is_that_after_the_last_entry_until_then() {
    let app = App::start().await;
    let account = account_with_a_past(&app).await;
    for (at, balance) in [
        ("1970-01-01T00:00:00Z", "0.00"),
        ("2020-01-01T09:59:59.999999Z", "0.00"),
        ("2020-01-01T10:00:00Z", "10.00"),
        ("2020-01-01T11:30:00Z", "10.00"),
        ("2020-01-01T11:59:59.999999Z", "10.00"),
        ("2020-01-01T12:00:00Z", "15.00"),
        ("2020-01-01T12:00:00.000001Z", "15.00"),
        ("2026-06-30T23:59:59Z", "15.00"),
    ] {
        let shown = app.read(&format!("/accounts/{account}/balance?at={at}")).await;
        let expected = json!({"account_id": account, "balance": balance, "currency": "USD", "at": at});
        assert_eq!(shown, expected);
    }
    assert_books_balance(&app.database);
}

/// Of a statement of any length, at each instant at which something happened, just before and just after; some entries share their
/// instant, as those of one batch did. The search halves what is left: one step too few, and every other balance is wrong.
#[tokio::test]
async fn the_balance_is_right_at_every_instant_of_a_statement() {
    let app = App::start().await;
    let account = app.open_with("1.00").await;
    for length in [1, 2, 3, 7, 8, 9, 40] {
        // Entry n is made in minute n / 2 and leaves n dollars.
        app.database.run_unguarded(&format!(
            "DELETE FROM transfers WHERE debit_account_id = '{account}';
             UPDATE transfers SET created_at = '2019-12-31 00:00:00Z';
             INSERT INTO transfers (tenant_id, id, kind, debit_account_id, credit_account_id, currency, amount,
                 debit_balance_after, credit_balance_after, debit_entry_no, credit_entry_no, created_at)
             SELECT tenant_id, gen_random_uuid(), 'withdrawal', credit_account_id, debit_account_id, 'USD', 1,
                 n, 0, n, n, '2020-01-01 00:00:00Z'::timestamptz + n / 2 * interval '1 minute'
             FROM transfers, generate_series(2, {length}) n WHERE credit_account_id = '{account}'"
        ));
        for minute in 1..=length / 2 {
            let last_of = |minute: i32| (2 * minute + 1).min(length);
            for (second, before) in [("59.999999", minute - 1), ("00", minute), ("00.000001", minute)] {
                let at = format!(
                    "2020-01-01T00:{:02}:{second}Z",
                    if second == "59.999999" { minute - 1 } else { minute }
                );
                let shown = app.read(&format!("/accounts/{account}/balance?at={at}")).await;
                assert_eq!(
                    shown["balance"],
                    format!("{}.00", last_of(before)),
                    "{length} entries, at {at}"
                );
            }
        }
    }
}

/// An offset counts, whether its plus sign is percent-encoded or arrives as the space it means in a query. Without this
/// a caller in Berlin reads the balance of two hours later.
#[tokio::test]
async fn an_instant_may_have_any_offset() {
    let app = App::start().await;
    let account = account_with_a_past(&app).await;
    for (at, utc, balance) in [
        ("2020-01-01T12:00:00%2B02:00", "2020-01-01T10:00:00Z", "10.00"),
        ("2020-01-01T12:00:00+02:00", "2020-01-01T10:00:00Z", "10.00"),
        ("2020-01-01T11:59:59%2B02:00", "2020-01-01T09:59:59Z", "0.00"),
        ("2020-01-01T06:30:00-05:30", "2020-01-01T12:00:00Z", "15.00"),
        ("2020-01-01t12:00:00z", "2020-01-01T12:00:00Z", "15.00"),
    ] {
        let shown = app.read(&format!("/accounts/{account}/balance?at={at}")).await;
        assert_eq!(
            (&shown["at"], &shown["balance"]),
            (&json!(utc), &json!(balance)),
            "{at}"
        );
    }
}

/// Without an instant it is the newest balance, as of the last entry (or of the opening, if there is none): an instant of which all is
/// known. Without this `at` is a time to which an entry may still be added.
#[tokio::test]
async fn without_an_instant_it_is_the_newest_balance_and_the_time_of_the_last_entry() {
    let app = App::start().await;
    let account = app.open("USD").await;
    let shown = app.read(&format!("/accounts/{account}/balance")).await;
    let opened = app.read(&format!("/accounts/{account}")).await;
    assert_eq!(
        (&shown["balance"], &shown["at"]),
        (&json!("0.00"), &opened["created_at"])
    );
    let deposit = app.deposit(&account, "10.00").await.json();
    let newest = app.read(&format!("/accounts/{account}/balance")).await;
    assert_eq!(
        (&newest["balance"], &newest["at"]),
        (&json!("10.00"), &deposit["created_at"])
    );
    for told in [&shown, &newest] {
        let at = told["at"].as_str().expect("at");
        assert_eq!(&app.read(&format!("/accounts/{account}/balance?at={at}")).await, told);
    }
    assert_books_balance(&app.database);
}

/// Of the future nothing is known, whatever a clock that is a little ahead asks for: the answer is the newest balance, and `at` says of when
/// that is. Without this the same instant has another balance when it has come.
#[tokio::test]
async fn an_instant_that_has_not_come_is_answered_with_the_newest_balance() {
    let app = App::start().await;
    let account = app.open_with("10.00").await;
    let newest = app.read(&format!("/accounts/{account}/balance")).await;
    for at in ["2999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999999Z"] {
        assert_eq!(app.read(&format!("/accounts/{account}/balance?at={at}")).await, newest);
    }
    app.deposit(&account, "5.00").await.created();
    let told = newest["at"].as_str().expect("at");
    assert_eq!(
        app.read(&format!("/accounts/{account}/balance?at={told}")).await,
        newest
    );
}

/// A payment is stamped when it has its locks and seen when it commits. In between its instant passes, and the balance of that instant is
/// not known: the question waits, and is answered 503 if that takes too long. Without this it is answered twice, differently.
#[tokio::test]
async fn an_instant_to_which_a_payment_may_still_be_added_waits_for_it() {
    let patient = App::setup().flag("--lock-timeout=1s").flag("--statement-timeout=60s");
    let app = patient.flag("--answer-timeout=60s").start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    app.database
        .fault_on_payment("PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock(1);");
    let held = app.database.hold("SELECT pg_advisory_lock(1)");
    let paying = tokio::spawn({
        let (client, payer, payee) = (app.client.clone(), payer.clone(), payee.clone());
        async move { client.pay(&payer, &payee, "30.00").await }
    });
    until("the payment to be stamped", || app.database.waiting() == 1).await;
    let now = now(&app);
    let at = format!("/accounts/{payer}/balance?at={now}");
    let unknown = app.get(&at).await;
    unknown.problem(503, "unavailable");
    assert!(unknown.header("Retry-After").is_some());
    // What has been settled is known all the same: the newest balance, and each instant up to it.
    let newest = app.read(&format!("/accounts/{payer}/balance")).await;
    assert_eq!(newest["balance"], "100.00");
    let told = format!("/accounts/{payer}/balance?at={}", newest["at"].as_str().expect("at"));
    assert_eq!(app.read(&told).await, newest);

    let (waited, paid) = tokio::join!(app.get(&at), async {
        until("the question to wait", || app.database.waiting() == 2).await;
        drop(held);
        paying.await.unwrap()
    });
    paid.created();
    let expected = json!({"account_id": payer, "balance": "70.00", "currency": "USD", "at": now});
    assert_eq!(waited.ok(), expected);
    assert_eq!(app.read(&at).await, expected);
    assert_eq!(app.read(&told).await, newest);
    assert_books_balance(&app.database);
}

/// Whatever is asked while money moves, about now or about the instant that the last answer named: who asks again gets the same answer. Without this
/// two reports of one month end differ.
#[tokio::test]
async fn a_balance_that_was_told_is_told_again() {
    let app = App::setup().instances(2).start().await;
    let (one, two) = (app.open_with("1000.00").await, app.open_with("1000.00").await);
    let paying = async |number: usize| {
        for amount in 1..=30 {
            let (payer, payee) = if number == 0 { (&one, &two) } else { (&two, &one) };
            app.on(number)
                .pay(payer, payee, &format!("{amount}.00"))
                .await
                .created();
        }
    };
    let asking = async |number: usize| {
        let mut told = Vec::new();
        for _ in 0..60 {
            let client = app.on(number % 2);
            told.push(client.read(&format!("/accounts/{one}/balance")).await);
            let now = now(&app);
            let reply = client.get(&format!("/accounts/{one}/balance?at={now}")).await;
            if reply.status == 200 {
                told.push(reply.json());
            } else {
                reply.problem(503, "unavailable");
            }
        }
        told
    };
    let ((), (), first, second) = tokio::join!(paying(0), paying(1), asking(0), asking(1));
    assert!(first.len() + second.len() > 120, "most questions are answered");
    for told in first.iter().chain(&second) {
        let at = told["at"].as_str().expect("at");
        assert_eq!(&app.read(&format!("/accounts/{one}/balance?at={at}")).await, told);
    }
    assert_books_balance(&app.database);
}

/// What is no instant, or has no offset, is refused and not guessed at. Without this "10:00" means something else in each time zone.
#[tokio::test]
async fn an_instant_without_an_offset_is_refused() {
    let app = App::start().await;
    let account = app.open("USD").await;
    for at in [
        "",
        "now",
        "yesterday",
        "2020-01-01",
        "2020-01-01T10:00:00",
        "2020-01-01T10:00Z",
        "2020-01-01%2010:00:00Z",
        "2020-02-30T10:00:00Z",
        "2020-01-01T25:00:00Z",
        "1577872800",
        "2020-01-01T10:00:00%2B99:00",
        "99999-01-01T10:00:00Z",
        "2020-01-01T10:00:00Z%00",
        "2020-01-01T10:00:00%E2%88%9202:00",
        "2020-01-01T10:00:00%2B0200",
        "2020-01-01T10:00:00%2B02",
        "2020-01-01T10:00:00%2B24:00",
        "2020-01-01T24:00:00Z",
        "2020-01-01T10:00:00.Z",
    ] {
        app.get(&format!("/accounts/{account}/balance?at={at}"))
            .await
            .problem(400, "malformed_request");
    }
    app.get(&format!("/accounts/{account}/balance?on=2020-01-01"))
        .await
        .problem(400, "unknown_parameter");
}

/// The first and the last instant that RFC 3339 can write in UTC are answered, like any other. Without this a date picker that
/// sends "the beginning of time" alarms the operators.
#[tokio::test]
async fn an_extreme_instant_is_no_failure() {
    let app = App::start().await;
    let account = app.open("USD").await;
    let deposit = app.deposit(&account, "1.00").await.json();
    // What has not come yet is answered with what is known last.
    let newest = deposit["created_at"].as_str().expect("created_at");
    for (at, utc, balance) in [
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0.00"),
        ("0001-01-01T23:59:00%2B23:59", "0001-01-01T00:00:00Z", "0.00"),
        ("0000-12-31T00:01:00-23:59", "0001-01-01T00:00:00Z", "0.00"),
        ("9999-12-31T23:59:59.999999Z", newest, "1.00"),
        ("9999-12-31T23:59:59.999999999Z", newest, "1.00"),
    ] {
        let shown = app.read(&format!("/accounts/{account}/balance?at={at}")).await;
        assert_eq!(
            (&shown["at"], &shown["balance"]),
            (&json!(utc), &json!(balance)),
            "{at}"
        );
    }
    assert_books_balance(&app.database);
}

/// An instant that is in year 0 or 10000 once it is in UTC is refused, in every parameter. Without this the answer has an `at`
/// of `-0001-12-31T00:01:00Z`, which no reader of RFC 3339 understands.
#[tokio::test]
async fn an_instant_that_utc_can_not_write_in_four_digits_is_refused() {
    let app = App::start().await;
    let account = app.open("USD").await;
    let balance = format!("/accounts/{account}/balance?at=");
    for address in [&balance, "/payments?created_from=", "/payments?created_to="] {
        for at in [
            "0000-01-01T00:00:00Z",
            "0000-01-01T00:00:00%2B23:59",
            "0000-12-31T23:59:59Z",
            "0001-01-01T00:00:00%2B00:01",
            "9999-12-31T23:59:59-00:01",
            "9999-12-31T23:59:59-23:59",
        ] {
            let problem = app
                .get(&format!("{address}{at}"))
                .await
                .problem(400, "malformed_request");
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("years 0001 to 9999 in UTC"), "{address}{at}: {detail}");
        }
    }
}

/// Second 60 is the last one of a month in UTC, where leap seconds are, or refused: RFC 3339 has no other. Without this a typing
/// error is taken for the minute after it.
#[tokio::test]
async fn second_60_is_at_the_end_of_a_month_or_refused() {
    let app = App::start().await;
    let account = app.open("USD").await;
    for at in [
        "2016-12-31T23:59:60Z",
        "2015-06-30T23:59:60Z",
        "2024-02-29T23:59:60.5Z",
        "2017-01-01T00:59:60%2B01:00",
        "2016-12-31T15:59:60-08:00",
    ] {
        app.read(&format!("/accounts/{account}/balance?at={at}")).await;
    }
    for at in [
        "2016-12-31T23:58:60Z",
        "2016-12-30T23:59:60Z",
        "2023-02-29T23:59:60Z",
        "2024-02-28T23:59:60Z",
        "2016-12-31T12:00:60Z",
        "2016-12-31T23:59:60%2B01:00",
        "2016-12-31T23:59:61Z",
    ] {
        let problem = app.get(&format!("/accounts/{account}/balance?at={at}")).await;
        problem.problem(400, "malformed_request");
    }
}

/// The balance of an account that is not there is 404, not zero.
#[tokio::test]
async fn the_balance_of_an_unknown_account_is_not_found() {
    let app = App::start().await;
    app.get(&format!("/accounts/{}/balance", Uuid::now_v7()))
        .await
        .problem(404, "not_found");
}
