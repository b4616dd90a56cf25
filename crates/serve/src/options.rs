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
    /// The people of a team's server, each with a token of their own.
    pub users: Option<PathBuf>,
    /// Whether requests come through a proxy that says who asked (`X-Forwarded-For`) and how
    /// (`X-Forwarded-Proto`).
    pub proxy: bool,
    /// The `fatflow` binary that computes.
    pub program: PathBuf,
    /// Connections at once.
    pub max_connections: usize,
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Bytes of a file that somebody brings.
    pub max_upload: usize,
    /// Bytes of all files of one person.
    pub max_shelf: u64,
    /// Runs that compute at once.
    pub max_runs: usize,
    /// Runs that wait or run at once.
    pub max_waiting: usize,
    /// Bytes of one result or report that are kept.
    pub max_result: u64,
    /// Bytes of memory that a run may use.
    pub run_memory: u64,
    /// Bytes of memory that a check may use.
    pub check_memory: u64,
    /// Processors that a child may use.
    pub processors: usize,
    /// Children that answer short questions at once, beside the one that computes.
    pub max_children: usize,
    /// Short questions that wait or are answered at once.
    pub max_questions: usize,
    /// Names beside addresses and `localhost` by which clients know this server.
    pub hosts: Vec<String>,
    /// Wrong tokens of one address in a minute; then it has to wait.
    pub max_wrong_tokens: u32,
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
            users: None,
            proxy: false,
            program,
            max_connections: 128,
            max_body: 1 << 20,
            max_upload: 32 << 20,
            max_shelf: 256 << 20,
            max_runs: 1,
            max_waiting: 16,
            max_result: 64 << 20,
            run_memory: crate::child::machine_memory() / 2,
            check_memory: 1 << 30,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            max_children: 2,
            max_questions: 64,
            hosts: Vec::new(),
            max_wrong_tokens: 10,
            run_timeout: Duration::from_secs(30 * 60),
            check_timeout: Duration::from_secs(20),
            head_timeout: Duration::from_secs(5),
            connection_timeout: Duration::from_secs(60),
        }
    }

    /// Whether these options may be used together.
    pub(crate) fn check(&self) -> io::Result<()> {
        let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.token.is_some() && self.users.is_some() {
            return wrong("a server has one token, or a file of users with one each");
        }
        match &self.token {
            None if self.users.is_some() => Ok(()),
            None if !self.listen.ip().is_loopback() => wrong(
                "an address other than loopback needs a token of at least 16 characters, or users",
            ),
            Some(token) if token.len() < 16 => {
                wrong("a token has at least 16 characters; leave it out to have none")
            }
            // It stands in addresses, headers and cookies.
            Some(token) if !token.bytes().all(is_plain) => {
                wrong("a token has letters, digits, `-`, `.`, `_` and `~` alone")
            }
            _ => Ok(()),
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_plain_or_not_there() {
        let mut options = Options::new(PathBuf::new(), PathBuf::new());
        let mut taken = |token: Option<&str>| {
            options.token = token.map(str::to_owned);
            options.check().is_ok()
        };
        assert!(taken(None) && taken(Some("0123456789abcdef")));
        let wrong = ["", "short", "0123456789abcde ", "0123456789abcde;", "0123456789abcde&"];
        assert!(wrong.iter().all(|token| !taken(Some(token))));
        options.token = None;
        options.listen = "0.0.0.0:0".parse().unwrap();
        assert!(options.check().is_err());
    }
}
