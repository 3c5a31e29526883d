//! Strangers: a flood of requests without an API key, each with a method, an address and a host of its own. Nobody looks at `/metrics`
//! meanwhile. The memory of the instance must be the same afterwards as after the first of them.

use std::fmt::Write;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::report::Tally;
use crate::stage::Service;

/// Connections of strangers.
const STRANGERS: u64 = 8;

/// Requests that are sent before an answer is read; the service takes as many of a connection in advance.
const AT_ONCE: u64 = 16;

/// Before the memory is looked at for the first time, and between that and the second.
const WARM_UP: u64 = 100_000;
const FLOOD: u64 = 400_000;

/// Kept apart: what one request leaves behind for good is at least a sample of a histogram, of 17 bytes, so 6.6 MiB in all. What the
/// allocator and the samples of the last seconds may take on top is well below.
const MOST_GROWTH_KIB: u64 = 4 * 1024;

/// Floods the first instance; growth is a violation.
pub async fn flood(service: &Service, tally: &Tally) -> Outcome {
    let url = service.url(0);
    let address = url.trim_start_matches("http://");
    send(address, 0..WARM_UP).await?;
    let before = resident_kib(service)?;
    send(address, WARM_UP..WARM_UP + FLOOD).await?;
    let after = resident_kib(service)?;
    println!("strangers: {FLOOD} requests took the memory of an instance from {before} to {after} KiB");
    if after > before + MOST_GROWTH_KIB {
        tally.violation(format!(
            "{FLOOD} requests of strangers took the memory of an instance from {before} to {after} KiB"
        ));
    }
    Ok(())
}

fn resident_kib(service: &Service) -> Outcome<u64> {
    let resident = service.resident_kib();
    Ok(*resident.first().ok_or("the first instance does not run")?)
}

async fn send(address: &str, numbers: std::ops::Range<u64>) -> Outcome {
    let mut strangers = JoinSet::new();
    let share = (numbers.end - numbers.start) / STRANGERS;
    for stranger in 0..STRANGERS {
        let first = numbers.start + stranger * share;
        let stream = TcpStream::connect(address).await?;
        strangers.spawn(make_up(stream, first..first + share));
    }
    while let Some(ended) = strangers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Each second request has a method that nobody knows, the others an address where nothing is.
async fn make_up(mut stream: TcpStream, numbers: std::ops::Range<u64>) -> Outcome {
    let mut received = Vec::new();
    for first in numbers.clone().step_by(usize::try_from(AT_ONCE)?) {
        let some = first..numbers.end.min(first + AT_ONCE);
        let mut requests = String::new();
        for number in some.clone() {
            let (method, path) = if number.is_multiple_of(2) {
                (format!("M{number}"), "/payments".to_owned())
            } else {
                ("GET".to_owned(), format!("/nowhere/{number}"))
            };
            write!(requests, "{method} {path} HTTP/1.1\r\nHost: host-{number}\r\n\r\n")?;
        }
        stream.write_all(requests.as_bytes()).await?;
        // An answer to each: its status line is all that is looked at.
        let expected = usize::try_from(some.end - some.start)?;
        received.clear();
        while count(&received, b"HTTP/1.1 40") < expected || !received.ends_with(b"}") {
            if stream.read_buf(&mut received).await? == 0 {
                return Err("the connection of a stranger ended".into());
            }
        }
    }
    Ok(())
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}
