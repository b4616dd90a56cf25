//! `observe --follow` against an exporter on the loopback, whose fault begins at a known time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// From one look to the next, and how long is looked.
const EVERY: f64 = 0.5;
const LASTS: f64 = 6.5;
/// When the fault begins.
const ONSET: f64 = 3.2;

/// An exporter of four ports that carry steady traffic and lose a packet now and then; from the
/// onset on, one of them loses hundreds a second. Returns its address.
fn exporter(has_fault: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    #[expect(clippy::disallowed_methods, reason = "the exporter's fault begins at a time")]
    let start = Instant::now();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(stream.try_clone().expect("a copy"));
            let mut line = String::new();
            while request.read_line(&mut line).is_ok_and(|count| 2 < count) {
                line.clear();
            }
            let seconds = start.elapsed().as_secs_f64();
            let mut page = String::from("# TYPE node_network_receive_drop_total counter\n");
            for port in 0..4 {
                let hit = has_fault && port == 2 && ONSET < seconds;
                let lost = (0.5 * seconds).floor()
                    + if hit { (400.0 * (seconds - ONSET)).floor() } else { 0.0 };
                page += &format!(
                    "node_network_receive_drop_total{{device=\"eth{port}\"}} {lost}\n\
                     node_network_receive_bytes_total{{device=\"eth{port}\"}} {}\n",
                    (1e9 * seconds).floor()
                );
            }
            // In chunks, as exporters written in Go answer.
            let (a, b) = page.split_at(page.len() / 2);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 {:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n",
                a.len(),
                b.len()
            );
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    address
}

fn follow(address: &str, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fatflow"))
        .args(["observe", "--follow", &format!("http://{address}/metrics"), "--json"])
        .args(["--every", &format!("{EVERY}s"), "--for", &format!("{LASTS}s")])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs")
}

fn answer(child: Child) -> serde_json::Value {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn fetched(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it takes requests");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    page
}

/// The fault is found within two intervals of its onset, told, served and handed to a command; the
/// calm exporter gives nothing.
#[test]
fn a_fault_is_found_within_two_intervals() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = folder.path().join("told");
    let command = format!("echo \"$FATFLOW_CODE\" >> {}", told.display());
    let calm = follow(&exporter(false), &[]);
    let more = ["--metrics", "127.0.0.1:0", "--on-finding", &command];
    let mut hit = follow(&exporter(true), &more);
    let mut lines = BufReader::new(hit.stderr.take().expect("it is piped")).lines();
    let served = lines.next().expect("a line").expect("UTF-8");
    let at = served.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let at = at.unwrap_or_else(|| panic!("{served}")).to_owned();
    let found = lines.next().expect("a finding is told").expect("UTF-8");
    assert!(found.contains("packets are lost or sent again"), "{found}");
    thread::sleep(Duration::from_secs_f64(EVERY));
    let page = fetched(&at);
    assert!(page.contains("fatflow_findings 1\n"), "{page}");
    assert!(page.contains("code=\"losses_rise\""), "{page}");
    let hit = answer(hit);
    let findings = hit["result"]["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), 1, "{findings:?}");
    let one = &findings[0];
    assert_eq!(one["code"], "losses_rise");
    assert!(one["text"].as_str().expect("words").contains("eth2"), "{one}");
    let (at_s, delay_s) = (one["found_s"].as_f64().unwrap(), one["delay_s"].as_f64().unwrap());
    // The exporter's clock starts before the follower's.
    assert!(at_s <= ONSET + 2.0 * EVERY, "found at {at_s} s");
    assert!(delay_s <= 2.0 * EVERY, "{delay_s} s");
    assert_eq!(std::fs::read_to_string(told).expect("it was run"), "losses_rise\n");
    let calm = answer(calm);
    assert_eq!(calm["result"]["findings"].as_array().map(Vec::len), Some(0), "{calm}");
    let looks = calm["result"]["looks"].as_u64().expect("a number");
    assert!(10 <= looks, "only {looks} looks");
}

/// What cannot be looked at is said, and looked at again.
#[test]
fn a_source_that_does_not_answer_is_named() {
    let nowhere = Command::new(env!("CARGO_BIN_EXE_fatflow"))
        .args(["observe", "--follow", "http://127.0.0.1:1/metrics", "--json"])
        .args(["--every", "0.1s", "--for", "0.3s"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let answer = answer(nowhere);
    let source = &answer["result"]["sources"]["http://127.0.0.1:1/metrics"];
    assert!(2 <= source["failed"].as_u64().expect("a number"), "{answer}");
    assert!(source["last_failure"].is_string(), "{answer}");
    for wrong in ["https://a/metrics", "no-such-folder"] {
        let refused = Command::new(env!("CARGO_BIN_EXE_fatflow"))
            .args(["observe", "--follow", wrong])
            .output()
            .expect("the binary runs");
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
    }
}
