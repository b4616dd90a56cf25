//! Processes on other hosts: an agent on each, and a controller that gives them their plans.
//!
//! The controller connects by TCP, with TLS where asked for, and says the token; then the lines are
//! those of a local process ([`crate::rank`]). An agent starts that process for it, sends to no
//! address but those of the plan, no faster and no longer than it was allowed to, writes no files,
//! and ends the process when the controller is gone: at the end of the connection, or when nothing
//! is heard of its host for a while.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use commands::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use units::Rate;

use crate::plan::{RankMessage, Task, WirePlan};
use crate::run::{Ranks, Remote};

/// The port that agents listen on unless told otherwise: the one after RoCE's.
pub const PORT: u16 = 4792;

/// How long a connection may take until its token and plan are there.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest line with a plan.
const MOST_LINE: u64 = 64 << 20;

/// Connections that an agent serves at once.
const MOST_AT_ONCE: usize = 64;

/// A host with an agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentHost {
    /// Its name or address, as it was written.
    pub name: String,
    /// The agent's port.
    pub port: u16,
    /// The address that data goes to.
    pub data: IpAddr,
}

/// The agents of a run.
#[derive(Clone, Debug)]
pub struct Agents {
    /// One for each rank, in order.
    pub hosts: Vec<AgentHost>,
    /// What they want to hear.
    pub token: String,
    /// The certificates that agents' are signed by, if connections have TLS.
    pub authority: Option<PathBuf>,
}

/// Reads a list of hosts and finds the addresses of those that have none for data.
pub fn read_hosts(path: &Path) -> Result<Vec<AgentHost>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
    let mut hosts = Vec::new();
    for (number, name, port, data) in parse_hosts(&text, path)? {
        let find = || (name.as_str(), port).to_socket_addrs().ok()?.next();
        let reason = || {
            let path = path.display();
            Failure::Usage(format!("{path}:{number}: this host has no address: `{name}`"))
        };
        let data = match data {
            Some(data) => data,
            None => find().ok_or_else(reason)?.ip(),
        };
        hosts.push(AgentHost { name, port, data });
    }
    let mut known: Vec<IpAddr> = hosts.iter().map(|host| host.data).collect();
    known.sort_unstable();
    known.dedup();
    if known.len() < hosts.len() || hosts.is_empty() {
        let reason = "every host needs an address for data of its own, and there must be one";
        return Err(Failure::Usage(format!("{}: {reason}", path.display())));
    }
    Ok(hosts)
}

/// A line of a list of hosts: its number, the host, its agent's port, its address for data.
pub type HostLine = (u64, String, u16, Option<IpAddr>);

/// Reads the lines of a list: a name or address, `:PORT` if it is not [`PORT`], and the address
/// for data if that is another. What follows `#` is a remark.
pub fn parse_hosts(text: &str, path: &Path) -> Result<Vec<HostLine>, Failure> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: &str| {
            Failure::Usage(format!("{}:{number}: {what}: `{}`", path.display(), line.trim()))
        };
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { continue };
        let (name, port) = match first.rsplit_once(':') {
            _ if first.parse::<IpAddr>().is_ok() => (first, PORT),
            Some((name, port)) => {
                (name, port.parse().map_err(|_| wrong("a port is a number to 65535"))?)
            }
            None => (first, PORT),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let data = words.next().map(str::parse).transpose();
        let data = data.map_err(|_| wrong("no address for data"))?;
        if words.next().is_some() {
            return Err(wrong("a host, its address for data, and nothing more"));
        }
        lines.push((number, name, port, data));
    }
    Ok(lines)
}

/// Reads a token: the first line of a file.
pub fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    if token.len() < 16 {
        let reason = "a token has 16 characters or more";
        return Err(Failure::Usage(format!("{}: {reason}", path.display())));
    }
    Ok(token)
}

impl Agents {
    /// Connects to the first so many agents and says the token.
    pub(crate) fn connect(&self, ranks: usize) -> Result<Ranks, Failure> {
        let tls = if self.authority.is_some() { "with" } else { "without" };
        let mut streams: Vec<Remote> = Vec::new();
        for host in &self.hosts[..ranks] {
            let name = format!("agent {}:{}, asked {tls} TLS,", host.name, host.port);
            let failed = |error: io::Error| Failure::Run(format!("{name} {error}"));
            let (read, mut write) = self.reach(host).map_err(failed)?;
            writeln!(write, "{}", self.token).map_err(failed)?;
            streams.push((name, read, write));
        }
        Ok(Ranks::remote(streams))
    }

    fn reach(&self, host: &AgentHost) -> io::Result<(Box<dyn Read + Send>, Box<dyn Write + Send>)> {
        let address = (host.name.as_str(), host.port).to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("it has no address"))?;
        let tcp = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stay_alive(&tcp)?;
        let Some(authority) = &self.authority else {
            return Ok((Box::new(tcp.try_clone()?), Box::new(tcp)));
        };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates(authority)? {
            roots.add(certificate).map_err(io::Error::other)?;
        }
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
        let tls =
            rustls::ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let local = under_tls(tls.into(), tcp)?;
        Ok((Box::new(local.try_clone()?), Box::new(local)))
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let wrong = |error| io::Error::other(format!("{}: {error}", path.display()));
    CertificateDer::pem_file_iter(path).map_err(wrong)?.map(|one| one.map_err(wrong)).collect()
}

/// A host that is gone without a word is noticed within half a minute.
fn stay_alive(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    setsockopt(tcp, sockopt::KeepAlive, &true)?;
    setsockopt(tcp, sockopt::TcpKeepIdle, &5)?;
    setsockopt(tcp, sockopt::TcpKeepInterval, &5)?;
    setsockopt(tcp, sockopt::TcpKeepCount, &3)?;
    setsockopt(tcp, sockopt::TcpUserTimeout, &20_000)?;
    Ok(())
}

/// The plain end of a connection with TLS; a thread carries bytes between the two.
fn under_tls(mut tls: rustls::Connection, tcp: TcpStream) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    tcp.set_nonblocking(true)?;
    tls.set_buffer_limit(None);
    std::thread::spawn(move || {
        // What fails ends the connection, and both sides see its end.
        let _ = carry(&mut tls, &tcp, &theirs);
        let _ = tcp.shutdown(std::net::Shutdown::Both);
    });
    Ok(ours)
}

fn carry(
    tls: &mut rustls::Connection,
    mut tcp: &TcpStream,
    mut plain: &UnixStream,
) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    let quiet = |result: io::Result<usize>| match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    };
    loop {
        while tls.wants_write() && quiet(tls.write_tls(&mut tcp))?.is_some() {}
        let writes = if tls.wants_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut sockets = [
            PollFd::new(tcp.as_fd(), PollFlags::POLLIN | writes),
            PollFd::new(plain.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut sockets, PollTimeout::NONE)?;
        let happened = sockets.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
        if happened[0] && quiet(tls.read_tls(&mut tcp))? == Some(0) {
            return Ok(());
        }
        let state = tls.process_new_packets().map_err(io::Error::other)?;
        let mut left = state.plaintext_bytes_to_read();
        while 0 < left {
            let most = left.min(buffer.len());
            let read = tls.reader().read(&mut buffer[..most])?;
            plain.write_all(&buffer[..read])?;
            left -= read;
        }
        if happened[1] {
            let read = plain.read(&mut buffer)?;
            if read == 0 {
                tls.send_close_notify();
                while tls.wants_write() && quiet(tls.write_tls(&mut tcp))?.is_some() {}
                return Ok(());
            }
            tls.writer().write_all(&buffer[..read])?;
        }
    }
}

/// What an agent may do.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What a controller must say.
    pub token: String,
    /// Its certificates and key, if connections have TLS.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The most that it sends.
    pub most_rate: Rate,
    /// The most seconds that a run may take.
    pub most_s: u64,
    /// This program, which also is the process that sends.
    pub program: PathBuf,
}

/// Serves controllers until it is ended. `say` is told where it listens, and of each run.
pub fn serve(options: &AgentOptions, say: fn(&str)) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Run(format!("agent: {error}"));
    let tls = match &options.identity {
        None => None,
        Some((certificate, key)) => {
            let wrong = |reason: String| Failure::Usage(format!("{}: {reason}", key.display()));
            let key =
                PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(error.to_string()))?;
            let config = rustls::ServerConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .map_err(|error| wrong(error.to_string()))?
                .with_no_client_auth()
                .with_single_cert(certificates(certificate).map_err(failed)?, key);
            Some(Arc::new(config.map_err(|error| wrong(error.to_string()))?))
        }
    };
    let listener = TcpListener::bind(options.listen).map_err(failed)?;
    say(&format!("agent: listens on {}", listener.local_addr().map_err(failed)?));
    let busy = Arc::new(AtomicUsize::new(0));
    for tcp in listener.incoming() {
        let Ok(tcp) = tcp else { continue };
        if MOST_AT_ONCE <= busy.load(Ordering::Relaxed) {
            continue; // Closed at once: the controller hears that the process ended.
        }
        busy.fetch_add(1, Ordering::Relaxed);
        let (options, tls, busy) = (options.clone(), tls.clone(), busy.clone());
        std::thread::spawn(move || {
            let peer = tcp.peer_addr().map_or("somebody".to_owned(), |peer| peer.to_string());
            match attend(&options, tls, tcp) {
                Ok(()) => say(&format!("agent: {peer}: over")),
                Err(reason) => say(&format!("agent: {peer}: {reason}")),
            }
            busy.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// Serves one controller.
fn attend(
    options: &AgentOptions,
    tls: Option<Arc<rustls::ServerConfig>>,
    tcp: TcpStream,
) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    stay_alive(&tcp).map_err(text)?;
    type Ends = (Box<dyn Read + Send>, Box<dyn Write + Send>);
    let (plain, (read, mut write)): (Option<UnixStream>, Ends) = match tls {
        None => {
            tcp.set_read_timeout(Some(PATIENCE)).map_err(text)?;
            let [read, write] = [tcp.try_clone(), tcp.try_clone()].map(|one| one.map_err(text));
            (None, (Box::new(read?), Box::new(write?)))
        }
        Some(config) => {
            let tls = rustls::ServerConnection::new(config).map_err(|error| error.to_string())?;
            let plain = under_tls(tls.into(), tcp.try_clone().map_err(text)?).map_err(text)?;
            plain.set_read_timeout(Some(PATIENCE)).map_err(text)?;
            let [read, write] = [plain.try_clone(), plain.try_clone()].map(|one| one.map_err(text));
            (Some(plain), (Box::new(read?), Box::new(write?)))
        }
    };
    let mut lines = BufReader::new(read);
    let begun = begin(options, &mut lines);
    let (mut child, line) = match begun {
        Ok(begun) => begun,
        Err(reason) => {
            let told =
                serde_json::to_string(&RankMessage::Failed(reason.clone())).expect("plain data");
            let _ = writeln!(write, "{told}").and_then(|()| write.flush());
            return Err(reason);
        }
    };
    // From here on silence is allowed; keep-alives notice who is gone.
    match &plain {
        Some(plain) => plain.set_read_timeout(None).map_err(text)?,
        None => tcp.set_read_timeout(None).map_err(text)?,
    }
    drop(plain);
    attend_process(&mut child, &line, lines, write, options.most_s).map_err(text)
}

/// Hears the token and the plan, and starts the process that will have it.
fn begin(
    options: &AgentOptions,
    lines: &mut BufReader<Box<dyn Read + Send>>,
) -> Result<(Child, String), String> {
    let mut line = |most: u64| {
        let mut text = String::new();
        let read = lines.take(most).read_line(&mut text).map_err(|error| error.to_string())?;
        if read == 0 || !text.ends_with('\n') {
            return Err("the controller said nothing, or too much".to_owned());
        }
        Ok(text)
    };
    let said = line(4096)?;
    let (said, token) = (said.trim().as_bytes(), options.token.as_bytes());
    let differing = said.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    if differing != 0 || said.len() != token.len() {
        return Err("the token is wrong".to_owned());
    }
    let task = line(MOST_LINE)?;
    check(options, &task)?;
    let started = Command::new(&options.program)
        .args(["live", "process"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    started.map(|child| (child, task)).map_err(|error| format!("cannot start a process: {error}"))
}

/// Refuses a plan that is more than this agent may do.
pub fn check(options: &AgentOptions, line: &str) -> Result<(), String> {
    let (_, task): (String, Task) =
        serde_json::from_str(line).map_err(|error| format!("the plan is malformed: {error}"))?;
    let most_ms = options.most_s.saturating_mul(1000);
    let most_bps = options.most_rate.as_bps();
    let too_long = |ms: u64| match most_ms < ms {
        true => Err(format!("{ms} ms are asked for; this agent runs at most {most_ms}")),
        false => Ok(()),
    };
    match task {
        Task::Run(plan) => {
            if plan.wire != WirePlan::Udp || plan.pairs.iter().any(|pair| pair.inside) {
                return Err("an agent sends by UDP alone".to_owned());
            }
            if plan.pcap.is_some() || plan.record.is_some() {
                return Err("an agent writes no files".to_owned());
            }
            if most_bps < plan.line_bps {
                let rate = Rate::from_bps(plan.line_bps);
                let most = options.most_rate;
                return Err(format!("{rate} are asked for; this agent sends at most {most}"));
            }
            too_long(plan.most_ms)
        }
        Task::Probe(plan) => {
            if plan.wire != WirePlan::Udp {
                return Err("an agent sends by UDP alone".to_owned());
            }
            // Rounds leave at once, and the pauses after them make up for it.
            if most_bps < plan.line_bps {
                let most = options.most_rate;
                return Err(format!("probes are more than the {most} that this agent sends"));
            }
            too_long(plan.takes_ms().saturating_add(plan.wait_ms))
        }
    }
}

/// Carries lines between the controller and the process, until either is gone.
fn attend_process(
    child: &mut Child,
    line: &str,
    mut from: BufReader<Box<dyn Read + Send>>,
    mut to: Box<dyn Write + Send>,
    most_s: u64,
) -> io::Result<()> {
    let mut input = child.stdin.take().expect("it was piped");
    let mut output = child.stdout.take().expect("it was piped");
    input.write_all(line.as_bytes())?;
    let mut gone = Some(input);
    let (ended, end) = std::sync::mpsc::channel();
    let over = ended.clone();
    std::thread::spawn(move || {
        let mut text = String::new();
        while let Some(input) = gone.as_mut() {
            text.clear();
            let said = matches!(from.read_line(&mut text), Ok(read) if 0 < read);
            if !said || input.write_all(text.as_bytes()).is_err() {
                // The end of its input is the end of the process.
                gone = None;
            }
        }
        let _ = ended.send(());
    });
    std::thread::spawn(move || {
        let _ = io::copy(&mut output, &mut to).and_then(|_| to.flush());
        let _ = over.send(());
    });
    let until = Instant::now() + Duration::from_secs(most_s + 30);
    let _ = end.recv_timeout(until.saturating_duration_since(Instant::now()));
    // It ends by itself when its input has; whoever does not is ended.
    let soon = Instant::now() + Duration::from_secs(2);
    while child.try_wait()?.is_none() && Instant::now() < soon {
        std::thread::sleep(Duration::from_millis(20));
    }
    if child.try_wait()?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Result<Vec<AgentHost>, String> {
        let path = std::env::temp_dir().join(format!("fatflow-hosts-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let read = read_hosts(&path).map_err(|failure| failure.to_string());
        std::fs::remove_file(&path).unwrap();
        read
    }

    /// Names, ports and addresses are read; what is wrong is told with its line.
    #[test]
    fn hosts_are_read_or_refused_with_their_line() {
        let read =
            hosts("# agents\n10.0.0.1\n10.0.0.2:99 10.1.0.2 # second\n[fd00::1]:7 fd00::2\n");
        let read = read.unwrap();
        let short: Vec<(&str, u16, String)> =
            read.iter().map(|one| (one.name.as_str(), one.port, one.data.to_string())).collect();
        let expected = [("10.0.0.1", PORT, "10.0.0.1"), ("10.0.0.2", 99, "10.1.0.2")];
        let expected = expected.map(|(name, port, data)| (name, port, data.to_owned()));
        assert_eq!(short[..2], expected);
        assert_eq!(short[2], ("fd00::1", 7, "fd00::2".to_owned()));
        for (text, reason) in [
            ("10.0.0.1\n10.0.0.2:x\n", ":2: a port"),
            ("10.0.0.1 nowhere\n", ":1: no address"),
            ("10.0.0.1 10.0.0.1 more\n", ":1: a host"),
            ("10.0.0.1\n10.0.0.1\n", "of its own"),
            ("", "there must be one"),
        ] {
            let told = hosts(text).unwrap_err();
            assert!(told.contains(reason), "{told}");
        }
    }

    /// An agent refuses what is faster or longer than it may, and what is no plan.
    #[test]
    fn plans_beyond_the_bounds_are_refused() {
        let options = AgentOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: String::new(),
            identity: None,
            most_rate: Rate::from_bps(100_000_000),
            most_s: 10,
            program: PathBuf::new(),
        };
        let address: IpAddr = "127.0.0.2".parse().unwrap();
        let plan = crate::plan::ProbePlan {
            rank: 0,
            address,
            to: address,
            wire: WirePlan::Udp,
            rounds: Vec::new(),
            burst: 6,
            gap_us: 1,
            line_bps: 100_000_000,
            wait_ms: 1,
        };
        let tried = |plan: crate::plan::ProbePlan| {
            check(&options, &serde_json::to_string(&("run", Task::Probe(plan))).unwrap())
        };
        assert_eq!(tried(plan.clone()), Ok(()));
        let fast = crate::plan::ProbePlan { line_bps: 100_000_001, ..plan.clone() };
        assert!(tried(fast).unwrap_err().contains("more than"));
        let long = crate::plan::ProbePlan { wait_ms: 10_001, ..plan.clone() };
        assert!(tried(long).unwrap_err().contains("at most 10000"));
        // Times that together are more than a number holds.
        for (rounds, gap_us, wait_ms) in [(0, 1, u64::MAX), (9, u64::MAX, u64::MAX)] {
            let rounds = vec![Vec::new(); rounds];
            let endless = crate::plan::ProbePlan { rounds, gap_us, wait_ms, ..plan.clone() };
            assert!(tried(endless).unwrap_err().contains("at most 10000"));
        }
        let inside = crate::plan::ProbePlan { wire: WirePlan::Switch("x".to_owned()), ..plan };
        assert!(tried(inside).unwrap_err().contains("UDP alone"));
        assert!(check(&options, "{}").unwrap_err().contains("malformed"));
    }
}
