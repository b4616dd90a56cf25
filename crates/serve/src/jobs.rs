//! The queue of runs and their child processes.
//!
//! One run computes at a time, in the order in which they were asked for. Its child process gets a
//! folder of its own with the scenario in it, answers on standard output and tells its progress on
//! standard error; stopping it is killing it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::{Semaphore, oneshot};

use crate::Server;
use crate::options::Options;
use crate::store::{Run, Status};

/// The most text that a child's last words may have.
const MAX_MESSAGE: usize = 4 << 10;

/// What to run.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What people call it.
    pub name: String,
    /// The command.
    pub command: String,
    /// The engine, or empty.
    pub engine: String,
    /// More words for the command line, such as `all_reduce`.
    pub words: Vec<String>,
    /// Names and texts of the scenarios; most commands take one, `compare` several.
    pub scenarios: Vec<(String, String)>,
}

/// The queue.
#[derive(Debug)]
pub struct Jobs {
    program: PathBuf,
    turn: Arc<Semaphore>,
    /// How to stop each run that waits or computes.
    stops: Mutex<BTreeMap<u64, oneshot::Sender<()>>>,
}

/// Seconds since 1970.
pub fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the server tells people when they asked")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Jobs {
    /// An empty queue.
    pub fn new(options: &Options) -> Self {
        Self {
            program: options.program.clone(),
            turn: Arc::new(Semaphore::new(1)),
            stops: Mutex::default(),
        }
    }

    /// How many runs wait or compute.
    pub fn waiting(&self) -> usize {
        self.stops.lock().expect("no holder panics").len()
    }

    /// Stops a run; says whether it was under way.
    pub fn stop(&self, id: u64) -> bool {
        let stop = self.stops.lock().expect("no holder panics").remove(&id);
        stop.is_some_and(|stop| stop.send(()).is_ok())
    }

    /// Stops everything.
    pub fn stop_all(&self) {
        self.stops.lock().expect("no holder panics").clear();
    }
}

/// Puts a run into the queue.
pub fn start(server: &Arc<Server>, asked: Asked) -> io::Result<Run> {
    let run = Run {
        id: 0,
        name: asked.name.clone(),
        command: asked.command.clone(),
        engine: asked.engine.clone(),
        status: Status::Waiting,
        message: String::new(),
        asked_at: now(),
        took_s: 0.0,
    };
    let run = server.store.add(run, &asked.scenarios)?;
    let (stop, stopped) = oneshot::channel();
    server.jobs.stops.lock().expect("no holder panics").insert(run.id, stop);
    let (server, id) = (server.clone(), run.id);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = compute(&server, id, &asked) => ended,
            _ = stopped => Ok((Status::Stopped, "stopped".to_owned())),
        };
        let (status, message) =
            ended.unwrap_or_else(|error| (Status::Failed, format!("the run broke off: {error}")));
        server.jobs.stops.lock().expect("no holder panics").remove(&id);
        // If the database is gone there is nobody left to tell.
        let _ = server.store.update(id, |run| {
            run.status = status;
            run.message = message;
        });
        let _ = tokio::fs::remove_dir_all(folder(&server.options.workspace, id)).await;
    });
    Ok(run)
}

fn folder(workspace: &Path, id: u64) -> PathBuf {
    workspace.join("runs").join(id.to_string())
}

async fn compute(server: &Arc<Server>, id: u64, asked: &Asked) -> io::Result<(Status, String)> {
    let _turn = server.jobs.turn.acquire().await.expect("the semaphore is never closed");
    server.store.update(id, |run| run.status = Status::Running)?;
    let folder = folder(&server.options.workspace, id);
    tokio::fs::create_dir_all(&folder).await?;
    let mut command = Command::new(&server.jobs.program);
    command.arg(&asked.command).args(&asked.words);
    for (name, text) in &asked.scenarios {
        tokio::fs::write(folder.join(name), text).await?;
        command.arg(name);
    }
    if !asked.engine.is_empty() {
        command.args(["--engine", &asked.engine]);
    }
    command.args(["--json", "--report", "report.html", "--confine", ".", "--progress"]);
    #[expect(clippy::disallowed_methods, reason = "how long a run takes interests people")]
    let began = std::time::Instant::now();
    let timeout = server.options.run_timeout;
    let ended = tokio::time::timeout(timeout, child(server, id, command, &folder)).await;
    let took_s = began.elapsed().as_secs_f64();
    server.store.update(id, |run| run.took_s = took_s)?;
    let Ok(ended) = ended else {
        return Ok((Status::Failed, format!("stopped after {} s", timeout.as_secs())));
    };
    let (succeeded, output, message) = ended?;
    if !succeeded {
        return Ok((Status::Failed, message));
    }
    server.store.keep(id, "result.json", &output)?;
    let report = tokio::fs::read(folder.join("report.html")).await.unwrap_or_default();
    if !report.is_empty() && report.len() as u64 <= server.options.max_result {
        server.store.keep(id, "report.html", &report)?;
    }
    Ok((Status::Done, String::new()))
}

/// Runs the child to its end: whether it succeeded, what it answered, and its last words.
async fn child(
    server: &Arc<Server>,
    id: u64,
    mut command: Command,
    folder: &Path,
) -> io::Result<(bool, Vec<u8>, String)> {
    let mut child = command
        .current_dir(folder)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let answer = async {
        let mut output = Vec::new();
        stdout.take(server.options.max_result).read_to_end(&mut output).await?;
        Ok::<_, io::Error>(output)
    };
    let words = async {
        let mut words = String::new();
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if words.len() + line.len() < MAX_MESSAGE {
                words.push_str(&line);
                words.push('\n');
            }
            let short: String = line.chars().take(200).collect();
            // Progress that cannot be kept is no reason to stop a run.
            let _ = server.store.update(id, |run| run.message = short);
        }
        words
    };
    let (output, words) = tokio::join!(answer, words);
    let ended = child.wait().await?;
    Ok((ended.success(), output?, words.trim_end().to_owned()))
}

/// A short answer from the binary: standard output, standard error and whether it succeeded.
pub async fn ask(
    options: &Options,
    arguments: &[&str],
    scenario: Option<&str>,
) -> io::Result<(bool, Vec<u8>)> {
    let folder = options.workspace.join("runs").join(format!("check-{}", unique()));
    tokio::fs::create_dir_all(&folder).await?;
    if let Some(text) = scenario {
        tokio::fs::write(folder.join("scenario.toml"), text).await?;
    }
    let output = Command::new(&options.program)
        .args(arguments)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(options.check_timeout.max(Duration::from_secs(1)), output);
    let output = output.await;
    tokio::fs::remove_dir_all(&folder).await?;
    let output = output.map_err(|_| io::Error::other("checking took too long"))??;
    Ok((output.status.success(), output.stdout))
}

/// A number that no other check has.
fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
