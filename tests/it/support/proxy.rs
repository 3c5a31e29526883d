//! A TCP proxy to stand before PostgreSQL or Redis, with a switch for each way in which a network fails.
//!
//! It has a thread and a runtime of its own, so it works from any test, and ends when it is dropped. A switch acts on
//! running and new connections alike, until the next one is thrown.
//!
//! With it a crash "after the commit and before the answer" needs no fault point in the product:
//! `proxy.hold_after_seeing(b"COMMIT")` lets everything through, the commit itself too, but not the news of it. And
//! `stop_before(n)` and `stop_after(n)` stop a transaction at any boundary between two of its statements. And
//! `swallow_notifications()` makes it a pooler in transaction mode, as far as `LISTEN` goes.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// With this version of the protocol, in what it says first, a client opens its session.
const PROTOCOL_3: [u8; 2] = [0, 3];

/// Most bytes of what PostgreSQL lets a client say before its session. What is longer is another protocol, or encrypted.
const OPENING_MAX: usize = 10_000;

enum Mode {
    Delay(Duration),
    Replace(&'static [u8]),
    SwallowNotifications,
    Hold,
    HoldAfter(Vec<u8>),
    StopBefore(usize),
    StopAfter(usize),
    /// The connection of this client stands still; `there`: the statement has come as far as it shall.
    Stopped {
        client: SocketAddr,
        there: bool,
    },
    Freeze,
    Cut,
    End,
}

struct Switch {
    mode: Mode,
    /// A connection ends when this has grown since it began, so that no `cut` is missed even if `pass` follows at once.
    cuts: u64,
    /// How often it was thrown. A transaction that had begun before the last time is not the one to be stopped.
    throws: u64,
    /// How many statements the last transaction had that came to its commit.
    statements: usize,
}

impl Switch {
    fn has_stopped(&self, connection: SocketAddr) -> bool {
        matches!(self.mode, Mode::Stopped { client, .. } if client == connection)
    }

    /// The statement after which this connection is stopped is executed.
    fn executed(&mut self, connection: SocketAddr) -> bool {
        match &mut self.mode {
            Mode::Stopped { client, there } if *client == connection => !std::mem::replace(there, true),
            _ => false,
        }
    }
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
        let switch = Arc::new(watch::Sender::new(Switch {
            mode: Mode::Delay(Duration::ZERO),
            cuts: 0,
            throws: 0,
            statements: 0,
        }));
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

    /// The next transaction that begins is stopped before its statement `number` gets to PostgreSQL; the first one is its
    /// `BEGIN`. Everything else goes through, first of all what was withheld.
    pub fn stop_before(&self, number: usize) {
        self.set(Mode::StopBefore(number));
    }

    /// The same, but PostgreSQL executes the statement, and only the reply is withheld.
    pub fn stop_after(&self, number: usize) {
        self.set(Mode::StopAfter(number));
    }

    /// Has a transaction come to where `stop_before` or `stop_after` stops it?
    pub fn has_stopped_it(&self) -> bool {
        matches!(self.switch.borrow().mode, Mode::Stopped { there: true, .. })
    }

    /// How many statements the last committed transaction had, from `BEGIN` to `COMMIT`.
    pub fn statements(&self) -> usize {
        self.switch.borrow().statements
    }

    /// Replies are swallowed, for ever.
    pub fn drop_replies(&self) {
        self.set(Mode::Replace(b""));
    }

    /// Replies become bytes that make no sense.
    pub fn garbage(&self) {
        self.set(Mode::Replace(GARBAGE));
    }

    /// What PostgreSQL says unasked is swallowed, as a pooler in transaction mode does: only as long as a statement is under way
    /// does it know whom to tell. For connections that are made from now on.
    pub fn swallow_notifications(&self) {
        self.set(Mode::SwallowNotifications);
    }

    /// Nothing moves in either direction, and nothing is closed: a host that hangs.
    pub fn freeze(&self) {
        self.set(Mode::Freeze);
    }

    /// All connections are reset, and new ones go through: a line that was down for a moment.
    pub fn reset(&self) {
        self.switch.send_modify(|switch| switch.cuts += 1);
        self.pass();
    }

    /// All connections are reset, and new ones are as soon as they are made, until `pass`.
    pub fn cut(&self) {
        self.switch.send_modify(|switch| switch.cuts += 1);
        self.set(Mode::Cut);
    }

    fn set(&self, mode: Mode) {
        self.switch.send_modify(|switch| {
            switch.mode = mode;
            switch.throws += 1;
        });
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
    let address = client.peer_addr()?;
    let mut upstream = TcpStream::connect(upstream).await?;
    upstream.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let ((from_client, to_client), (from_upstream, to_upstream)) = (client.split(), upstream.split());
    let asked = AtomicBool::new(false);
    let requests = pass_requests(from_client, to_upstream, switch, address, &asked);
    let replies = pass_replies(from_upstream, to_client, switch, address, &asked);
    tokio::try_join!(requests, replies).map(drop)
}

async fn pass_requests(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    switch: &watch::Sender<Switch>,
    client: SocketAddr,
    asked: &AtomicBool,
) -> io::Result<()> {
    let mut watching = switch.subscribe();
    let (mut chunk, mut recent) = (Vec::with_capacity(CHUNK), Vec::new());
    let mut transaction = Transaction::default();
    loop {
        let ended = from.read_buf(&mut chunk).await? == 0;
        let stopped = transaction.stops_before(&chunk, switch, client);
        let held = |switch: &Switch| matches!(switch.mode, Mode::Freeze) || stopped && switch.has_stopped(client);
        drop(watching.wait_for(|switch| !held(switch)).await);
        if ended {
            return to.shutdown().await;
        }
        spring(switch, &mut recent, &chunk);
        asked.store(true, Ordering::SeqCst);
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

async fn pass_replies(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    switch: &watch::Sender<Switch>,
    client: SocketAddr,
    asked: &AtomicBool,
) -> io::Result<()> {
    let mut watching = switch.subscribe();
    let mut pooler = matches!(watching.borrow().mode, Mode::SwallowNotifications).then(Pooler::default);
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        let ended = from.read_buf(&mut chunk).await? == 0;
        if is_ready_for_query(&chunk) {
            switch.send_if_modified(|switch| switch.executed(client));
        }
        if let Some(pooler) = &mut pooler {
            pooler.swallow(&mut chunk, asked);
        }
        let held = |switch: &Switch| matches!(switch.mode, Mode::Hold | Mode::Freeze) || switch.has_stopped(client);
        let free = watching.wait_for(|switch| !held(switch));
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

/// What a pooler in transaction mode knows of the messages from PostgreSQL.
#[derive(Default)]
struct Pooler {
    unread: Vec<u8>,
}

impl Pooler {
    /// Leaves the messages that are complete, without the notifications that came while nothing was asked.
    fn swallow(&mut self, chunk: &mut Vec<u8>, asked: &AtomicBool) {
        self.unread.append(chunk);
        while let Some(message) = self.next() {
            match message.first() {
                Some(b'A') if !asked.load(Ordering::SeqCst) => continue,
                Some(b'Z') => asked.store(false, Ordering::SeqCst),
                _ => {}
            }
            chunk.extend(message);
        }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let length = u32::from_be_bytes(self.unread.get(1..)?.first_chunk().copied()?);
        let end = 1 + usize::try_from(length).ok()?;
        self.unread.get(..end)?;
        Some(self.unread.drain(..end).collect())
    }
}

/// The transaction of one connection. It hears what the client says, and nothing of it before PostgreSQL does.
#[derive(Default)]
struct Transaction {
    messages: Messages,
    /// How many statements it has so far; 0 outside of one.
    statements: usize,
    /// How often the switch had been thrown when it began.
    born: u64,
}

impl Transaction {
    /// Is it stopped before a statement in this chunk?
    fn stops_before(&mut self, chunk: &[u8], switch: &watch::Sender<Switch>, client: SocketAddr) -> bool {
        self.messages.unread.extend_from_slice(chunk);
        let mut stopped = false;
        while let Some((kind, body)) = self.messages.next() {
            let command = if kind == b'Q' { body.as_slice() } else { b"" };
            if command == b"BEGIN\0" {
                (self.statements, self.born) = (1, switch.borrow().throws);
            } else if self.statements > 0 && matches!(kind, b'Q' | b'E') {
                self.statements += 1;
            } else {
                continue;
            }
            let commits = command == b"COMMIT\0";
            switch.send_if_modified(|switch| {
                if commits {
                    switch.statements = self.statements;
                }
                let before = match switch.mode {
                    Mode::StopBefore(number) if number == self.statements => true,
                    Mode::StopAfter(number) if number == self.statements => false,
                    _ => return false,
                };
                let meant = self.born == switch.throws;
                if meant {
                    switch.mode = Mode::Stopped { client, there: before };
                    stopped = before;
                }
                meant
            });
            if commits || command == b"ROLLBACK\0" {
                self.statements = 0;
            }
        }
        stopped
    }
}

/// PostgreSQL's protocol, as far as the ends of a client's messages go.
#[derive(Default)]
struct Messages {
    unread: Vec<u8>,
    /// Only what comes before the session has no byte for its kind.
    in_session: bool,
}

impl Messages {
    /// The next message that is complete: its kind and its body. A statement is a `Q`uery, or the `E`xecution of one that
    /// was parsed before; PostgreSQL can't begin with it as long as a byte of it is missing.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let kind = if self.in_session { *self.unread.first()? } else { 0 };
        let head = usize::from(self.in_session);
        let length = u32::from_be_bytes(self.unread.get(head..)?.first_chunk().copied()?);
        let end = head + usize::try_from(length).ok()?;
        if !self.in_session && end > OPENING_MAX {
            self.unread.clear();
        }
        let message = self.unread.get(..end)?;
        let body = message.get(head + 4..)?.to_vec();
        self.unread.drain(..end);
        self.in_session |= body.starts_with(&PROTOCOL_3);
        Some((kind, body))
    }
}

/// Does this end with the message that ends a reply of PostgreSQL? (The last byte tells the state of the transaction.)
fn is_ready_for_query(reply: &[u8]) -> bool {
    reply
        .len()
        .checked_sub(6)
        .and_then(|start| reply.get(start..))
        .is_some_and(|end| end.starts_with(b"Z\0\0\0\x05"))
}
