//! A running cluster, looked at every few seconds: what begins to look wrong, and when.
//!
//! Sources are pages of exporters or of Prometheus itself (`/federate`), folders into which
//! snapshots and logs are written, and standard input. What counters suddenly do is found by
//! [`super::series`], what logs say by `observe`'s own findings. Each finding says how long ago its
//! onset can be at most: since the look before, when it was not there.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ::observe::Summary;
use report::number::significant;
use report::{Align, Answer, Sheet, Table};
use serde::Serialize;

use super::hand_over::HandedOver;
use super::http::{self, Url};
use super::series::{Detector, Sent, has_counters, parse};

/// The most bytes of a file, or of standard input, that are looked at: its end.
const LONGEST: usize = 64 << 20;

/// Where something is looked at.
#[derive(Clone, Debug)]
pub enum Place {
    /// A page, by its address.
    Page(String, Url),
    /// A folder, or one file.
    Folder(PathBuf),
    /// Standard input.
    Input(Arc<Mutex<Vec<u8>>>),
}

impl Place {
    /// The place that somebody names.
    pub fn of(name: &Path) -> Result<Self, String> {
        match name.to_str() {
            Some("-") => Ok(Self::Input(read_input())),
            Some(text) if text.contains("://") => {
                Ok(Self::Page(text.to_owned(), Url::parse(text)?))
            }
            _ if name.exists() => Ok(Self::Folder(name.to_owned())),
            _ => Err(format!("{}: there is no such file, folder or address", name.display())),
        }
    }

    /// What is there now, by name; or why it cannot be looked at.
    fn look(&self, within: Duration) -> Vec<(String, Result<Vec<u8>, String>)> {
        match self {
            Self::Page(name, url) => {
                let page = http::get(url, within).map_err(|error| error.to_string());
                vec![(name.clone(), page.map(String::into_bytes))]
            }
            Self::Input(text) => {
                let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
                vec![("standard input".to_owned(), Ok(text))]
            }
            Self::Folder(path) => {
                let mut files = files(path);
                files.sort();
                files.iter().map(|file| (file.display().to_string(), end_of(file))).collect()
            }
        }
    }
}

/// Reads standard input on a thread of its own.
fn read_input() -> Arc<Mutex<Vec<u8>>> {
    let text = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&text);
    thread::spawn(move || {
        let (mut input, mut part) = (std::io::stdin().lock(), vec![0; 64 << 10]);
        while let Ok(count @ 1..) = input.read(&mut part) {
            let mut text = kept.lock().unwrap_or_else(PoisonError::into_inner);
            text.extend_from_slice(&part[..count]);
            let more = text.len().saturating_sub(LONGEST);
            text.drain(..more);
        }
    });
    text
}

fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

fn end_of(file: &Path) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    Ok(bytes[bytes.len().saturating_sub(LONGEST)..].to_vec())
}

/// Something that looks wrong, or did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Followed {
    /// A short name that stays.
    pub code: String,
    /// What is wrong.
    pub text: String,
    /// Where it shows.
    pub source: String,
    /// When it was found, in seconds since the first look.
    pub found_s: f64,
    /// The most seconds that may have passed since its onset; none if it was there from the start.
    pub delay_s: Option<f64>,
    /// When it was over, if it is.
    pub over_s: Option<f64>,
}

/// What a source gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Looks {
    /// Looks that gave something.
    pub read: u64,
    /// Looks that failed.
    pub failed: u64,
    /// Why the last of them did.
    pub last_failure: Option<String>,
}

/// What was followed.
#[derive(Debug, Default, Serialize)]
pub struct Follow {
    /// How often everything was looked at.
    pub looks: u64,
    /// Seconds from the first look to the last.
    pub seconds: f64,
    /// Every source.
    pub sources: BTreeMap<String, Looks>,
    /// What was found, in the order of time.
    pub findings: Vec<Followed>,
    /// What `advise` said to measured loads, if a scenario was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<HandedOver>,
    #[serde(skip)]
    detector: Detector,
    /// The place in `findings` of those that are not over, by what they are.
    #[serde(skip)]
    open: BTreeMap<(String, String), usize>,
}

impl Follow {
    /// Looks at all places; returns what began and what ended.
    pub fn look(&mut self, places: &[Place], now_s: f64, within: Duration) -> Vec<Followed> {
        let before = (0 < self.looks).then_some(now_s - self.seconds);
        (self.looks, self.seconds) = (self.looks + 1, now_s);
        let mut told = Vec::new();
        for (name, text) in places.iter().flat_map(|place| place.look(within)) {
            let looks = self.sources.entry(name.clone()).or_default();
            match text {
                Ok(text) => {
                    looks.read += 1;
                    self.read(&name, &text, (now_s, before), &mut told);
                }
                Err(why) => {
                    looks.failed += 1;
                    looks.last_failure = Some(why);
                }
            }
        }
        told
    }

    /// What every NIC sends now.
    pub fn sent(&self) -> Vec<Sent> {
        self.detector.sent()
    }

    fn read(
        &mut self,
        name: &str,
        text: &[u8],
        (now_s, before): (f64, Option<f64>),
        told: &mut Vec<Followed>,
    ) {
        let values = parse(&String::from_utf8_lossy(text));
        for change in self.detector.look(name, now_s, &values) {
            let key = (name.to_owned(), change.series.clone());
            let found = Followed {
                code: change.counts.code().to_owned(),
                text: change.text,
                source: name.to_owned(),
                found_s: now_s,
                delay_s: Some(change.delay_s),
                over_s: None,
            };
            match change.begins {
                true => self.begin(key, found, told),
                false => self.end(&key, now_s, told),
            }
        }
        // Of counters their change counts, not how far they have come since the machine started.
        if has_counters(&values) {
            return;
        }
        let summary = Summary::of(&::observe::read_bytes(name, text));
        let mut now: Vec<(String, String)> = Vec::new();
        for finding in summary.findings {
            // Figures in the text change while it is the same finding.
            let about = finding.text.replace(|c: char| c.is_ascii_digit(), "");
            let key = (name.to_owned(), format!("{}: {about}", finding.code));
            now.push(key.clone());
            let found = Followed {
                code: finding.code.to_owned(),
                text: finding.text,
                source: name.to_owned(),
                found_s: now_s,
                delay_s: before,
                over_s: None,
            };
            self.begin(key, found, told);
        }
        let is_gone =
            |key: &&(String, String)| key.0 == name && key.1.contains(": ") && !now.contains(key);
        let gone: Vec<_> = self.open.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|key| self.end(key, now_s, told));
    }

    fn begin(&mut self, key: (String, String), found: Followed, told: &mut Vec<Followed>) {
        if self.open.contains_key(&key) {
            return;
        }
        self.open.insert(key, self.findings.len());
        self.findings.push(found.clone());
        told.push(found);
    }

    fn end(&mut self, key: &(String, String), now_s: f64, told: &mut Vec<Followed>) {
        if let Some(at) = self.open.remove(key) {
            self.findings[at].over_s = Some(now_s);
            told.push(self.findings[at].clone());
        }
    }

    /// What there is now, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        let mut text = String::from(
            "# HELP fatflow_findings Findings that are not over.\n# TYPE fatflow_findings gauge\n",
        );
        text += &format!("fatflow_findings {}\n", self.open.len());
        text += "# HELP fatflow_finding Something that looks wrong, 1 until it is over.\n\
                 # TYPE fatflow_finding gauge\n";
        for at in self.open.values() {
            text += &format!("fatflow_finding{} 1\n", labels(&self.findings[*at]));
        }
        text += "# HELP fatflow_finding_delay_seconds At most so long after its onset found.\n\
                 # TYPE fatflow_finding_delay_seconds gauge\n";
        for at in self.open.values() {
            let found = &self.findings[*at];
            if let Some(delay) = found.delay_s {
                text += &format!("fatflow_finding_delay_seconds{} {delay}\n", labels(found));
            }
        }
        text +=
            "# HELP fatflow_looks_total Looks at a source.\n# TYPE fatflow_looks_total counter\n";
        for (name, looks) in &self.sources {
            let name = escaped(name);
            for (what, count) in [("read", looks.read), ("failed", looks.failed)] {
                let labels = format!("source=\"{name}\",result=\"{what}\"");
                text += &format!("fatflow_looks_total{{{labels}}} {count}\n");
            }
        }
        text
    }
}

fn labels(found: &Followed) -> String {
    let Followed { code, source, text, .. } = found;
    // The text has figures that change; what it is about does not.
    let about = text.split(" was ").next().unwrap_or(text);
    let [source, about] = [source.as_str(), about].map(escaped);
    format!("{{code=\"{code}\",source=\"{source}\",text=\"{about}\"}}")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Followed {
    /// What is told of it when it begins or ends.
    pub fn words(&self) -> String {
        match (self.over_s, self.delay_s) {
            (Some(over), _) => format!("{over:.1} s: over: {}", self.text),
            (None, Some(delay)) => format!(
                "{:.1} s: {} (found at most {delay:.1} s after its onset)",
                self.found_s, self.text
            ),
            (None, None) => format!("{:.1} s: {} (from the start)", self.found_s, self.text),
        }
    }
}

impl Answer for Follow {
    fn sheet(&self) -> Sheet {
        let heading = format!("Followed for {} s", significant(self.seconds));
        let mut sheet = Sheet::new().heading(heading);
        if self.findings.is_empty() {
            sheet = sheet.text("Nothing looked wrong.");
        } else {
            let names = ["found (s)", "at most after its onset (s)", "over (s)"];
            let numbers = names.map(|name| (name, Align::Right));
            let mut table = Table::new(numbers.into_iter().chain([("finding", Align::Left)]));
            let or_dash = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), significant);
            for one in &self.findings {
                let times = [Some(one.found_s), one.delay_s, one.over_s].map(or_dash);
                table.row(times.into_iter().chain([one.text.clone()]));
            }
            sheet = sheet.table(table);
        }
        let mut table = Table::new([
            ("source", Align::Left),
            ("looks", Align::Right),
            ("failed", Align::Right),
            ("why", Align::Left),
        ]);
        for (name, looks) in &self.sources {
            let why = looks.last_failure.clone().unwrap_or_default();
            table.row([name.clone(), looks.read.to_string(), looks.failed.to_string(), why]);
        }
        sheet = sheet.table(table);
        sheet = self.advice.iter().fold(sheet, |sheet, advice| advice.show(sheet));
        if 0 < self.detector.left_out {
            let more = self.detector.left_out;
            sheet =
                sheet.note(format!("{more} samples of counters beyond the limit were left out"));
        }
        sheet
    }
}
