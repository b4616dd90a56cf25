//! The local server under attack and under a killer: what it refuses, what it limits, and that
//! nothing is left running or lost when it is ended, however that happens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Packets for minutes.
const LONG: &str = "name = \"long\"\n[cluster]\ngpus = 64\n[traffic]\npattern = \"permutation\"\n\
                    bytes = \"8GiB\"\n";
const SHORT: &str =
    "name = \"short\"\n[cluster]\ngpus = 16\n[traffic]\npattern = \"permutation\"\n";
const TOKEN: &str = "0123456789abcdef-token";

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(workspace: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fatflow"))
            .args(["serve", "--listen", "127.0.0.1:0", "--workspace"])
            .arg(workspace)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("fatflow serves at http://");
        let address = address.unwrap_or_else(|| panic!("it does not serve: {line}"));
        Self { address: address.trim_end_matches('/').to_owned(), child }
    }

    /// Status, head and body.
    fn raw(&self, head: &str, body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let text = format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (status, head.to_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {}", self.address), "")
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json",
            self.address
        );
        let (status, _, body) = self.raw(&head, &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    fn start_run(&self, scenario: &str, engine: &str) -> u64 {
        let asked =
            json!({"name": "x", "command": "run", "engine": engine, "scenarios": [scenario]});
        let (status, run) = self.send("POST", "/api/runs", &asked);
        assert_eq!(status, 201, "{run}");
        run["id"].as_u64().unwrap()
    }

    fn run(&self, id: u64) -> Value {
        serde_json::from_str(&self.get(&format!("/api/runs/{id}")).2).unwrap()
    }

    fn wait_for(&self, id: u64, wanted: &[&str]) -> Value {
        let mut run = Value::Null;
        until("a run gets there", || {
            run = self.run(id);
            wanted.contains(&run["status"].as_str().unwrap())
        });
        run
    }

    /// The processes that this server has started and that live.
    fn children(&self) -> Vec<u32> {
        let id = self.child.id();
        let path = format!("/proc/{id}/task/{id}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a test gives up after a minute")]
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process lives; one that nobody has waited for yet does not.
fn lives(id: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn folders(workspace: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(workspace.join("runs")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn children_end_with_the_server_however_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT", "-KILL"] {
        let mut server = Server::start(folder.path(), &[], &[]);
        let id = server.start_run(LONG, "packet");
        server.wait_for(id, &["running"]);
        until("a child computes", || !server.children().is_empty());
        let children = server.children();
        server.signal(signal);
        let ended = server.child.wait().unwrap();
        until("the child has ended", || !children.iter().any(|child| lives(*child)));
        let code = match signal {
            "-TERM" => Some(0),
            "-INT" => Some(130),
            _ => None,
        };
        assert_eq!(ended.code(), code, "{signal}");
        if signal != "-KILL" {
            assert!(folders(folder.path()).is_empty(), "{signal}");
        }
        // Started again, it knows what became of the run, and has tidied up.
        let server = Server::start(folder.path(), &[], &[]);
        assert_eq!(server.run(id)["status"], "interrupted", "{signal}");
        assert!(folders(folder.path()).is_empty(), "{signal}");
    }
}

/// No finished result is lost or doubled by kills at any moment.
#[test]
fn a_killer_loses_nothing_that_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let mut done: Vec<u64> = Vec::new();
    let mut last = 0;
    for round in 0..6_u64 {
        let server = Server::start(folder.path(), &[], &[]);
        for id in &done {
            assert_eq!(server.run(*id)["status"], "done", "run {id} in round {round}");
            assert_eq!(server.get(&format!("/api/runs/{id}/result.json")).0, 200);
        }
        let id = server.start_run(SHORT, "analytic");
        assert!(last < id, "number {id} after {last}");
        last = id;
        if round % 2 == 0 {
            server.wait_for(id, &["done"]);
            done.push(id);
        } else {
            std::thread::sleep(Duration::from_millis(37 * round));
        }
        server.signal(if round % 3 == 0 { "-TERM" } else { "-KILL" });
    }
    assert_eq!(done.len(), 3);
}

#[test]
fn memory_time_and_children_are_limited_and_the_reason_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = ["--memory", "200MB", "--run-seconds", "3"];
    let server = Server::start(folder.path(), &bounds, &[]);
    let large = LONG.replace("gpus = 64", "gpus = 65536");
    let run = server.wait_for(server.start_run(&large, "flow"), &["failed", "done"]);
    let message = run["message"].as_str().unwrap();
    assert_eq!(run["status"], "failed", "{run}");
    assert!(message.contains("memory"), "{run}");
    let run = server.wait_for(server.start_run(LONG, "packet"), &["failed", "done"]);
    let message = run["message"].as_str().unwrap();
    assert!(message.contains("stopped after 3 s") || message.contains("ten minutes"), "{run}");

    // Forty checks at once: a queue, not forty processes.
    let most = std::thread::scope(|scope| {
        let checks: Vec<_> = (0..40)
            .map(|_| scope.spawn(|| server.send("POST", "/api/check", &json!({"text": SHORT})).0))
            .collect();
        let mut most = 0;
        while checks.iter().any(|check| !check.is_finished()) {
            most = most.max(server.children().len());
            std::thread::sleep(Duration::from_millis(2));
        }
        let statuses: Vec<u16> = checks.into_iter().map(|check| check.join().unwrap()).collect();
        assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
        most
    });
    assert!((1..=3).contains(&most), "{most} children at once");
}

#[test]
fn numbers_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[], &[]);
    for wanted in 1..=5 {
        let id = server.start_run(SHORT, "analytic");
        assert_eq!(id, wanted);
        assert_eq!(server.send("DELETE", &format!("/api/runs/{id}"), &json!({})).0, 204);
    }
    let id = server.start_run(SHORT, "analytic");
    let run = server.wait_for(id, &["done", "stopped", "failed"]);
    assert_eq!((run["id"].as_u64(), run["status"].as_str()), (Some(6), Some("done")), "{run}");
}

#[test]
fn settings_of_the_environment_hold_for_checks_and_runs_alike() {
    let folder = tempfile::tempdir().unwrap();
    let environment = [("FATFLOW_SET_network__routing__qps", "wrong")];
    let server = Server::start(folder.path(), &[], &environment);
    let (_, checked) = server.send("POST", "/api/check", &json!({"text": SHORT}));
    assert_eq!(checked["result"]["valid"], false, "{checked}");
    let run = server.wait_for(server.start_run(SHORT, "analytic"), &["done", "failed"]);
    assert_eq!(run["status"], "failed", "{run}");
    assert!(run["message"].as_str().unwrap().contains("FATFLOW_SET_network__routing__qps"));
}

#[test]
fn a_second_server_and_a_damaged_store_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--workspace"]).arg(folder.path());
        let answer = command.env("FATFLOW_TOKEN", token).output().unwrap();
        assert_eq!(answer.status.code(), Some(1));
        String::from_utf8_lossy(&answer.stderr).into_owned()
    };
    let server = Server::start(folder.path(), &[], &[]);
    assert!(refused(TOKEN).contains("another server has this workspace"));
    drop(server);
    assert!(refused("").contains("at least 16 characters"));
    std::fs::write(folder.path().join("fatflow.redb"), "garbage").unwrap();
    assert!(refused(TOKEN).contains("move it away"));
}

#[test]
fn with_a_token_the_host_is_checked_and_guesses_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--token", TOKEN, "--host", "fabrics.example"];
    let server = Server::start(folder.path(), &arguments, &[]);
    let ask = |host: &str, token: &str| {
        server.raw(&format!("GET /api/runs?token={token} HTTP/1.1\r\nHost: {host}"), "")
    };
    let own = server.address.clone();
    assert_eq!(ask("evil.example", TOKEN).0, 421);
    assert_eq!(ask("", TOKEN).0, 421);
    assert_eq!(ask("fabrics.example:8471", TOKEN).0, 200);
    let (status, head, _) = ask(&own, TOKEN);
    assert_eq!(status, 200);
    assert!(head.contains("httponly; samesite=strict"), "{head}");
    let foreign = format!(
        "POST /api/check?token={TOKEN} HTTP/1.1\r\nHost: {own}\r\nOrigin: http://evil.example\r\n\
         Content-Type: application/json"
    );
    assert_eq!(server.raw(&foreign, "{}").0, 403);
    // Who sends none has not guessed; who guesses waits, even with the right one.
    assert!((0..30).all(|_| server.get("/api/runs").0 == 401));
    // The page itself is no secret: it asks for the token.
    assert_eq!(server.get("/").0, 200);
    let guesses: Vec<u16> = (0..12).map(|_| ask(&own, "wrong").0).collect();
    assert_eq!(guesses[..10], [401; 10]);
    assert_eq!(guesses[10..], [429; 2]);
    assert_eq!(ask(&own, TOKEN).0, 429);
}

#[test]
fn a_report_runs_its_own_scripts_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[], &[]);
    let id = server.start_run(SHORT, "analytic");
    server.wait_for(id, &["done"]);
    let (status, head, body) = server.get(&format!("/api/runs/{id}/report.html"));
    assert_eq!(status, 200);
    let policy = head.lines().find(|line| line.starts_with("content-security-policy")).unwrap();
    let scripts = policy.split(';').find(|part| part.contains("script-src")).unwrap();
    assert!(!scripts.contains("unsafe-inline"), "{scripts}");
    assert_eq!(scripts.matches("'sha256-").count(), 3, "{scripts}");
    assert!(body.contains("script-src 'sha256-"));
}
