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

    /// The head of a `POST` by this client; `more` are further lines, each with its end.
    pub fn post_head(client: &Client, path: &str, key: &str, more: &str) -> String {
        format!(
            "POST {path} HTTP/1.1\r\nHost: payonce\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\n{more}\r\n",
            client.api_key
        )
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

    /// The next answer, of which only the head is there: to a `HEAD`.
    pub async fn head_reply(&mut self) -> Option<Reply> {
        let (status, headers) = self.head().await?;
        Some(Reply {
            status,
            headers,
            body: Vec::new(),
        })
    }

    /// All that comes until the other side closes.
    pub async fn rest(mut self) -> Vec<u8> {
        while self.receive().await.is_some() {}
        self.received
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
