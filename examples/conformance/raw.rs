//! Requests byte for byte, for what no HTTP client would send.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

type Answer = (u16, HeaderMap, Vec<u8>);

/// Sends a request, and reads until the service closes the connection.
pub async fn exchange(address: &str, request: &[u8], patience: Duration) -> Result<Answer> {
    let both = async {
        let mut stream = TcpStream::connect(address).await?;
        // A service may refuse before it has read all of it, and then answers into a connection that it resets.
        let sent = stream.write_all(request).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        if answer.is_empty() {
            sent.and(read)?;
        }
        Ok::<_, Error>(answer)
    };
    let answer = timeout(patience, both).await??;
    parse(&answer).ok_or_else(|| {
        let shown = answer.escape_ascii().to_string();
        Error::new(ErrorKind::InvalidData, format!("no HTTP: {shown:?}"))
    })
}

/// Sends a request and closes the connection at once.
pub async fn send_and_hang_up(address: &str, request: &[u8]) -> Result<()> {
    TcpStream::connect(address).await?.write_all(request).await
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let (head, rest) = answer.split_at_checked(end)?;
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let name: HeaderName = name.parse().ok()?;
        headers.append(name, HeaderValue::from_str(value.trim()).ok()?);
    }
    Some((status.parse().ok()?, headers, rest.get(4..)?.to_vec()))
}
