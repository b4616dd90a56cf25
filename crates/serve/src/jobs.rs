//! The queue of runs and their child processes.
//!
//! So many runs compute at a time, in the order in which they were asked for; short questions
//! (checks, presets) have a few places beside it, and a queue of their own. A child process gets a
//! folder of its own with the scenario in it, answers on standard output and tells its progress on
//! standard error; stopping it is killing it. What it may use is said in [`Bounds`].

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::{Semaphore, oneshot};

use crate::Server;
use crate::child::Bounds;
use crate::options::Options;
use crate::shelf::Shelf;
use crate::store::{Run, Status};
use crate::users::User;

/// The most text that a child's last words may have: its end, where the reason stands.
const MAX_MESSAGE: usize = 4 << 10;
/// How much runs give way to the server and to short questions: as much as there is.
const RUN_NICE: u8 = 19;
/// How long a server that ends waits for its runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// What people call it.
    pub name: String,
    /// The command.
    pub command: String,
    /// The engine, or empty.
    pub engine: String,
    /// More words for the command line, such as `all_reduce`.
    pub words: Vec<String>,
    /// Names and texts of the files that the child gets.
    pub scenarios: Vec<(String, String)>,
    /// Who asks.
    pub user: Arc<User>,
}

/// The queue.
#[derive(Debug)]
pub struct Jobs {
    turn: Semaphore,
    /// The same for each person.
    turns: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    /// Places for short questions.
    places: Semaphore,
    /// Short questions that wait or are answered.
    questions: Mutex<BTreeMap<String, usize>>,
    /// How to stop each run that waits or computes; it says what becomes of the run.
    stops: Mutex<Stops>,
}

/// By run: whose it is, and how to stop it.
type Stops = BTreeMap<u64, (String, Option<oneshot::Sender<Status>>)>;

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
            turn: Semaphore::new(options.max_runs.max(1)),
            turns: Mutex::default(),
            places: Semaphore::new(options.max_children.max(1)),
            questions: Mutex::default(),
            stops: Mutex::default(),
        }
    }

    fn stops(&self) -> MutexGuard<'_, Stops> {
        self.stops.lock().expect("no holder panics")
    }

    /// How many runs wait or compute.
    pub fn waiting(&self) -> usize {
        self.stops().len()
    }

    /// How many of them are a person's.
    pub fn waiting_of(&self, user: &User) -> usize {
        self.stops().values().filter(|(owner, _)| *owner == user.name).count()
    }

    /// The turns of a person: so many runs compute at once.
    fn turns_of(&self, options: &Options, user: &User) -> Arc<Semaphore> {
        let most = user.children.unwrap_or(options.max_runs).max(1);
        let mut turns = self.turns.lock().expect("no holder panics");
        turns.entry(user.name.clone()).or_insert_with(|| Arc::new(Semaphore::new(most))).clone()
    }

    /// Stops a run; whether there was anything to stop.
    pub fn stop(&self, id: u64) -> bool {
        let stop = self.stops().get_mut(&id).and_then(|(_, stop)| stop.take());
        stop.is_some_and(|stop| stop.send(Status::Stopped).is_ok())
    }

    /// Ends everything because the server ends, and waits until children and folders are gone.
    pub async fn end_all(&self) {
        for stop in self.stops().values_mut().filter_map(|(_, stop)| stop.take()) {
            // A run that has just ended has nobody who listens.
            let _ = stop.send(Status::Interrupted);
        }
        let mut waited = Duration::ZERO;
        let step = Duration::from_millis(10);
        while 0 < self.waiting() && waited < PATIENCE {
            tokio::time::sleep(step).await;
            waited += step;
        }
    }
}

/// A folder that goes away with this, whatever happens to the future that holds it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(path: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is taken away when the server starts again.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Takes away folders of children of a server that was killed. Nobody else has this workspace.
pub(crate) fn sweep(workspace: &Path) -> io::Result<()> {
    let runs = workspace.join("runs");
    std::fs::create_dir_all(&runs)?;
    for entry in std::fs::read_dir(&runs)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let number = name.strip_prefix("check-").unwrap_or(&name);
        // Only what this server has made.
        if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Puts a run into the queue.
pub fn start(server: &Arc<Server>, asked: RunRequest) -> io::Result<Run> {
    let run = Run {
        id: 0,
        name: asked.name.clone(),
        command: asked.command.clone(),
        engine: asked.engine.clone(),
        status: Status::Waiting,
        message: String::new(),
        asked_at: now(),
        took_s: 0.0,
        owner: asked.user.name.clone(),
    };
    let run = server.store.add(run, &asked.scenarios)?;
    let (stop, stopped) = oneshot::channel();
    server.jobs.stops().insert(run.id, (run.owner.clone(), Some(stop)));
    let (server, id) = (server.clone(), run.id);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = compute(&server, id, &asked) => ended,
            status = stopped => Ok(match status {
                Ok(Status::Stopped) => (Status::Stopped, "stopped".to_owned()),
                _ => (Status::Interrupted, "the server ended while this run was under way".into()),
            }),
        };
        let (status, message) =
            ended.unwrap_or_else(|error| (Status::Failed, format!("the run broke off: {error}")));
        // What cannot be written now is kept until it can.
        let _ = server.store.update(id, |run| {
            run.status = status;
            run.message = message;
        });
        server.jobs.stops().remove(&id);
    });
    Ok(run)
}

/// A child under its bounds, in its folder, with the same surroundings for every command: `PATH`,
/// `HOME`, and the settings that the environment makes.
fn command(
    options: &Options,
    folder: &Folder,
    (memory, time, nice): (u64, Duration, u8),
) -> Command {
    let bounds = Bounds {
        memory,
        cpu_s: time.as_secs().max(1).saturating_mul(options.processors as u64),
        processors: options.processors,
        nice,
        parent: std::process::id(),
    };
    let mut command = Command::new(&options.program);
    command
        .args(["--bounds", &bounds.to_string()])
        .current_dir(&folder.0)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| {
            name == "PATH"
                || name == "HOME"
                || name.to_str().is_some_and(|name| name.starts_with("FATFLOW_SET_"))
        }))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn compute(
    server: &Arc<Server>,
    id: u64,
    asked: &RunRequest,
) -> io::Result<(Status, String)> {
    let never = "the semaphore is never closed";
    // Who has asked for many waits for oneself first.
    let own = server.jobs.turns_of(&server.options, &asked.user);
    let _own = own.acquire().await.expect(never);
    let _turn = server.jobs.turn.acquire().await.expect(never);
    server.store.update(id, |run| run.status = Status::Running)?;
    let options = &server.options;
    let folder = Folder::new(options.workspace.join("runs").join(id.to_string()))?;
    let memory = asked.user.memory.map_or(u64::MAX, units::Bytes::get).min(options.run_memory);
    let mut command = command(options, &folder, (memory, options.run_timeout, RUN_NICE));
    command.arg(&asked.command).args(&asked.words);
    Shelf::of(options, &asked.user).show_in(&folder.0)?;
    for (name, text) in &asked.scenarios {
        // Never through a link to somebody's file.
        let _ = tokio::fs::remove_file(folder.0.join(name)).await;
        tokio::fs::write(folder.0.join(name), text).await?;
    }
    if !asked.engine.is_empty() {
        command.args(["--engine", &asked.engine]);
    }
    command.args(["--json", "--report", "report.html", "--confine", ".", "--progress"]);
    #[expect(clippy::disallowed_methods, reason = "how long a run takes interests people")]
    let began = std::time::Instant::now();
    let timeout = options.run_timeout;
    let ended = tokio::time::timeout(timeout, child(server, id, command)).await;
    let took_s = began.elapsed().as_secs_f64();
    server.store.update(id, |run| run.took_s = took_s)?;
    let Ok(ended) = ended else {
        return Ok((Status::Failed, format!("stopped after {} s", timeout.as_secs())));
    };
    let (status, output, words) = ended?;
    if !status.success() {
        return Ok((Status::Failed, reason(options, status, &words)));
    }
    if options.max_result < output.len() as u64 {
        let most = options.max_result;
        return Ok((Status::Failed, format!("the answer has more than {most} bytes")));
    }
    server.store.keep(id, "result.json", &output)?;
    let film = tokio::fs::read(folder.0.join("fabric.json")).await.unwrap_or_default();
    if !film.is_empty() && film.len() as u64 <= options.max_result {
        server.store.keep(id, "fabric.json", &film)?;
    }
    let report = tokio::fs::read(folder.0.join("report.html")).await.unwrap_or_default();
    if options.max_result < report.len() as u64 {
        return Ok((Status::Done, "the page is too large to be kept".to_owned()));
    }
    if !report.is_empty() {
        server.store.keep(id, "report.html", &report)?;
    }
    Ok((Status::Done, String::new()))
}

/// Why a child failed: its last words, and what killed it if something did.
fn reason(options: &Options, status: ExitStatus, words: &str) -> String {
    let why = match status.signal() {
        None => return words.to_owned(),
        // Rust aborts where memory cannot be had.
        Some(6) => format!("it ended by signal 6: at most {} bytes of memory", options.run_memory),
        Some(24 | 9) => "it was killed: out of processor time, or by the system".to_owned(),
        Some(signal) => format!("it ended by signal {signal}"),
    };
    format!("{words}\n{why}").trim_start().to_owned()
}

/// Runs the child to its end: how it ended, what it answered, and its last words.
async fn child(
    server: &Arc<Server>,
    id: u64,
    mut command: Command,
) -> io::Result<(ExitStatus, Vec<u8>, String)> {
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let output = up_to(stdout, server.options.max_result);
    let words = last_words(stderr, |line| server.store.note(id, line));
    let (output, words) = tokio::join!(output, words);
    let ended = child.wait().await?;
    Ok((ended, output?, words))
}

/// What a stream gives, one byte more than the limit at most; the rest is read and dropped.
async fn up_to(mut stream: impl AsyncRead + Unpin, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (&mut stream).take(limit.saturating_add(1)).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(bytes)
}

/// The end of what a child says, whatever the bytes; `tell` hears each last line on the way.
async fn last_words(mut stream: impl AsyncRead + Unpin, tell: impl Fn(&str)) -> String {
    let mut tail: Vec<u8> = Vec::new();
    let mut block = vec![0; 8 << 10];
    while let Ok(length) = stream.read(&mut block).await
        && 0 < length
    {
        tail.extend_from_slice(&block[..length]);
        let excess = tail.len().saturating_sub(MAX_MESSAGE);
        tail.drain(..excess);
        let text = String::from_utf8_lossy(&tail);
        if let Some(line) = text.trim_end().lines().next_back() {
            tell(&line.chars().take(200).collect::<String>());
        }
    }
    let text = String::from_utf8_lossy(&tail);
    // The first line may have lost its beginning.
    let whole = match tail.len() < MAX_MESSAGE {
        true => &text,
        false => text.split_once('\n').map_or(&*text, |(_, rest)| rest),
    };
    // Lines of progress are of no interest any more.
    let lines = whole.lines().filter(|line| !is_progress(line));
    lines.collect::<Vec<&str>>().join("\n").trim().to_owned()
}

/// Whether a line is one of progress: `31 %, 4 s: one step` or `4 s: one step`.
fn is_progress(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == line.len() {
        return false;
    }
    rest.starts_with(" s: ") || rest.strip_prefix(" %, ").is_some_and(is_progress)
}

/// A short answer from the binary: whether it succeeded, and its standard output.
pub async fn ask(
    server: &Server,
    user: &User,
    arguments: &[&str],
    scenario: Option<&str>,
) -> io::Result<(bool, Vec<u8>)> {
    let Server { options, jobs, .. } = server;
    let _counted = Counted::new(&jobs.questions, options, user)?;
    let _place = jobs.places.acquire().await.expect("the semaphore is never closed");
    let folder = Folder::new(options.workspace.join("runs").join(format!("check-{}", unique())))?;
    if let Some(text) = scenario {
        Shelf::of(options, user).show_in(&folder.0)?;
        tokio::fs::write(folder.0.join("scenario.toml"), text).await?;
    }
    let memory = options.check_memory.min(options.run_memory);
    let time = options.check_timeout.max(Duration::from_secs(1));
    let mut child = command(options, &folder, (memory, time, 0)).args(arguments).spawn()?;
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let answered = async {
        let (output, words) =
            tokio::join!(up_to(stdout, options.max_result), last_words(stderr, |_| {}));
        Ok::<_, io::Error>((child.wait().await?, output?, words))
    };
    let answered = tokio::time::timeout(time, answered).await;
    let (status, output, words) =
        answered.map_err(|_| io::Error::other("checking took too long"))??;
    match status.signal() {
        Some(_) => Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "checking took more than {memory} bytes of memory or {} s: {words}",
                time.as_secs()
            ),
        )),
        None => Ok((status.success(), output)),
    }
}

/// The answer of a question that has one answer, asked once.
pub async fn ask_once(server: &Server, arguments: &[&str]) -> io::Result<(bool, Vec<u8>)> {
    let key = arguments.join(" ");
    let known = server.fixed.lock().expect("no holder panics").get(&key).cloned();
    if let Some(known) = known {
        return Ok((true, known));
    }
    let (found, answer) = ask(server, &User::default(), arguments, None).await?;
    if found {
        server.fixed.lock().expect("no holder panics").insert(key, answer.clone());
    }
    Ok((found, answer))
}

type Questions = Mutex<BTreeMap<String, usize>>;

/// Counts a person's questions while it lives.
#[derive(Debug)]
struct Counted<'a>(&'a Questions, String);

impl<'a> Counted<'a> {
    fn new(questions: &'a Questions, options: &Options, user: &User) -> io::Result<Self> {
        let mut known = questions.lock().expect("no holder panics");
        let (all, own) = (known.values().sum::<usize>(), known.get(&user.name).copied());
        let most = user.questions.unwrap_or(options.max_questions);
        if options.max_questions <= all || most <= own.unwrap_or(0) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "too many questions wait"));
        }
        *known.entry(user.name.clone()).or_default() += 1;
        Ok(Self(questions, user.name.clone()))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut known = self.0.lock().expect("no holder panics");
        if let Some(count) = known.get_mut(&self.1) {
            *count -= 1;
        }
    }
}

/// A number that no other check has.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn last_words_are_the_end_without_progress() {
        let mut said: Vec<u8> = b"1 s: building\n31 %, 2 s: one step\n".to_vec();
        said.extend(vec![b'x'; 3 * MAX_MESSAGE]);
        said.extend(b"\nwarning: \xff odd\nfatflow: the reason\n");
        let words = last_words(&said[..], |_| {}).await;
        assert_eq!(words, "warning: \u{fffd} odd\nfatflow: the reason");
        assert_eq!(last_words(&b"5 s: step\nit broke\n"[..], |_| {}).await, "it broke");
        // A line without an end takes no more memory than any other.
        assert!(last_words(&vec![b'y'; 1 << 20][..], |_| {}).await.len() <= MAX_MESSAGE);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_is_cut_one_byte_behind_its_limit() {
        assert_eq!(up_to(&[7; 100][..], 10).await.unwrap().len(), 11);
        assert_eq!(up_to(&[7; 10][..], 10).await.unwrap().len(), 10);
    }

    #[test]
    fn what_killed_a_child_is_said() {
        let options = Options::new(PathBuf::new(), PathBuf::new());
        let status = ExitStatus::from_raw(6);
        assert!(reason(&options, status, "memory allocation failed").contains("signal 6"));
        assert_eq!(reason(&options, ExitStatus::from_raw(1 << 8), "why"), "why");
    }
}
