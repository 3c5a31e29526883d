//! A TCP proxy to stand before PostgreSQL or Redis, with a switch for each way in which a network fails.
//!
//! It has a thread and a runtime of its own, so it works from any test, and ends when it is dropped. A switch acts on
//! running and new connections alike, until the next one is thrown.
//!
//! To make a crash "after the commit and before the answer" no fault point in the product is needed:
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
    Pass,
    HoldReplies,
    HoldAfter(Vec<u8>),
    DropReplies,
    Delay(Duration),
    Cut,
    Freeze,
    Garbage,
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
    #[expect(clippy::expect_used, reason = "without its proxy, no caller can go on")]
    pub fn start(upstream: impl Display) -> Self {
        let (upstream, mode) = (upstream.to_string(), Mode::Pass);
        let switch = Arc::new(watch::Sender::new(Switch { mode, cuts: 0 }));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket that doesn't block");
        let address = listener.local_addr().expect("the port's number");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let accepting = Arc::clone(&switch);
        let body = move || runtime.block_on(accept(listener, upstream, accepting));
        let builder = std::thread::Builder::new().name("proxy".to_owned());
        let thread = Some(builder.spawn(body).expect("a thread"));
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
        self.set(Mode::Pass);
    }

    /// What upstream says is withheld until `pass`; what the client says still goes through.
    pub fn hold_replies(&self) {
        self.set(Mode::HoldReplies);
    }

    /// `hold_replies` from the moment on that a client says `text`: upstream gets to hear it, and no answer to it comes back.
    pub fn hold_after_seeing(&self, text: &[u8]) {
        self.set(Mode::HoldAfter(text.to_vec()));
    }

    /// Are replies being withheld? Says whether a client has said the text of `hold_after_seeing`.
    pub fn holds_replies(&self) -> bool {
        matches!(self.switch.borrow().mode, Mode::HoldReplies)
    }

    /// What upstream says is swallowed, for ever.
    pub fn drop_replies(&self) {
        self.set(Mode::DropReplies);
    }

    /// What upstream says comes later by `delay`.
    pub fn delay(&self, delay: Duration) {
        self.set(Mode::Delay(delay));
    }

    /// All connections are reset, and new ones are as soon as they are made, until `pass`.
    pub fn cut(&self) {
        self.switch.send_modify(|switch| switch.cuts += 1);
        self.set(Mode::Cut);
    }

    /// Nothing moves in either direction, and nothing is closed: a host that hangs.
    pub fn freeze(&self) {
        self.set(Mode::Freeze);
    }

    /// Upstream's replies are replaced by bytes that make no sense.
    pub fn garbage(&self) {
        self.set(Mode::Garbage);
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
async fn accept(listener: std::net::TcpListener, upstream: String, switch: Arc<watch::Sender<Switch>>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let mut watching = switch.subscribe();
    let accept_all = async {
        loop {
            if let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, upstream.clone(), Arc::clone(&switch)));
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        _ = watching.wait_for(|switch| matches!(switch.mode, Mode::End)) => {}
    }
}

async fn connection(mut client: TcpStream, upstream: String, switch: Arc<watch::Sender<Switch>>) {
    let mut watching = switch.subscribe();
    let born = watching.borrow().cuts;
    tokio::select! {
        biased;
        _ = watching.wait_for(|switch| switch.cuts != born || matches!(switch.mode, Mode::Cut | Mode::End)) => {}
        relayed = relay(&mut client, &upstream, &switch) => if relayed.is_ok() { return },
    }
    // Closes with a reset: an orderly end could be mistaken for upstream's own.
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
        let older = recent.len().saturating_sub(text.len().saturating_sub(1));
        recent.drain(..older);
        if seen {
            switch.mode = Mode::HoldReplies;
        }
        seen
    });
}

async fn pass_replies(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, switch: &watch::Sender<Switch>) -> io::Result<()> {
    let mut watching = switch.subscribe();
    let mut chunk = Vec::with_capacity(CHUNK);
    loop {
        let ended = from.read_buf(&mut chunk).await? == 0;
        let held = |switch: &Switch| matches!(switch.mode, Mode::HoldReplies | Mode::Freeze);
        let delay = match &watching
            .wait_for(|switch| !held(switch))
            .await
            .map_err(io::Error::other)?
            .mode
        {
            Mode::Delay(delay) => *delay,
            Mode::DropReplies => {
                chunk.clear();
                Duration::ZERO
            }
            Mode::Garbage => {
                chunk.splice(.., GARBAGE.iter().copied());
                Duration::ZERO
            }
            _ => Duration::ZERO,
        };
        tokio::time::sleep(delay).await;
        if ended {
            return to.shutdown().await;
        }
        to.write_all(&chunk).await?;
        chunk.clear();
    }
}
