//! A TCP proxy to stand before PostgreSQL or Redis, with a switch for each way in which a network fails.
//!
//! It has a thread and a runtime of its own, so it works from any test, and ends when it is dropped. A switch acts on
//! running and new connections alike, until the next one is thrown.
//!
//! With it a crash "after the commit and before the answer" needs no fault point in the product:
//! `proxy.hold_after_seeing(b"COMMIT")` lets everything through, the commit itself too, but not the news of it.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes moved at a time.
const CHUNK: usize = 16 * 1024;

/// Begins no message of either protocol.
const GARBAGE: &[u8] = b"\0 this is neither PostgreSQL nor Redis\r\n";

enum Mode {
    Delay(Duration),
    Replace(&'static [u8]),
    Hold,
    HoldAfter(Vec<u8>),
    Freeze,
    Cut,
    End,
}

struct Switch {
    mode: Mode,
    /// A connection ends when this has grown since it began, so that no `cut` is missed even if `pass` follows at once.
    cuts: u64,
}

/// The proxy.
pub struct Proxy {
    address: SocketAddr,
    switch: Arc<watch::Sender<Switch>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy before `upstream` (a `SocketAddr` or `host:port`) on a free port of the loopback.
    #[expect(clippy::expect_used, reason = "nobody who needs a proxy can go on without it")]
    pub fn start(upstream: impl Display) -> Self {
        let upstream = upstream.to_string();
        let mode = Mode::Delay(Duration::ZERO);
        let switch = Arc::new(watch::Sender::new(Switch { mode, cuts: 0 }));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket that doesn't block");
        let address = listener.local_addr().expect("the port's number");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let shared = Arc::clone(&switch);
        let run = move || runtime.block_on(accept(listener, &upstream, &shared));
        let thread = Some(std::thread::spawn(run));
        Self {
            address,
            switch,
            thread,
        }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything goes through, first of all what was withheld.
    pub fn pass(&self) {
        self.set(Mode::Delay(Duration::ZERO));
    }

    /// Replies come later by `delay`.
    pub fn delay(&self, delay: Duration) {
        self.set(Mode::Delay(delay));
    }

    /// Replies are withheld until `pass`; what the client says still goes through.
    pub fn hold_replies(&self) {
        self.set(Mode::Hold);
    }

    /// `hold_replies` from the moment that a client says `text`: upstream hears it, and the reply to it is withheld.
    pub fn hold_after_seeing(&self, text: &[u8]) {
        self.set(Mode::HoldAfter(text.to_vec()));
    }

    /// Are replies being withheld? So one learns that the text of `hold_after_seeing` has gone by.
    pub fn holds_replies(&self) -> bool {
        matches!(self.switch.borrow().mode, Mode::Hold)
    }

    /// Replies are swallowed, for ever.
    pub fn drop_replies(&self) {
        self.set(Mode::Replace(b""));
    }

    /// Replies become bytes that make no sense.
    pub fn garbage(&self) {
        self.set(Mode::Replace(GARBAGE));
    }

    /// Nothing moves in either direction, and nothing is closed: a host that hangs.
    pub fn freeze(&self) {
        self.set(Mode::Freeze);
    }

    /// All connections are reset, and new ones are as soon as they are made, until `pass`.
    pub fn cut(&self) {
        self.switch.send_modify(|switch| switch.cuts += 1);
        self.set(Mode::Cut);
    }

    fn set(&self, mode: Mode) {
        self.switch.send_modify(|switch| switch.mode = mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::End);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Connections are tasks of this thread's runtime, and end with it.
#[expect(clippy::expect_used, reason = "as in start")]
async fn accept(listener: std::net::TcpListener, upstream: &str, switch: &Arc<watch::Sender<Switch>>) {
    let listener = TcpListener::from_std(listener).expect("a socket that this runtime can poll");
    let mut watching = switch.subscribe();
    loop {
        tokio::select! {
            _ = watching.wait_for(|switch| matches!(switch.mode, Mode::End)) => return,
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                tokio::spawn(connection(client, upstream.to_owned(), Arc::clone(switch)));
            },
        }
    }
}

async fn connection(mut client: TcpStream, upstream: String, switch: Arc<watch::Sender<Switch>>) {
    let mut watching = switch.subscribe();
    let born = watching.borrow().cuts;
    tokio::select! {
        biased;
        _ = watching.wait_for(|switch| switch.cuts > born || matches!(switch.mode, Mode::Cut)) => {}
        relayed = relay(&mut client, &upstream, &switch) => if relayed.is_ok() { return },
    }
    // Closes with a reset: an orderly end could be taken for upstream's own.
    drop(client.set_zero_linger());
}

async fn relay(client: &mut TcpStream, upstream: &str, switch: &watch::Sender<Switch>) -> io::Result<()> {
    let mut upstream = TcpStream::connect(upstream).await?;
    upstream.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let ((from_client, to_client), (from_upstream, to_upstream)) = (client.split(), upstream.split());
    let requests = pass_requests(from_client, to_upstream, switch);
    let replies = pass_replies(from_upstream, to_client, switch);
    tokio::try_join!(requests, replies).map(drop)
}

async fn pass_requests(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    switch: &watch::Sender<Switch>,
) -> io::Result<()> {
    let mut watching = switch.subscribe();
    let (mut chunk, mut recent) = (Vec::with_capacity(CHUNK), Vec::new());
    loop {
        let ended = from.read_buf(&mut chunk).await? == 0;
        drop(watching.wait_for(|switch| !matches!(switch.mode, Mode::Freeze)).await);
        if ended {
            return to.shutdown().await;
        }
        spring(switch, &mut recent, &chunk);
        to.write_all(&chunk).await?;
        chunk.clear();
    }
}

/// Withholds replies if the text waited for goes by; it may come in pieces. Called before upstream gets to see it, so
/// that no reply can be faster.
fn spring(switch: &watch::Sender<Switch>, recent: &mut Vec<u8>, chunk: &[u8]) {
    switch.send_if_modified(|switch| {
        let Mode::HoldAfter(text) = &switch.mode else {
            recent.clear();
            return false;
        };
        recent.extend_from_slice(chunk);
        let seen = recent.windows(text.len().max(1)).any(|window| window == text);
        if seen {
            recent.clear();
            switch.mode = Mode::Hold;
        } else {
            recent.drain(..recent.len().saturating_sub(text.len()));
        }
        seen
    });
}

async fn pass_replies(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, switch: &watch::Sender<Switch>) -> io::Result<()> {
    let mut watching = switch.subscribe();
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        let ended = from.read_buf(&mut chunk).await? == 0;
        let free = watching.wait_for(|switch| !matches!(switch.mode, Mode::Hold | Mode::Freeze));
        let (delay, reply) = match free.await.map_err(io::Error::other)?.mode {
            Mode::Delay(delay) => (delay, chunk.as_slice()),
            Mode::Replace(bytes) => (Duration::ZERO, bytes),
            _ => (Duration::ZERO, chunk.as_slice()),
        };
        tokio::time::sleep(delay).await;
        if ended {
            return to.shutdown().await;
        }
        to.write_all(reply).await?;
        chunk.clear();
    }
}
