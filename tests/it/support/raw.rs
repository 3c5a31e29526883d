//! A connection to the service as bytes: for what no HTTP client would send, and for what it would not show.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::app::address_in;
use super::{Client, Reply};

/// A connection on which requests and answers follow each other.
pub struct Raw {
    pub stream: TcpStream,
    received: Vec<u8>,
}

impl Raw {
    pub async fn connect(client: &Client) -> Self {
        let stream = TcpStream::connect(address_in(&format!("{}/", client.base)))
            .await
            .expect("a connection");
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// The next answer; `None` if the connection ends before it. It has a body as long as its `Content-Length` says.
    pub async fn reply(&mut self) -> Option<Reply> {
        let (status, headers) = self.head().await?;
        let length = headers
            .get("content-length")
            .map_or(0, |value| value.to_str().expect("ASCII").parse().expect("a length"));
        while self.received.len() < length {
            self.receive().await?;
        }
        let body = self.received.drain(..length).collect();
        Some(Reply { status, headers, body })
    }

    async fn head(&mut self) -> Option<(u16, HeaderMap)> {
        let end = loop {
            if let Some(end) = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end;
            }
            self.receive().await?;
        };
        let head: Vec<u8> = self.received.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("a head in ASCII");
        let (first, lines) = head.split_once("\r\n").expect("lines");
        let status = first.split(' ').nth(1).expect("a status").parse().expect("a number");
        let headers = lines
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| {
                (
                    HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                    HeaderValue::from_str(value).expect("a value"),
                )
            })
            .collect();
        Some((status, headers))
    }

    /// `None` at the end of the connection, however it came.
    async fn receive(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.received).await;
        read.ok().filter(|length| *length > 0)?;
        Some(())
    }
}
