//! The local server: pick a scenario, edit it, run it, keep and compare what came out.
//!
//! The server computes nothing. Every answer comes from the same binary that a terminal would
//! call (`fatflow check`, `fatflow run` …), started as a child process: a run can be stopped at
//! any moment, a run that fails takes nobody with it, and the browser can never show anything
//! else than the command line. What was asked and what came out is kept in one database file.
//!
//! # Map of the modules, in reading order
//!
//! * [`options`]: where to listen, where to keep things, the limits.
//! * [`store`]: runs and their files in an embedded database; survives a kill at any moment.
//! * [`child`]: what a child process may use, and that it ends with its server.
//! * [`jobs`]: the queue of runs and their child processes.
//! * [`figures`]: what the list of runs shows of each.
//! * [`users`]: the people of a team's server, their tokens, roles and limits.
//! * [`shelf`]: files that people bring.
//! * [`audit`]: who did what when.
//! * [`guard`]: who may ask: host, origin and token; the headers of every answer.
//! * [`http`]: the requests that the page makes.
//!
//! # Invariants
//!
//! * Nothing outside the workspace folder is read or written: children are confined to it too.
//! * Every request is limited in size and time, connections in number, children in number, memory,
//!   processors and time. Nothing is left running when the server ends, however it ends.
//! * The page loads nothing from elsewhere; its content security policy says so.

pub mod audit;
pub mod child;
pub mod figures;
pub mod guard;
pub mod http;
pub mod jobs;
pub mod options;
pub mod shelf;
pub mod store;
pub mod users;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;

pub use options::Options;

/// What all requests share.
#[derive(Debug)]
pub struct Server {
    /// Where to listen, where to keep things, the limits.
    pub options: Options,
    /// Runs and their files.
    pub store: store::Store,
    /// The queue of runs.
    pub jobs: jobs::Jobs,
    /// The people, where there are several.
    pub users: Option<users::Users>,
    /// Who did what.
    pub audit: audit::Audit,
    /// Answers that never change: presets, the schema.
    pub fixed: Mutex<BTreeMap<String, Vec<u8>>>,
}

/// Serves until the future `until` ends, or the process is told to end by a signal; then children
/// are ended and their folders taken away. `started` hears the address that was bound.
pub fn serve(
    options: Options,
    started: impl FnOnce(SocketAddr),
    until: impl Future<Output = ()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        options.check()?;
        std::fs::create_dir_all(&options.workspace)?;
        let store = store::Store::open(&options.workspace.join("fatflow.redb"))?;
        jobs::sweep(&options.workspace)?;
        store.interrupt_unfinished()?;
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let server = Arc::new(Server {
            jobs: jobs::Jobs::new(&options),
            users: options.users.as_deref().map(users::Users::open).transpose()?,
            audit: audit::Audit::new(options.workspace.join("audit.jsonl")),
            fixed: Mutex::default(),
            options,
            store,
        });
        let (mut ended, mut interrupted) = (end()?, interrupt()?);
        started(address);
        let result = tokio::select! {
            result = accept(listener, server.clone(), address) => result,
            () = until => Ok(()),
            _ = ended.recv() => Ok(()),
            _ = interrupted.recv() => Ok(()),
        };
        server.jobs.end_all().await;
        result
    })
}

fn end() -> io::Result<Signal> {
    signal(SignalKind::terminate())
}

fn interrupt() -> io::Result<Signal> {
    signal(SignalKind::interrupt())
}

/// Takes connections, at most so many at once; the others wait their turn in the kernel's queue.
async fn accept(listener: TcpListener, server: Arc<Server>, bound: SocketAddr) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(server.options.max_connections));
    let router = http::router(server.clone(), bound);
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip()),
            // Out of file descriptors, or the peer is gone already: breathe, then go on.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone().layer(Extension(guard::Peer(peer))));
        let (head, whole) = (server.options.head_timeout, server.options.connection_timeout);
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(head)
                .max_buf_size(64 << 10)
                .serve_connection(TokioIo::new(stream), service);
            // What a broken connection wanted to say interests nobody.
            let _ = tokio::time::timeout(whole, connection).await;
            drop(slot);
        });
    }
}
