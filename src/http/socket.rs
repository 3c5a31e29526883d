//! A client's connection, with the deadlines that the HTTP library does not keep: for every head of a request, and for
//! the client to take what it is answered. Without them a client that dribbles, or does not read, keeps a connection and
//! its memory for as long as it likes.
//!
//! | the client | may take | then |
//! |---|---|---|
//! | sends the first head on a connection | [`HEAD_TIMEOUT`] from the start of the connection; kept by the library | 408, closed |
//! | sends a later head | [`HEAD_TIMEOUT`] from its first byte | closed |
//! | sends nothing between two requests | [`KEEP_ALIVE`]; kept by the library | closed |
//! | takes an answer | [`TAKE_TIMEOUT`] from the moment it stops reading | closed |

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may take to send the head of a request.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How long a client may take to read what fits in no buffer: a page of a list has a megabyte, so a line with 300 kbit/s will do.
pub(super) const TAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// What happens on a connection, as its socket and the requests on it tell each other.
#[derive(Clone, Default)]
pub(super) struct Activity(Rc<Cell<Doing>>);

#[derive(Clone, Copy, Default)]
enum Doing {
    /// Nothing of the next request has come.
    #[default]
    Idle,
    /// The head of a request is being received, and must be whole by then.
    Head(Instant),
    /// A request is being answered. It has deadlines of its own.
    Answering,
}

impl Activity {
    /// A head is whole.
    pub fn request_begins(&self) {
        self.0.set(Doing::Answering);
    }

    /// What comes from now on belongs to the next request.
    pub fn request_ends(&self) {
        self.0.set(Doing::Idle);
    }

    fn received(&self) {
        if matches!(self.0.get(), Doing::Idle) {
            self.0.set(Doing::Head(Instant::now() + HEAD_TIMEOUT));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.0.get() {
            Doing::Head(deadline) => Some(deadline),
            Doing::Idle | Doing::Answering => None,
        }
    }
}

/// A stream with these deadlines.
pub(super) struct Socket<S> {
    stream: S,
    pub activity: Activity,
    head: Deadline,
    take: Deadline,
}

impl<S> Socket<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            activity: Activity::default(),
            head: Deadline::default(),
            take: Deadline::default(),
        }
    }
}

/// A timer that is made when it is first needed: most connections never need one.
#[derive(Default)]
struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// Has it passed? If not, the task is woken when it does.
    fn passed(&mut self, at: Instant, context: &mut Context<'_>) -> bool {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(context).is_ready()
    }

    /// The moment for which it is set.
    fn at(&self) -> Option<Instant> {
        self.0.as_ref().map(|timer| timer.deadline())
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = &mut *self;
        let before = into.filled().len();
        let read = Pin::new(&mut socket.stream).poll_read(context, into);
        if into.filled().len() > before {
            socket.activity.received();
        }
        match socket.activity.deadline() {
            // The end of the stream, to the library: it closes the connection, and does so in silence.
            Some(deadline) if socket.head.passed(deadline, context) => {
                into.set_filled(before);
                Poll::Ready(Ok(()))
            }
            _ => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> Socket<S> {
    /// What came of writing. The client has [`TAKE_TIMEOUT`] from when it first made us wait until all has been written.
    fn wrote<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            let at = self.take.at().unwrap_or_else(|| Instant::now() + TAKE_TIMEOUT);
            if self.take.passed(at, context) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written, context)
    }

    /// The library flushes when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.take.clear();
        }
        self.wrote(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.wrote(shut, context)
    }
}

#[cfg(test)]
#[path = "socket_test.rs"]
mod tests;
