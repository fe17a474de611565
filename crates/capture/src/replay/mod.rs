//! A server that behaves as a recorded one: for demonstrations and tests without a GPU.
//!
//! It answers over real HTTP what a real SGLang answered, generates tokens at the recorded pace, and when
//! it is told to profile, counts steps, stalls, and writes a recorded trace piece by piece under its
//! final name. Nothing it serves was computed by a GPU at that moment, and it says so: in
//! `/server_info`, in its `server` header, and in every manifest of a capture of it.

mod answers;
mod engine;
mod recording;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::http::{Keys, Transport};

pub use recording::{Pace, Recorded, RecordedTrace};

/// The `server` header of a replay.
pub const REPLAY_SERVER: &str = "steptally-replay";

/// Ways to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Starts the profiler and never says so.
    HangOnStart,
    /// Never answers a stop.
    HangOnStop,
    /// Refuses a start with status 500, as when a profiler runs.
    AlreadyProfiling,
    /// Answers everything with 503 while it exports, which takes so long.
    UnavailableFor(Duration),
    /// Exports so slowly, answering a stop only afterwards.
    ExportFor(Duration),
    /// Goes away in the middle of the export.
    DieMidExport,
    /// Ends a trace in the middle.
    Truncate,
    /// Writes no trace for the last rank.
    MissRank,
    /// Writes nothing at all.
    WriteNothing,
    /// Writes a page of HTML under a trace's name.
    WriteHtml,
    /// Runs out of disk in the middle of the export.
    DiskFull,
    /// Sends its description at a byte per second.
    Trickle,
    /// Redirects everything.
    Redirect,
    /// Sends a description without end.
    HugeReply,
    /// Takes twice as long for a step, for so long after an export.
    SlowAfterwards(Duration),
    /// Has requests of others.
    Traffic,
    /// Was started without a profiler.
    NoProfiler,
}

/// How a replay is set up.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// What is replayed.
    pub recorded: Recorded,
    /// How it misbehaves.
    pub faults: Vec<Fault>,
    /// Keys that it wants.
    pub keys: Keys,
    /// Where a vLLM writes.
    pub folder: Option<PathBuf>,
}

impl ReplayOptions {
    /// A well-behaved replay that wants no key.
    #[must_use]
    pub fn new(recorded: Recorded) -> Self {
        Self { recorded, faults: Vec::new(), keys: Keys::default(), folder: None }
    }

    /// With one more fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

/// What handlers, the engine and the owner of a replay share.
pub(crate) struct Shared {
    pub(crate) options: ReplayOptions,
    pub(crate) jobs: mpsc::UnboundedSender<engine::Job>,
    pub(crate) log: Mutex<Vec<String>>,
    pub(crate) is_exporting: watch::Sender<bool>,
    pub(crate) is_dead: watch::Sender<bool>,
    pub(crate) connections: AtomicUsize,
}

impl Shared {
    pub(crate) fn note(&self, what: String) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// A replay that serves until it is dropped.
pub struct Replay {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    tasks: JoinSet<()>,
}

impl Replay {
    /// Serves on TCP.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn listen(options: ReplayOptions, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let mut replay = Self::new(options);
        let shared = Arc::clone(&replay.shared);
        replay.address = Some(address);
        replay.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            let mut is_dead = shared.is_dead.subscribe();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        let _ = stream.set_nodelay(true);
                        connections.spawn(serve(Arc::clone(&shared), stream));
                    },
                    Some(_) = connections.join_next(), if !connections.is_empty() => {}
                    _ = is_dead.wait_for(|&dead| dead) => return,
                }
            }
        });
        Ok(replay)
    }

    /// Serves through pipes in memory, which work under a paused clock.
    #[must_use]
    pub fn in_memory(options: ReplayOptions) -> (Self, Transport) {
        let (sender, mut streams) = mpsc::unbounded_channel();
        let mut replay = Self::new(options);
        let shared = Arc::clone(&replay.shared);
        replay.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            let mut is_dead = shared.is_dead.subscribe();
            loop {
                tokio::select! {
                    stream = streams.recv() => match stream {
                        Some(stream) => { connections.spawn(serve(Arc::clone(&shared), stream)); }
                        None => return,
                    },
                    Some(_) = connections.join_next(), if !connections.is_empty() => {}
                    _ = is_dead.wait_for(|&dead| dead) => return,
                }
            }
        });
        (replay, Transport::Memory(sender))
    }

    fn new(options: ReplayOptions) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            options,
            jobs,
            log: Mutex::default(),
            is_exporting: watch::channel(false).0,
            is_dead: watch::channel(false).0,
            connections: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(engine::run(Arc::clone(&shared), queue));
        Self { shared, address: None, tasks }
    }

    /// Where it listens, when it does on TCP.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The requests so far: `POST /start_profile`.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests were made to `path`.
    #[must_use]
    pub fn count(&self, path: &str) -> usize {
        self.requests().iter().filter(|request| request.split(' ').nth(1) == Some(path)).count()
    }

    /// Connections that are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Serves until it dies, which it does only by a fault.
    pub async fn serve(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve<S>(shared: Arc<Shared>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    shared.connections.fetch_add(1, Ordering::SeqCst);
    let _open = Open(Arc::clone(&shared));
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answers::answer(shared, request).await) }
    });
    // A client that goes away is no error of a server.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
