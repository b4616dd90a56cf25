//! Where to listen, where to keep things, and the limits.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How the server runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on. Anything but loopback needs a token.
    pub listen: SocketAddr,
    /// The folder that holds the database and the runs; nothing outside it is touched.
    pub workspace: PathBuf,
    /// What a client must know where the address is not loopback.
    pub token: Option<String>,
    /// The `fatflow` binary that computes.
    pub program: PathBuf,
    /// Connections at once.
    pub max_connections: usize,
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Runs that wait or run at once.
    pub max_waiting: usize,
    /// Bytes of one result or report that are kept.
    pub max_result: u64,
    /// A run that takes longer is stopped.
    pub run_timeout: Duration,
    /// A check that takes longer is stopped.
    pub check_timeout: Duration,
    /// A request's head must be there after this.
    pub head_timeout: Duration,
    /// A connection is closed after this.
    pub connection_timeout: Duration,
}

impl Options {
    /// On loopback, with limits that a laptop bears.
    pub fn new(workspace: PathBuf, program: PathBuf) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8471)),
            workspace,
            token: None,
            program,
            max_connections: 128,
            max_body: 1 << 20,
            max_waiting: 16,
            max_result: 64 << 20,
            run_timeout: Duration::from_secs(30 * 60),
            check_timeout: Duration::from_secs(20),
            head_timeout: Duration::from_secs(5),
            connection_timeout: Duration::from_secs(60),
        }
    }

    /// Whether these options may be used together.
    pub(crate) fn check(&self) -> io::Result<()> {
        let short = self.token.as_ref().is_none_or(|token| token.len() < 16);
        if !self.listen.ip().is_loopback() && short {
            let text = "an address other than loopback needs a token of at least 16 characters";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }
}
