//! The requests that the page makes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router, middleware};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Server;
use crate::figures;
use crate::guard::{Guard, guard};
use crate::jobs::{self, Asked};
use crate::store::Run;

/// The commands that the page may start.
const COMMANDS: [&str; 6] = ["run", "traffic", "topo", "collective", "compare", "advise"];
/// The collectives that it may ask for.
const COLLECTIVES: [&str; 5] =
    ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"];
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
    #[expect(clippy::disallowed_methods, reason = "who guesses tokens waits for a minute")]
    let began = std::time::Instant::now();
    let checks = Guard { server: server.clone(), bound, guesses: Arc::default(), began };
    Router::new()
        .route("/", get(|| asset("text/html", include_str!("../assets/index.html"))))
        .route("/app.js", get(|| asset("text/javascript", include_str!("../assets/app.js"))))
        .route("/app.css", get(|| asset("text/css", include_str!("../assets/app.css"))))
        .route("/api/presets", get(presets))
        .route("/api/presets/{name}", get(preset))
        .route("/api/check", post(check))
        .route("/api/set", post(set))
        .route("/api/runs", get(runs).post(start))
        .route("/api/runs/{id}", get(run).delete(remove))
        .route("/api/runs/{id}/stop", post(stop))
        .route("/api/runs/{id}/note", put(note))
        .route("/api/schema", get(schema))
        .route("/api/runs/{id}/{file}", get(file))
        .layer(limit)
        .layer(middleware::from_fn_with_state(checks, guard))
        .with_state(server)
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, format!("{kind}; charset=utf-8"))], text).into_response()
}

fn as_json(bytes: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

async fn presets(State(server): State<Arc<Server>>) -> Answer {
    let (_, output) = jobs::ask(&server, &["presets", "--json"], None).await?;
    Ok(Json(as_json(&output)?).into_response())
}

async fn preset(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Answer {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
        return Err(bad("that is no preset's name"));
    }
    let (found, text) = jobs::ask(&server, &["init", &name], None).await?;
    if !found {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("there is no preset `{name}`")));
    }
    Ok(text.into_response())
}

/// A scenario's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

async fn check(State(server): State<Arc<Server>>, Json(asked): Json<Text>) -> Answer {
    let words = ["check", "scenario.toml", "--print", "--json", "--confine", "."];
    let (_, output) = jobs::ask(&server, &words, Some(&asked.text)).await?;
    Ok(Json(as_json(&output)?).into_response())
}

/// One value to write into a scenario's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    text: String,
    key: String,
    value: String,
}

async fn set(Json(asked): Json<Set>) -> Answer {
    let text = set_value(&asked.text, &asked.key, &asked.value).map_err(bad)?;
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
    table.insert(last, toml_edit::value(value));
    Ok(document.to_string())
}

async fn runs(State(server): State<Arc<Server>>) -> Answer {
    Ok(Json(figures::listed(&server.store, server.store.runs()?)?).into_response())
}

/// What a person writes beside a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    note: String,
}

async fn note(
    State(server): State<Arc<Server>>,
    Path(id): Path<u64>,
    Json(asked): Json<Note>,
) -> Answer {
    known(&server, id)?;
    figures::annotate(&server.store, id, &asked.note)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Every key of a scenario, for completion and help.
async fn schema(State(server): State<Arc<Server>>) -> Answer {
    let (_, output) = jobs::ask(&server, &["schema"], None).await?;
    Ok(Json(as_json(&output)?).into_response())
}

/// What to run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    name: String,
    command: String,
    #[serde(default)]
    engine: String,
    #[serde(default)]
    collective: String,
    scenarios: Vec<String>,
}

async fn start(State(server): State<Arc<Server>>, Json(asked): Json<Start>) -> Answer {
    if !COMMANDS.contains(&asked.command.as_str()) {
        return Err(bad(format!("the command is one of {}", COMMANDS.join(", "))));
    }
    if !["", "analytic", "flow", "packet"].contains(&asked.engine.as_str()) {
        return Err(bad("the engine is analytic, flow or packet"));
    }
    let words = match asked.command.as_str() {
        "collective" if COLLECTIVES.contains(&asked.collective.as_str()) => vec![asked.collective],
        "collective" => return Err(bad(format!("name one of {}", COLLECTIVES.join(", ")))),
        _ => Vec::new(),
    };
    let wanted = if asked.command == "compare" { 2..=MAX_SCENARIOS } else { 1..=1 };
    if !wanted.contains(&asked.scenarios.len()) {
        return Err(bad("that command takes another number of scenarios"));
    }
    if server.options.max_waiting <= server.jobs.waiting() {
        return Err(Refusal(StatusCode::TOO_MANY_REQUESTS, "too many runs wait".to_owned()));
    }
    let name = |at: usize| {
        if at == 0 { "scenario.toml".into() } else { format!("scenario-{}.toml", at + 1) }
    };
    let asked = Asked {
        name: asked.name.chars().take(200).collect(),
        command: asked.command,
        engine: asked.engine,
        words,
        scenarios: asked.scenarios.into_iter().enumerate().map(|(at, t)| (name(at), t)).collect(),
    };
    Ok((StatusCode::CREATED, Json(jobs::start(&server, asked)?)).into_response())
}

fn known(server: &Server, id: u64) -> Result<Run, Refusal> {
    let missing = || Refusal(StatusCode::NOT_FOUND, format!("there is no run {id}"));
    server.store.run(id)?.ok_or_else(missing)
}

async fn run(State(server): State<Arc<Server>>, Path(id): Path<u64>) -> Answer {
    Ok(Json(figures::one(&server.store, known(&server, id)?)?).into_response())
}

async fn remove(State(server): State<Arc<Server>>, Path(id): Path<u64>) -> Answer {
    known(&server, id)?;
    server.jobs.stop(id);
    server.store.remove(id)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn stop(State(server): State<Arc<Server>>, Path(id): Path<u64>) -> Answer {
    known(&server, id)?;
    Ok(Json(json!({ "stopped": server.jobs.stop(id) })).into_response())
}

async fn file(State(server): State<Arc<Server>>, Path((id, name)): Path<(u64, String)>) -> Answer {
    let run = known(&server, id)?;
    let kind = match name.as_str() {
        "report.html" => "text/html; charset=utf-8",
        "result.json" => "application/json",
        name if name.starts_with("scenario") => "text/plain; charset=utf-8",
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
    fn a_value_is_changed_and_the_rest_stays() {
        let text = "# mine\nfrom = \"small-16\"\n\n[network]\nrouting = { qps = 1 } # few\n";
        let changed = set_value(text, "network.routing.qps", "16").unwrap();
        assert!(changed.contains("# mine") && changed.contains("# few"));
        assert!(changed.contains("qps = 16"), "{changed}");
        let word = set_value("", "network.routing.policy", "e-ecmp").unwrap();
        assert!(word.contains("policy = \"e-ecmp\""), "{word}");
        assert!(set_value("x = 1", "x.y", "2").is_err());
        assert!(set_value("= broken", "x", "2").is_err());
        assert!(set_value("", "a..b", "2").is_err());
    }
}
