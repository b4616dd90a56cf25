//! `fatflow observe`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use commands::Failure;
use commands::observe::beside::compare;
use commands::observe::calibrate::{Order, calibrate};
use commands::observe::follow::{Follow, Followed, Place};
use commands::observe::hand_over::{self, Asked, HandedOver};
use commands::observe::read_off::apply;
use commands::observe::http::Page;
use commands::observe::replay::replay;
use commands::observe::series::Sent;
use commands::observe::{self, Report, Watch, cluster};
use scenario::{Loaded, Purpose};
use units::Span;

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// From one look at how much has been read to the next.
const LOOK: Duration = Duration::from_millis(100);

/// Read what a real cluster wrote: logs, benchmarks, traces, captures, counters
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow observe nccl.log
  fatflow observe logs/ tests.txt.gz
  kubectl logs worker-0 | fatflow observe -
  fatflow observe capture.pcapng --report capture.html
  fatflow observe trace-*.json.gz --json | jq '.result.collectives[]'
  fatflow observe all_reduce.txt --scenario my.toml --report beside.html
  fatflow observe all_reduce.txt --scenario my.toml --calibrate calibrated.toml
  fatflow observe topo-m.txt ibnetdiscover.txt nccl.log --write cluster.toml
  fatflow observe traces/ --scenario my.toml --engine flow   (Chakra: as a job on that fabric)
  fatflow observe --follow http://node-0:9100/metrics http://node-1:9100/metrics --every 5s
  fatflow observe --follow http://node-0:9100/metrics --scenario my.toml --every 5s
  fatflow observe --follow snapshots/ --metrics 127.0.0.1:9400 --on-finding ./tell-somebody

Files are told apart by their content; gzip, zstd and tar are unpacked. A folder stands for the
files in it, - for standard input. The exit code is 3 if a file cannot be opened or nothing in any
of them is understood; the answer says which and why.")]
pub(crate) struct Arguments {
    /// Logs, tables, traces, captures, counters; folders; - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Predict every collective and the step on this scenario, and show both side by side; run
    /// Chakra execution traces as a job on its fabric; with --follow, hand measured loads of its
    /// NICs to `advise` when something is found
    #[arg(long, value_name = "SCENARIO")]
    scenario: Option<String>,
    /// Fit the constants that the files determine and write a scenario with them; with closed forms
    /// unless --engine says otherwise
    #[arg(long, value_name = "OUT.toml", requires = "scenario")]
    calibrate: Option<PathBuf>,
    /// Write a scenario of the cluster that the files show: its servers (nvidia-smi topo -m,
    /// rocm-smi --showtopo, logs) and its fabric (ibnetdiscover, Slurm, LLDP tables)
    #[arg(long, value_name = "OUT.toml", conflicts_with_all = ["calibrate", "follow"])]
    write: Option<PathBuf>,
    /// Look at pages of exporters (http://…), folders, files or standard input again and again, and
    /// tell what begins to look wrong, until interrupted
    #[arg(long, conflicts_with = "calibrate")]
    follow: bool,
    /// From one look to the next
    #[arg(long, value_name = "SPAN", requires = "follow", default_value = "5s")]
    every: Span,
    /// Stop following after so long
    #[arg(long = "for", value_name = "SPAN", requires = "follow")]
    lasts: Option<Span>,
    /// Serve what is found as Prometheus metrics, at this address
    #[arg(long, value_name = "HOST:PORT", requires = "follow")]
    metrics: Option<String>,
    /// With --scenario: how long `advise` may look for changes after a finding
    #[arg(long, value_name = "SPAN", requires_all = ["follow", "scenario"], default_value = "30s")]
    advise_for: Span,
    /// Run this command for each finding, with FATFLOW_FINDING, FATFLOW_CODE and FATFLOW_SOURCE
    #[arg(long, value_name = "CMD", requires = "follow")]
    on_finding: Option<String>,
}

/// Asks `advise` on a thread of its own, one finding at a time, while the cluster is followed.
#[derive(Default)]
struct Adviser {
    running: Mutex<Option<JoinHandle<HandedOver>>>,
}

impl Adviser {
    /// Asks, unless it is still busy: what it says then holds for findings that came meanwhile.
    fn ask(&self, asked: &Asked, told: &Followed, loads: Vec<Sent>, stop: &Arc<AtomicBool>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            let (asked, told, stop) = (asked.clone(), told.clone(), Arc::clone(stop));
            let work = move || hand_over::ask(&asked, &told, loads, &stop);
            *running = Some(thread::spawn(work));
        }
    }

    /// What it has said since, if it has.
    fn told(&self) -> Option<HandedOver> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_done = running.as_ref().is_some_and(JoinHandle::is_finished);
        running.take_if(|_| is_done)?.join().ok()
    }

    /// Waits for what it is about to say.
    fn finish(self) -> Option<HandedOver> {
        self.running.into_inner().unwrap_or_else(PoisonError::into_inner)?.join().ok()
    }
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        if self.follow {
            return self.look_again_and_again(terminal);
        }
        let mut report = self.read(terminal);
        let loaded = match &self.scenario {
            Some(scenario) => Some(self.predict(terminal, scenario, &mut report)?),
            None => None,
        };
        if let Some(out) = &self.write {
            report.made = Some(cluster::write(&report, out)?);
        }
        terminal.answer("observe", loaded.as_ref(), &report)?;
        Ok(match terminal.ending() {
            Ending::Done if report.misses_a_file() || !report.has_read_something() => {
                Ending::InvalidInput
            }
            ending => ending,
        })
    }

    /// Follows a running cluster.
    fn look_again_and_again(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let places: Result<Vec<Place>, String> =
            self.files.iter().map(|name| Place::of(name)).collect();
        let places = places.map_err(Failure::Usage)?;
        let every = Duration::from_secs_f64(self.every.as_secs_f64().max(0.01));
        let page = Page::default();
        if let Some(at) = &self.metrics {
            let cannot = |error| Failure::Run(format!("cannot serve metrics at {at}: {error}"));
            let address = page.serve(at).map_err(cannot)?;
            terminal.remark(&format!("metrics: http://{address}/metrics"));
        }
        let asked = self.scenario.as_ref().map(|name| self.asked(terminal, name)).transpose()?;
        let adviser = Adviser::default();
        let mut followed = Follow::default();
        #[expect(clippy::disallowed_methods, reason = "a cluster is followed in real time")]
        let start = Instant::now();
        terminal.interrupt.heeded(|| {
            while !terminal.interrupt.happened.load(Ordering::Relaxed) {
                let now = start.elapsed();
                for told in followed.look(&places, now.as_secs_f64(), every.max(LOOK)) {
                    terminal.remark(&told.words());
                    if told.over_s.is_none() {
                        self.tell(terminal, &told);
                        if let Some(asked) = &asked {
                            let stop = &terminal.interrupt.happened;
                            adviser.ask(asked, &told, followed.sent(), stop);
                        }
                    }
                }
                adviser.told().into_iter().for_each(|advice| {
                    terminal.remark(&advice.words());
                    followed.advice.push(advice);
                });
                page.set(followed.metrics());
                let last = self.lasts.map(|span| Duration::from_secs_f64(span.as_secs_f64()));
                if last.is_some_and(|last| last < start.elapsed() + every) {
                    break;
                }
                let next = every * followed.looks as u32;
                let stops = || terminal.interrupt.happened.load(Ordering::Relaxed);
                while start.elapsed() < next && !stops() {
                    thread::sleep(LOOK.min(next.saturating_sub(start.elapsed())));
                }
            }
        });
        followed.advice.extend(adviser.finish());
        terminal.answer("observe", None, &followed)?;
        Ok(terminal.ending())
    }

    /// What `advise` needs to know of the scenario.
    fn asked(&self, terminal: &Terminal, scenario: &str) -> Result<Asked, Stop> {
        let engine = terminal.engine()?;
        let argument = ScenarioArgument { scenario: scenario.to_owned() };
        let loaded = terminal.load(&argument, Purpose::Run(engine))?;
        let request = terminal.request(Some(scenario), Purpose::Run(engine));
        let budget_s = self.advise_for.as_secs_f64();
        Ok(Asked { request, engine, nics: loaded.fabric().nics(), budget_s })
    }

    /// Runs the user's command for a finding, without waiting for it.
    fn tell(&self, terminal: &Terminal, told: &Followed) {
        let Some(command) = &self.on_finding else { return };
        let child = Command::new("sh")
            .args(["-c", command])
            .env("FATFLOW_FINDING", &told.text)
            .env("FATFLOW_CODE", &told.code)
            .env("FATFLOW_SOURCE", &told.source)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match child {
            Ok(mut child) => drop(thread::spawn(move || child.wait())),
            Err(error) => terminal.remark(&format!("cannot run `{command}`: {error}")),
        }
    }

    /// Puts what a scenario predicts beside what was read, and calibrates it.
    fn predict(
        &self,
        terminal: &Terminal,
        scenario: &str,
        report: &mut Report,
    ) -> Result<Loaded, Stop> {
        let argument = ScenarioArgument { scenario: scenario.to_owned() };
        let loaded = terminal.load(&argument, Purpose::Settings)?;
        let Some(asked) = terminal.engines() else {
            let reason = "observe stands beside one engine: choose one instead of `all`";
            return Err(Failure::Usage(reason.to_owned()).into());
        };
        // A fit predicts every size many times.
        let is_fit = self.calibrate.is_some() && terminal.global.engine.is_none();
        let engine = if is_fit { commands::Engine::Analytic } else { asked };
        terminal.watched(|watch| {
            let mut calibrated = None;
            if let Some(out) = &self.calibrate {
                let set = &terminal.global.set;
                let request = terminal.request(Some(scenario), Purpose::Settings);
                let (loaded, read_off) = apply(&report.summary, request, loaded.clone());
                let order = Order { loaded: &loaded, engine, set, read_off, out };
                report.calibration = Some(calibrate(&report.summary, &order, watch)?);
                let request = terminal.request(out.to_str(), Purpose::Settings);
                calibrated = Some(scenario::load(&request)?);
            }
            let loaded = calibrated.as_ref().unwrap_or(&loaded);
            let mut predicted = compare(&report.summary, loaded, engine, watch)?;
            match replay(&report.observed, loaded, engine, watch) {
                Ok(replayed) => report.replayed = replayed,
                Err(Failure::Run(reason)) => {
                    predicted.left_out.push(format!("the traces are not run again: {reason}"));
                }
                Err(other) => return Err(other),
            }
            report.predicted = Some(predicted);
            Ok::<_, Failure>(())
        })?;
        Ok(loaded)
    }

    /// Reads on a thread of its own, so that somebody can look how far it is.
    fn read(&self, terminal: &Terminal) -> Report {
        let interrupt = Arc::clone(&terminal.interrupt.happened);
        let watch = Watch { interrupt, ..Watch::default() };
        let line = terminal.line("reading");
        let looker = thread::current();
        let total = observe::total_bytes(&self.files);
        let reader = || thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let report = observe::run(&self.files, &watch);
                looker.unpark();
                report
            });
            while !worker.is_finished() {
                thread::park_timeout(LOOK);
                let done = watch.bytes_read.load(Ordering::Relaxed);
                line.tell(&format!("read {} MB", done / 1_000_000), done.min(total), total);
            }
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        terminal.interrupt.heeded(reader)
    }
}
