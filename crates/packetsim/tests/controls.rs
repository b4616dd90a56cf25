//! What every congestion control does when it is told the same, as a table: a number that changes
//! without a reason is a mistake. (Mutation testing, `tools/mutants.sh`, lives on these.)

use std::fmt::Write;

use packetsim::cc::{Ack, CcConfig, Circumstances, Data, Hop, Loss, Sender};
use serde_json::Value;
use units::{Bytes, Ranges, Rate, Span, Time, UnusedKeys};

/// Two paths: a short one in a fabric, and a long one between sites.
fn paths() -> [(&'static str, Circumstances); 2] {
    let short = Circumstances {
        line: Rate::from_gbps(400),
        base_rtt: Span::from_us(8),
        hops: 4,
        mtu: Bytes::new(4096),
    };
    let long = Circumstances {
        line: Rate::from_gbps(100),
        base_rtt: Span::from_ms(2),
        hops: 6,
        mtu: Bytes::new(1024),
    };
    [("short", short), ("long", long)]
}

/// A sender, what it was told so far, and when.
struct Told<'a> {
    sender: Box<dyn Sender>,
    about: &'a Circumstances,
    now: Time,
    sent: u64,
    through: u64,
    row: String,
}

impl Told<'_> {
    fn note(&mut self, what: &str) {
        let limit = self.sender.limit();
        let (mbps, window) = (limit.rate.as_bps() / 1_000_000, limit.window.get());
        let window = if 1 << 40 < window { "-".to_owned() } else { window.to_string() };
        let next = self.sender.deadline().map_or("-".to_owned(), |at| match at {
            at if at < self.now => "past".to_owned(),
            at => format!("{}", at.since(self.now).as_ps() / 1000),
        });
        let rests = if self.sender.is_resting() { " rests" } else { "" };
        let settles = if self.sender.has_steady_mean() { " settles" } else { "" };
        let coasts = match self.sender.coasts_until() {
            None => "",
            Some(Time::MAX) => " coasts",
            Some(_) => " coasts a while",
        };
        write!(self.row, "{what} {mbps} {window} {next}{rests}{settles}{coasts}; ").unwrap();
    }

    fn send(&mut self, packets: u64) {
        for _ in 0..packets {
            self.sent += self.about.mtu.get();
            self.sender.on_sent(self.now, self.about.mtu);
        }
    }

    /// Acknowledgements, each so late after its packet, with or without a mark, and stamps of two
    /// links with so much in their queues.
    fn acks(&mut self, packets: u64, rtt: f64, marked: bool, queued: u64) {
        let size = self.about.mtu;
        let rtt = Span::from_ps((self.about.base_rtt.as_ps() as f64 * rtt) as u64);
        for _ in 0..packets {
            self.send(1);
            self.now += Span::from_ps(self.about.base_rtt.as_ps() / 40);
            self.through += size.get();
            let at = |links: u64| Time::from_ps(self.now.as_ps() - links * rtt.as_ps() / 10);
            let hop = |links, queued, rate: u64| Hop {
                at: at(links),
                queued: Bytes::new(queued),
                sent: self.through + queued / 2,
                rate_bps: rate,
            };
            let line = self.about.line.as_bps();
            let hops = [hop(9, queued, line), hop(7, queued / 3, 2 * line)];
            let ack = Ack {
                size,
                through: self.through,
                sent_through: self.sent,
                sent_at: Time::from_ps(self.now.as_ps() - rtt.as_ps()),
                marked,
                hops: &hops,
            };
            self.sender.on_ack(self.now, &ack);
        }
    }

    /// Until so many of its deadlines have come.
    fn timers(&mut self, count: u64) {
        for _ in 0..count {
            if let Some(at) = self.sender.deadline() {
                self.now = self.now.max(at);
                self.sender.on_timer(self.now);
            }
        }
    }
}

/// The same story for everybody: a quiet start, marks, notifications, queues, losses, recovery.
fn story(config: &CcConfig, about: &Circumstances) -> String {
    let now = Time::ZERO + Span::from_ms(10);
    let sender = config.build(about);
    let mut told = Told { sender, about, now, sent: 0, through: 0, row: String::new() };
    told.note("begins");
    told.send(8);
    told.note("sends");
    told.acks(60, 1.0, false, 0);
    told.note("acks");
    told.acks(3, 1.3, true, 30_000);
    told.note("marks");
    told.sender.on_notified(told.now);
    told.note("notified");
    told.timers(2);
    told.note("timers");
    told.acks(40, 1.6, true, 400_000);
    told.note("queues");
    for _ in 0..6 {
        told.now += Span::from_us(60);
        told.sender.on_notified(told.now);
    }
    told.note("notified often");
    told.acks(20, 1.2, false, 20_000);
    told.note("less");
    told.acks(200, 1.01, false, 500);
    told.note("little");
    told.timers(12);
    told.note("twelve timers");
    told.acks(10, 6.0, true, 4_000_000);
    told.note("much");
    told.sender.on_loss(told.now, Loss::Reported);
    told.note("loss");
    told.acks(30, 1.0, false, 0);
    told.note("acks");
    told.sender.on_loss(told.now, Loss::Timeout);
    told.note("timeout");
    told.acks(150, 1.0, false, 0);
    told.note("acks");
    told.timers(40);
    told.note("forty timers");
    let (now, span) = (told.now, told.about.base_rtt);
    told.sender.coast(now, span);
    told.now += span;
    told.note("coasts");
    told.acks(400, 1.0, false, 0);
    told.note("acks");
    told.row
}

/// What the receiving half makes of marks: echoes and notifications of packets a microsecond apart.
fn answers(config: &CcConfig) -> String {
    let Some(mut receiver) = config.receiver() else { return "echoes".to_owned() };
    let mut now = Time::ZERO + Span::from_ms(1);
    let told = (0..120).map(|packet| {
        now += Span::from_us(1);
        let data =
            Data { size: Bytes::new(4096), marked: packet % 4 == 0 || (60..70).contains(&packet) };
        let said = receiver.on_data(now, &data);
        match (said.echo, said.notify) {
            (false, false) => '.',
            (true, false) => 'e',
            (false, true) => 'n',
            (true, true) => 'b',
        }
    });
    told.collect()
}

#[test]
fn what_controls_do() {
    let mut table = "after each of it: Mb/s, bytes of the window, ns to the deadline\n".to_owned();
    for (name, config) in CcConfig::defaults() {
        writeln!(table, "{name}: {:?}, window {:?}", config.needs(), config.window()).unwrap();
        writeln!(table, "  answers {}", answers(&config)).unwrap();
        for (path, about) in paths() {
            writeln!(table, "  {path} {}", story(&config, &about)).unwrap();
            writeln!(table, "  finding {:?}", config.finding(&about)).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

/// Every setting by itself at values from far too small to far too large: what is said of it, and
/// what the sender then does.
#[test]
fn what_settings_of_controls_do() {
    let mut table = String::new();
    for (name, config) in CcConfig::defaults() {
        let whole = serde_json::to_value(&config).expect("plain data");
        for (key, value) in whole.as_object().expect("a table").clone() {
            let tried: Vec<Value> = match &value {
                Value::Bool(is) => vec![Value::from(!is)],
                Value::Number(_) => vec![0.into(), 2.into(), 0.3.into(), 1e12.into(), (-1).into()],
                Value::String(text) if text.ends_with('s') => {
                    ["0ps", "70ns", "3us", "900s"].map(Value::from).to_vec()
                }
                Value::String(text) if text.ends_with('B') => {
                    ["0B", "3KiB", "40KiB", "9GiB"].map(Value::from).to_vec()
                }
                Value::String(text) if text.ends_with("bps") => {
                    ["1bps", "40Mbps", "90Gbps", "9000Tbps"].map(Value::from).to_vec()
                }
                _ => Vec::new(),
            };
            for other in tried {
                let mut changed = whole.clone();
                changed[&key] = other.clone();
                let Ok(config) = serde_json::from_value::<CcConfig>(changed) else { continue };
                let wrong = Ranges::of("congestion", &config);
                if let Some(wrong) = wrong.first() {
                    writeln!(table, "{name} {key} {other}: {}", wrong.message).unwrap();
                    continue;
                }
                let mut idle = UnusedKeys::default();
                config.unused(&mut idle);
                let idle = if idle.keys().is_empty() { "" } else { " (something is idle)" };
                let story = story(&config, &paths()[0].1);
                let short: Vec<&str> = story.split("; ").skip(4).step_by(4).collect();
                writeln!(table, "{name} {key} {other}{idle}: {}", short.join("; ")).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}
