//! The server: a thread that accepts connections, a thread for each, limits on all of them, and a clean end.
//!
//! A page asks for a few dozen things at a time, over a handful of connections: threads that wait are simple and enough.

use crate::access::Access;
use crate::catalogue::Catalogue;
use crate::reply::Reply;
use crate::request::{Asked, Head};
use crate::routes::App;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections at the same time: a browser opens six per tab.
const CONNECTIONS: usize = 128;
/// How long a connection may be silent between two requests, how long a client may take for the head of one, for its body, and for taking in a
/// part of the answer.
const IDLE: Duration = Duration::from_secs(30);
const HEAD: Duration = Duration::from_secs(10);
const BODY: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(30);
/// Bytes of a refused body that are read so that the client sees the refusal, and for how long.
const DRAINED: usize = 32 << 20;
const DRAIN: Duration = Duration::from_secs(2);

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address: this machine alone, unless another one is given.
    pub address: IpAddr,
    /// The port; 0 for any free one.
    pub port: u16,
    /// Names under which the machine is reached, beside its addresses.
    pub hosts: Vec<String>,
}

impl Default for Listen {
    fn default() -> Self {
        Listen { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0, hosts: Vec::new() }
    }
}

/// A server that is running; dropping it ends it.
pub struct Server {
    at: SocketAddr,
    access: Arc<Access>,
    end: Cancel,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts a server for `catalogue`.
    pub fn start(catalogue: Arc<Catalogue>, listen: &Listen) -> Result<Server> {
        let place = SocketAddr::new(listen.address, listen.port);
        let cannot = |e: std::io::Error| {
            let hint = "choose another `port`, or leave it out for a free one";
            Error::usage(format!("cannot listen on {place}: {e}"), hint)
        };
        let listener = TcpListener::bind(place).map_err(cannot)?;
        let at = listener.local_addr().map_err(cannot)?;
        let access = Arc::new(Access::new(at.port(), listen.hosts.clone())?);
        let end = Cancel::default();
        let app = Arc::new(App::new(catalogue, access.clone(), end.clone()));
        let ended = end.clone();
        let thread =
            std::thread::Builder::new().name("pcp-serve".into()).spawn(move || accept(&listener, &app, &ended));
        Ok(Server { at, access, end, thread: Some(thread.map_err(cannot)?) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// The link that opens the page, once.
    pub fn link(&self) -> Result<String> {
        let token = match self.access.token() {
            Some(token) => token,
            None => self.access.renew()?,
        };
        Ok(format!("http://{}/?token={token}", reachable(self.at)))
    }

    /// Waits until `cancel` is requested.
    pub fn wait(&self, cancel: &Cancel) {
        while !cancel.requested() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.request();
        // A connection wakes the thread that accepts them.
        let _ = TcpStream::connect_timeout(&reachable(self.at), Duration::from_secs(1));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An address that can be connected to: not the one that stands for all of them.
fn reachable(at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port()),
        _ => at,
    }
}

/// Accepts connections until the end; more than there is room for are closed at once.
fn accept(listener: &TcpListener, app: &Arc<App>, end: &Cancel) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if end.requested() {
            return;
        }
        let Ok(stream) = stream else {
            // Too many open files: others will be closed.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (app, end, counted) = (app.clone(), end.clone(), open.clone());
        let serve = move || {
            // A client that goes away is no failure.
            let _ = catch_unwind(AssertUnwindSafe(|| Connection::new(stream).serve(&app, &end)));
            counted.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().name("pcp-answer".into()).spawn(serve).is_err() {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A connection, and what was read of it but not yet used.
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream) -> Connection {
        Connection { stream, read: Vec::new() }
    }

    /// Answers requests until one of both sides has enough.
    fn serve(&mut self, app: &App, end: &Cancel) -> std::io::Result<()> {
        self.stream.set_nodelay(true)?;
        self.stream.set_write_timeout(Some(ANSWER))?;
        while !end.requested() {
            let asked = match self.head()? {
                Ok(asked) => asked,
                Err(0) => return Ok(()),
                Err(status) => {
                    Reply::refused(status, "the request cannot be read").write(&mut self.stream, false, true)?;
                    return self.drain();
                }
            };
            let mut body = Body { connection: self, left: asked.length };
            // A panic costs one answer.
            let answered = catch_unwind(AssertUnwindSafe(|| app.answer(&asked, &mut body)));
            let unread = body.left > 0;
            let reply =
                answered.unwrap_or_else(|_| Reply::refused(500, "an internal check failed; please report this"));
            let bare = asked.method == crate::request::Method::Head;
            if reply.write(&mut self.stream, bare, asked.last || unread)? {
                return if unread { self.drain() } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// Reads more by `deadline`; false at the end of the connection.
    fn more(&mut self, deadline: Instant) -> std::io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut part = [0u8; 16 << 10];
        let count = self.stream.read(&mut part)?;
        self.read.extend_from_slice(&part[..count]);
        Ok(count > 0)
    }

    /// The next head, or the status of a refusal; 0 when the client has gone or is silent.
    fn head(&mut self) -> std::io::Result<std::result::Result<Asked, u16>> {
        let silent = |e: &std::io::Error| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        let mut deadline = Instant::now() + if self.read.is_empty() { IDLE } else { HEAD };
        loop {
            match Head::parse(&self.read) {
                Head::Whole(asked, used) => {
                    self.read.drain(..used);
                    return Ok(Ok(asked));
                }
                Head::Bad(status) => return Ok(Err(status)),
                Head::Partial => {}
            }
            let first = self.read.is_empty();
            match self.more(deadline) {
                Ok(true) => {}
                Ok(false) => return Ok(Err(0)),
                Err(e) if silent(&e) => return Ok(Err(if first { 0 } else { 408 })),
                Err(e) => return Err(e),
            }
            if first {
                deadline = Instant::now() + HEAD;
            }
        }
    }

    /// Reads what the client still sends, for a while, so that it sees the answer before the end.
    fn drain(&mut self) -> std::io::Result<()> {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let (deadline, mut all) = (Instant::now() + DRAIN, 0);
        loop {
            self.read.clear();
            match self.more(deadline) {
                Ok(true) if all < DRAINED => all += self.read.len(),
                _ => return Ok(()),
            }
        }
    }
}

/// The body of a request, which is read only where it is wanted.
pub struct Body<'a> {
    connection: &'a mut Connection,
    left: u64,
}

impl Body<'_> {
    /// All of it, if it has at most `most` bytes.
    pub fn take(&mut self, most: usize) -> std::result::Result<Vec<u8>, Reply> {
        if self.left > most as u64 {
            return Err(Reply::refused(413, &format!("more than {} kB are not taken", most >> 10)));
        }
        let (deadline, length) = (Instant::now() + BODY, self.left as usize);
        while self.connection.read.len() < length {
            match self.connection.more(deadline) {
                Ok(true) => {}
                _ => return Err(Reply::refused(408, "the request took too long, or ended early")),
            }
        }
        self.left = 0;
        Ok(self.connection.read.drain(..length).collect())
    }
}
