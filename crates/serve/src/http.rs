//! The requests that the page makes.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router, middleware};
use serde::Deserialize;
use serde_json::json;

use crate::Server;
use crate::figures;
use crate::guard::{Guard, guard};
use crate::jobs::{self, RunRequest};
use crate::shelf::Shelf;
use crate::store::Run;
use crate::users::{User, is_name};

/// The commands that the page may start.
const COMMANDS: [&str; 8] =
    ["run", "traffic", "topo", "collective", "compare", "sweep", "observe", "advise"];
/// The collectives that it may ask for.
const COLLECTIVES: [&str; 5] =
    ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"];
/// What the page lists the names of.
const NAMED: [&str; 4] = ["gpu", "nic", "switch", "model"];
/// Scenarios of one comparison.
const MAX_SCENARIOS: usize = 8;

type Answer = Result<Response, Refusal>;

/// Why a request got no answer.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
            io::ErrorKind::WouldBlock => StatusCode::SERVICE_UNAVAILABLE,
            io::ErrorKind::OutOfMemory => StatusCode::UNPROCESSABLE_ENTITY,
            io::ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

fn bad(text: impl Into<String>) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text.into())
}

/// Everything that can be asked.
pub fn router(server: Arc<Server>, bound: SocketAddr) -> Router {
    let limit = DefaultBodyLimit::max(server.options.max_body);
    let upload = DefaultBodyLimit::max(server.options.max_upload);
    #[expect(clippy::disallowed_methods, reason = "who guesses tokens waits for a minute")]
    let began = std::time::Instant::now();
    let checks = Guard { server: server.clone(), bound, guesses: Arc::default(), began };
    Router::new()
        .route("/", get(|| asset("text/html", include_str!("../assets/index.html"))))
        .route("/app.js", get(|| asset("text/javascript", application()[0].as_str())))
        .route("/app.css", get(|| asset("text/css", application()[1].as_str())))
        .route("/api/presets", get(presets))
        .route("/api/presets/{name}", get(preset))
        .route("/api/names/{kind}", get(names))
        .route("/api/check", post(check))
        .route("/api/set", post(set))
        .route("/api/runs", get(runs).post(start))
        .route("/api/runs/{id}", get(run).delete(remove))
        .route("/api/runs/{id}/stop", post(stop))
        .route("/api/runs/{id}/note", put(note))
        .route("/api/schema", get(schema))
        .route("/api/runs/{id}/{file}", get(file))
        .route("/api/me", get(me))
        .route("/api/login", post(me))
        .route("/api/logout", post(|| async { Json(json!({})) }))
        .route("/api/audit", get(audit))
        .route("/api/files", get(files))
        .layer(limit)
        .route("/api/files/{name}", put(upload_file).get(download).delete(discard).layer(upload))
        .layer(middleware::from_fn_with_state(checks, guard))
        .with_state(server)
}

/// The application's script and style.
fn application() -> &'static [String; 2] {
    static APPLICATION: OnceLock<[String; 2]> = OnceLock::new();
    APPLICATION.get_or_init(|| [embedded::text!("app.js"), embedded::text!("app.css")])
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, format!("{kind}; charset=utf-8"))], text).into_response()
}

/// What a command has answered in JSON; one that did not is out of order.
fn as_json(answer: Vec<u8>) -> Answer {
    match answer.first() {
        Some(b'{') => Ok(([(CONTENT_TYPE, "application/json")], answer).into_response()),
        _ => Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, "no answer in JSON".to_owned())),
    }
}

async fn presets(State(server): State<Arc<Server>>) -> Answer {
    as_json(jobs::ask_once(&server, &["presets", "--json"]).await?.1)
}

async fn preset(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Answer {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
        return Err(bad("that is no preset's name"));
    }
    let (found, text) = jobs::ask_once(&server, &["init", &name]).await?;
    if !found {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("there is no preset `{name}`")));
    }
    Ok(text.into_response())
}

/// The names of one kind that a setting may take, with what each is.
async fn names(State(server): State<Arc<Server>>, Path(kind): Path<String>) -> Answer {
    if !NAMED.contains(&kind.as_str()) {
        return Err(bad(format!("names are of {}", NAMED.join(", "))));
    }
    as_json(jobs::ask_once(&server, &["presets", "--kind", &kind, "--json"]).await?.1)
}

/// A scenario's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

async fn check(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Json(asked): Json<Text>,
) -> Answer {
    let words = ["check", "scenario.toml", "--print", "--json", "--confine", "."];
    as_json(jobs::ask(&server, &user, &words, Some(&asked.text)).await?.1)
}

/// One value to write into a scenario's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    text: String,
    key: String,
    /// Without it, the key is left out.
    #[serde(default)]
    value: Option<String>,
}

async fn set(Json(asked): Json<Set>) -> Answer {
    let Set { text, key, value } = asked;
    let text = value.map_or_else(|| leave_out(&text, &key), |value| set_value(&text, &key, &value));
    let text = text.map_err(bad)?;
    Ok(Json(json!({ "text": text })).into_response())
}

/// The text with one value changed, everything else as it was. The value is TOML; a bare word is
/// a string.
pub fn set_value(text: &str, key: &str, value: &str) -> Result<String, String> {
    let mut document: toml_edit::DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let value: toml_edit::Value =
        value.parse().unwrap_or_else(|_| toml_edit::Value::from(value.to_owned()));
    let parts: Vec<&str> = key.split('.').collect();
    let (last, path) = parts.split_last().ok_or("the key is empty")?;
    if parts.len() > 16 || parts.iter().any(|part| part.is_empty()) {
        return Err(format!("`{key}` is no key"));
    }
    let mut table: &mut dyn toml_edit::TableLike = document.as_table_mut();
    for part in path {
        let item = table.entry(part).or_insert_with(toml_edit::table);
        table = item.as_table_like_mut().ok_or_else(|| format!("`{part}` is no table"))?;
    }
    let is_there = table.get(last).is_some_and(toml_edit::Item::is_array_of_tables);
    match toml_edit::value(value).into_array_of_tables() {
        Ok(tables) => drop(table.insert(last, tables.into())),
        // A list of tables without any is not there.
        Err(plain) if is_there && plain.as_array().is_some_and(toml_edit::Array::is_empty) => {
            drop(table.remove(last));
        }
        Err(plain) => drop(table.insert(last, plain)),
    }
    Ok(document.to_string())
}

/// The text without a key, everything else as it was; of a key that is not there, the text itself.
pub fn leave_out(text: &str, key: &str) -> Result<String, String> {
    let mut document: toml_edit::DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let parts: Vec<&str> = key.split('.').collect();
    let (last, path) = parts.split_last().ok_or("the key is empty")?;
    let mut table: &mut dyn toml_edit::TableLike = document.as_table_mut();
    for part in path {
        match table.get_mut(part).and_then(toml_edit::Item::as_table_like_mut) {
            Some(inner) => table = inner,
            None => return Ok(text.to_owned()),
        }
    }
    table.remove(last);
    Ok(document.to_string())
}

async fn runs(State(server): State<Arc<Server>>, Extension(user): Extension<Arc<User>>) -> Answer {
    let mut runs = server.store.runs()?;
    runs.retain(|run| is_seen(&server, &user, run));
    Ok(Json(figures::listed(&server.store, runs)?).into_response())
}

/// Who asks: what the person may do, and whether there are others.
async fn me(State(server): State<Arc<Server>>, Extension(user): Extension<Arc<User>>) -> Answer {
    let has_users = server.users.is_some();
    let has_token = has_users || server.options.token.is_some();
    let about = json!({ "user": &*user, "has_users": has_users, "has_token": has_token });
    Ok(Json(about).into_response())
}

/// Who did what; where there are several people, each sees what was done in their own name.
async fn audit(State(server): State<Arc<Server>>, Extension(user): Extension<Arc<User>>) -> Answer {
    let mut entries = server.audit.last()?;
    entries.retain(|entry| server.users.is_none() || entry.user == user.name);
    Ok(Json(entries).into_response())
}

async fn files(State(server): State<Arc<Server>>, Extension(user): Extension<Arc<User>>) -> Answer {
    Ok(Json(Shelf::of(&server.options, &user).files()?).into_response())
}

async fn upload_file(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path(name): Path<String>,
    content: Bytes,
) -> Answer {
    Shelf::of(&server.options, &user).put(&name, &content)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn download(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path(name): Path<String>,
) -> Answer {
    let content = Shelf::of(&server.options, &user).read(&name)?;
    // Whatever it is, a browser keeps it and does not show it.
    let kept = [(CONTENT_TYPE, "application/octet-stream"), (CONTENT_DISPOSITION, "attachment")];
    Ok((kept, content).into_response())
}

async fn discard(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path(name): Path<String>,
) -> Answer {
    Shelf::of(&server.options, &user).remove(&name)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What a person writes beside a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    note: String,
}

async fn note(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path(id): Path<u64>,
    Json(asked): Json<Note>,
) -> Answer {
    own(&server, &user, id)?;
    figures::annotate(&server.store, id, &asked.note)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Every key of a scenario, for completion and help.
async fn schema(State(server): State<Arc<Server>>) -> Answer {
    as_json(jobs::ask_once(&server, &["schema"]).await?.1)
}

/// What to run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    name: String,
    command: String,
    #[serde(default)]
    engine: String,
    #[serde(default)]
    collective: String,
    scenarios: Vec<String>,
    /// What the scenarios are called, where that is said.
    #[serde(default)]
    names: Vec<String>,
    /// Of `compare`: a setting with several values, `KEY=VALUE,VALUE`.
    #[serde(default)]
    vary: String,
    /// Of `compare`: the scenario's job on several networks.
    #[serde(default)]
    networks: bool,
    /// Of `compare`: over how many seeds; 0 is the scenario's own.
    #[serde(default)]
    seeds: u8,
    /// Of `sweep`: what varies.
    #[serde(default)]
    grid: String,
    /// Of `observe`: files on the shelf.
    #[serde(default)]
    files: Vec<String>,
}

async fn start(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Json(asked): Json<Start>,
) -> Answer {
    if !COMMANDS.contains(&asked.command.as_str()) {
        return Err(bad(format!("the command is one of {}", COMMANDS.join(", "))));
    }
    if !["", "analytic", "flow", "packet"].contains(&asked.engine.as_str()) {
        return Err(bad("the engine is analytic, flow or packet"));
    }
    let wanted = match asked.command.as_str() {
        "compare" if asked.networks => 1..=1,
        "compare" if !asked.vary.is_empty() => 1..=MAX_SCENARIOS,
        "compare" => 2..=MAX_SCENARIOS,
        "sweep" => 1..=MAX_SCENARIOS,
        "observe" => 0..=1,
        _ => 1..=1,
    };
    if !wanted.contains(&asked.scenarios.len()) {
        return Err(bad("that command takes another number of scenarios"));
    }
    let most = user.waiting.unwrap_or(server.options.max_waiting);
    if server.options.max_waiting <= server.jobs.waiting() || most <= server.jobs.waiting_of(&user)
    {
        return Err(Refusal(StatusCode::TOO_MANY_REQUESTS, "too many runs wait".to_owned()));
    }
    let mut scenarios: Vec<(String, String)> =
        file_names(&asked).into_iter().zip(asked.scenarios.iter().cloned()).collect();
    let words = words(&server, &user, &asked)?;
    if asked.command == "sweep" {
        scenarios.push(("grid.toml".to_owned(), asked.grid));
    }
    let name = asked.name.chars().take(200).collect();
    let asked =
        RunRequest { name, command: asked.command, engine: asked.engine, words, scenarios, user };
    Ok((StatusCode::CREATED, Json(jobs::start(&server, asked)?)).into_response())
}

/// What a scenario's file is called in a child's folder.
fn file_names(asked: &Start) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for at in 0..asked.scenarios.len() {
        let said = asked.names.get(at).map(|name| plain(name)).filter(|name| is_name(name));
        let said = said.map(|name| format!("{name}.toml")).filter(|name| !names.contains(name));
        names.push(said.unwrap_or_else(|| match at {
            0 => "scenario.toml".to_owned(),
            at => format!("scenario-{}.toml", at + 1),
        }));
    }
    names
}

/// A name of plain letters, short enough to stand above a column.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let words: String = name.chars().take(40).map(plain).collect();
    words.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// What follows the command on its line.
fn words(server: &Server, user: &User, asked: &Start) -> Result<Vec<String>, Refusal> {
    let scenarios = file_names(asked).into_iter();
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Ok(match asked.command.as_str() {
        "collective" if COLLECTIVES.contains(&asked.collective.as_str()) => {
            [asked.collective.clone()].into_iter().chain(scenarios).collect()
        }
        "collective" => return Err(bad(format!("name one of {}", COLLECTIVES.join(", ")))),
        "sweep" => own(&["run", "grid.toml", "--out", "study"]),
        "observe" => {
            let shelf = Shelf::of(&server.options, user);
            if asked.files.is_empty() {
                return Err(bad("name the files to read"));
            }
            for name in &asked.files {
                shelf.has(name)?;
            }
            let beside = scenarios.flat_map(|name| ["--scenario".to_owned(), name]);
            asked.files.iter().cloned().chain(beside).collect()
        }
        "compare" => {
            let mut words: Vec<String> = scenarios.collect();
            words.extend(asked.networks.then(|| "--networks".to_owned()));
            words.extend((!asked.vary.is_empty()).then(|| format!("--vary={}", asked.vary)));
            words.extend((1 < asked.seeds).then(|| format!("--seeds={}", asked.seeds)));
            words
        }
        "run" => scenarios.chain(own(&["--fabric-out", "fabric.json"])).collect(),
        _ => scenarios.collect(),
    })
}

/// Whether a person may look at a run.
fn is_seen(server: &Server, user: &User, run: &Run) -> bool {
    user.owns(&run.owner) || server.users.as_ref().is_none_or(|users| users.is_open(&run.owner))
}

fn known(server: &Server, user: &User, id: u64) -> Result<Run, Refusal> {
    let missing = || Refusal(StatusCode::NOT_FOUND, format!("there is no run {id}"));
    server.store.run(id)?.filter(|run| is_seen(server, user, run)).ok_or_else(missing)
}

/// A run that may be changed: one's own.
fn own(server: &Server, user: &User, id: u64) -> Result<Run, Refusal> {
    let run = known(server, user, id)?;
    match user.owns(&run.owner) {
        true => Ok(run),
        false => Err(Refusal(StatusCode::FORBIDDEN, format!("run {id} is {}'s", run.owner))),
    }
}

async fn run(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path(id): Path<u64>,
) -> Answer {
    Ok(Json(figures::one(&server.store, known(&server, &user, id)?)?).into_response())
}

async fn remove(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path(id): Path<u64>,
) -> Answer {
    own(&server, &user, id)?;
    server.jobs.stop(id);
    server.store.remove(id)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn stop(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path(id): Path<u64>,
) -> Answer {
    own(&server, &user, id)?;
    Ok(Json(json!({ "stopped": server.jobs.stop(id) })).into_response())
}

async fn file(
    State(server): State<Arc<Server>>,
    Extension(user): Extension<Arc<User>>,
    Path((id, name)): Path<(u64, String)>,
) -> Answer {
    let run = known(&server, &user, id)?;
    let kind = match name.as_str() {
        "report.html" => "text/html; charset=utf-8",
        "result.json" | "fabric.json" => "application/json",
        name if name.ends_with(".toml") && is_name(name) => "text/plain; charset=utf-8",
        _ => return Err(Refusal(StatusCode::NOT_FOUND, "there is no such file".to_owned())),
    };
    let Some(content) = server.store.file(id, &name)? else {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("run {id} has no {name}")));
    };
    let scripts = report_policy(&content);
    let mut response = ([(CONTENT_TYPE, kind)], content).into_response();
    let headers = response.headers_mut();
    if name == "report.html" {
        headers.insert(CONTENT_SECURITY_POLICY, scripts);
    } else {
        let disposition = format!("attachment; filename=\"fatflow-{}-{name}\"", run.id);
        let value = HeaderValue::from_str(&disposition).expect("digits and known names");
        headers.insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// A report draws itself with the scripts that it carries and names by their digests, and may do
/// nothing else. (Styles are another matter: the charting library writes them as it draws.)
fn report_policy(content: &[u8]) -> HeaderValue {
    let head = String::from_utf8_lossy(&content[..content.len().min(2048)]).into_owned();
    // It stands before anything that a scenario says.
    let named = head.split_once("script-src ").and_then(|(_, rest)| rest.split_once(';'));
    let is_digest = |word: &&str| {
        let inside = word.strip_prefix("'sha256-").and_then(|rest| rest.strip_suffix('\''));
        let plain = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        inside.is_some_and(|inside| inside.chars().all(plain))
    };
    let digests: Vec<&str> =
        named.map(|(named, _)| named.split(' ').filter(is_digest).collect()).unwrap_or_default();
    let scripts = if digests.is_empty() { "'none'".to_owned() } else { digests.join(" ") };
    let policy = format!(
        "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; \
         frame-ancestors 'self'; sandbox allow-scripts allow-downloads"
    );
    HeaderValue::from_str(&policy).expect("digests are plain letters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_may_run_what_it_names_by_digest_and_nothing_else() {
        let policy = |page: &str| report_policy(page.as_bytes()).to_str().unwrap().to_owned();
        let page = "<meta content=\"script-src 'sha256-abc=' 'unsafe-inline' x; style-src\">";
        assert!(policy(page).contains("script-src 'sha256-abc='; style"));
        assert!(policy("no policy").contains("script-src 'none';"));
        assert!(policy("script-src 'sha256-a\nb' ;").contains("script-src 'none';"));
    }

    #[test]
    fn scenarios_are_called_what_people_call_them_or_by_number() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let scenarios = vec![String::new(); 3];
            file_names(&Start {
                command: "compare".to_owned(),
                scenarios,
                names,
                ..Start::default()
            })
        };
        assert_eq!(names(&[]), ["scenario.toml", "scenario-2.toml", "scenario-3.toml"]);
        let odd = names(&["1 Small job", "../../x", "1 Small job"]);
        assert_eq!(odd, ["1-Small-job.toml", "x.toml", "scenario-3.toml"]);
    }

    #[test]
    fn a_value_is_changed_and_the_rest_stays() {
        let text = "# mine\nfrom = \"small-16\"\n\n[network]\nrouting = { qps = 1 } # few\n";
        let changed = set_value(text, "network.routing.qps", "16").unwrap();
        assert!(changed.contains("# mine") && changed.contains("# few"));
        assert!(changed.contains("qps = 16"), "{changed}");
        let word = set_value("", "network.routing.policy", "e-ecmp").unwrap();
        assert!(word.contains("policy = \"e-ecmp\""), "{word}");
        let flap = r#"[{ on = "NIC 0", what = { kind = "link-down" } }]"#;
        let faults = set_value("seed = 1\n[job]\nmodel = 1\n", "faults", flap).unwrap();
        assert!(faults.contains("\n[[faults]]\non = \"NIC 0\"\n"), "{faults}");
        assert!(!set_value(&faults, "faults", "[]").unwrap().contains("faults"));
        assert!(set_value("", "fabric.failed", "[]").unwrap().contains("failed = []"));
        assert!(set_value("x = 1", "x.y", "2").is_err());
        let without =
            |key: &str| leave_out("# mine\na = 1\n[job]\nbatch = { x = 1, y = 2 }\n", key);
        assert_eq!(without("job.batch.x").unwrap(), "# mine\na = 1\n[job]\nbatch = { y = 2 }\n");
        assert_eq!(without("b.c").unwrap(), "# mine\na = 1\n[job]\nbatch = { x = 1, y = 2 }\n");
        assert!(leave_out("= broken", "x").is_err());
        assert!(set_value("= broken", "x", "2").is_err());
        assert!(set_value("", "a..b", "2").is_err());
    }
}
