//! Proves the deadlines of a connection, on a clock that the test moves.

use std::future::poll_fn;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::{advance, timeout};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A byte a second: the head is never whole, and the connection ends all the same. Without it a thousand such clients leave no
/// connection for anybody.
#[tokio::test(start_paused = true)]
async fn a_head_that_dribbles_ends_in_time() {
    let (mut client, server) = duplex(1024);
    let mut socket = Socket::new(server);
    let begun = Instant::now();
    let mut byte = [0];
    loop {
        client.write_all(b"G").await.unwrap();
        if socket.read(&mut byte).await.unwrap() == 0 {
            break;
        }
        assert!(begun.elapsed() <= HEAD_TIMEOUT, "{:?}", begun.elapsed());
        advance(SECOND).await;
    }
    assert!(begun.elapsed() >= HEAD_TIMEOUT, "{:?}", begun.elapsed());
}

/// The same for one that sends a byte and then nothing, and for each later head on the connection.
#[tokio::test(start_paused = true)]
async fn every_head_has_its_own_time() {
    let (mut client, server) = duplex(1024);
    let mut socket = Socket::new(server);
    let mut byte = [0];
    for _ in 0..3 {
        client.write_all(b"G").await.unwrap();
        assert_eq!(socket.read(&mut byte).await.unwrap(), 1);
        advance(HEAD_TIMEOUT.checked_sub(SECOND).unwrap()).await;
        socket.activity.request_begins();
        advance(HEAD_TIMEOUT * 3).await;
        socket.activity.request_ends();
    }
    client.write_all(b"G").await.unwrap();
    let begun = Instant::now();
    assert_eq!(socket.read(&mut byte).await.unwrap(), 1);
    assert_eq!(socket.read(&mut byte).await.unwrap(), 0, "the end of the stream");
    assert_eq!(begun.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
}

/// A body has a time limit of its own, and a client that thinks between two requests is idle: neither is a slow head. Without it
/// payments are cut off that did nothing wrong.
#[tokio::test(start_paused = true)]
async fn a_body_and_a_pause_are_no_slow_heads() {
    let (mut client, server) = duplex(1024);
    let mut socket = Socket::new(server);
    let mut byte = [0];
    assert!(timeout(HEAD_TIMEOUT * 2, socket.read(&mut byte)).await.is_err(), "idle");
    client.write_all(b"GB").await.unwrap();
    assert_eq!(socket.read(&mut byte).await.unwrap(), 1);
    socket.activity.request_begins();
    advance(HEAD_TIMEOUT * 2).await;
    assert_eq!(socket.read(&mut byte).await.unwrap(), 1, "of the body");
    assert!(timeout(HEAD_TIMEOUT * 2, socket.read(&mut byte)).await.is_err());
}

/// Who does not read what was asked for is let go. Without it an answer stays in memory for as long as a client likes.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_let_go() {
    let (_client, server) = duplex(10);
    let mut socket = Socket::new(server);
    let begun = Instant::now();
    let error = socket.write_all(&[0; 100]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed().as_secs(), TAKE_TIMEOUT.as_secs());
}

/// A byte now and then is no reading. Without it one byte in half a minute keeps a megabyte.
#[tokio::test(start_paused = true)]
async fn a_client_that_sips_is_let_go() {
    let (mut client, server) = duplex(10);
    let mut socket = Socket::new(server);
    let sipping = tokio::spawn(async move {
        while client.read_u8().await.is_ok() {
            tokio::time::sleep(TAKE_TIMEOUT / 2).await;
        }
    });
    let error = socket.write_all(&[0; 100]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    sipping.abort();
}

/// Each answer has its own time; slow is not wrong.
#[tokio::test(start_paused = true)]
async fn every_answer_has_its_own_time() {
    let (mut client, server) = duplex(10);
    let mut socket = Socket::new(server);
    let reading = tokio::spawn(async move {
        let mut bytes = [0; 10];
        for _ in 0..8 {
            tokio::time::sleep(TAKE_TIMEOUT / 4).await;
            client.read_exact(&mut bytes).await.unwrap();
        }
    });
    for _ in 0..4 {
        socket.write_all(&[0; 20]).await.unwrap();
        poll_fn(|context| Pin::new(&mut socket).poll_flush(context))
            .await
            .unwrap();
    }
    reading.await.unwrap();
}
