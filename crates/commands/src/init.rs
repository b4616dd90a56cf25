//! `init`: a file to start from.

use fabric::transport::Transport;
use scenario::source::Source;
use scenario::{Engine, Extent, Loaded, Problem, Purpose, Request, load, preset};
use serde_json::{Map, Value, json};
use step::predict::Assumptions;
use step::validate::{FABRIC_RULE, fabric_of, predict_row, routing_of};

use crate::Failure;
use crate::change::leaves;
use crate::presets::unknown;
use crate::validate::files;

/// The text of a new scenario file that starts from the preset of a request.
///
/// What flags have set is written out: single keys at the top, tables at the end.
///
/// It names the preset and shows, commented out, what the preset says, so that the file stays
/// short and every line that can be changed is in sight. Published figures stay out: they belong
/// to the system that the preset describes, not to what the user makes of it.
pub fn run(name: &str, request: &Request) -> Result<String, Failure> {
    let Some(text) = preset::text(name) else { return Err(unknown(name).into()) };
    let scenario = Some(name.to_owned());
    let environment = Vec::new();
    let request = Request { scenario, environment, extent: Extent::Settings, ..request.clone() };
    let loaded = load(&request)?;
    let title = &loaded.scenario.name;
    let mut file = format!(
        "# A fatflow scenario. Uncomment what you want to change; the rest stays as in the preset,\n\
         # inside tables too: `parallel = {{ tp = 4 }}` keeps its sharding; `init own` has none.\n\
         # `fatflow check --print FILE` shows every value, `fatflow schema` every key.\n\n\
         name = {}\nfrom = \"{name}\"\n",
        toml_text(title)
    );
    let (keys, tables) = flags(&loaded);
    file.push_str(&keys);
    let mut in_published = false;
    let mut is_blank = false;
    for line in text.lines() {
        if line.starts_with('[') {
            in_published = line.starts_with("[[reported]]");
        }
        let replaced = ["name =", "from =", "description ="];
        if in_published || replaced.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        match line.trim() {
            "" => is_blank = true,
            line => {
                let gap = if std::mem::take(&mut is_blank) { "\n" } else { "" };
                let comment = if line.starts_with('#') { "" } else { "# " };
                file.push_str(&format!("{gap}{comment}{line}\n"));
            }
        }
    }
    if !tables.is_empty() {
        file.push_str(&format!("\n# Set with --set:\n{tables}"));
    }
    Ok(file)
}

/// The name that asks for a file that starts from no preset.
pub const OWN: &str = "own";

/// A file for a cluster of one's own, with the lines that most people change; what flags have set
/// stands in its place. A job that would not fit its GPUs' memory is cut or computed again so that
/// it does, where flags have not set that themselves. With the file comes what `check` would say of
/// it, and what was set.
pub fn own(request: &Request) -> Result<(String, Vec<String>), Failure> {
    let environment = Vec::new();
    let request =
        Request { scenario: None, environment, extent: Extent::Settings, ..request.clone() };
    let mut text = preset::own().to_owned();
    let mut set = Vec::new();
    leaves("", &load(&request)?.set_by_flags(), &mut set);
    for (key, value) in &set {
        text = with_key(&text, key, value)?;
    }
    let given = |key: &str| set.iter().any(|(known, _)| known == key);
    let mut said = Vec::new();
    for problem in problems_of(&text) {
        let help = problem.help.clone().unwrap_or_default();
        let fitting = settings_that_fit(&help);
        if fitting.is_empty() || fitting.iter().any(|(key, _)| given(key)) {
            let help = if help.is_empty() { help } else { format!("; {help}") };
            said.push(format!("`fatflow check` will refuse this: {problem}{help}"));
            continue;
        }
        for (key, value) in &fitting {
            text = with_key(&text, key, value)?;
        }
        let what = help.trim_end_matches(" would fit");
        said.push(format!("the usual layout would not fit a GPU, so the file has {what}"));
    }
    Ok((text, said))
}

/// What `check` would refuse of a file.
fn problems_of(text: &str) -> Vec<Problem> {
    let name = "own.toml";
    let (scenario, text) = (Some(name.to_owned()), Some(Source::new(name, text)));
    let purpose = Purpose::Run(Engine::Flow);
    let asked = Request { scenario, text, purpose, ..Request::default() };
    load(&asked).err().map_or_else(Vec::new, |problems| problems.0)
}

/// The settings of a sentence such as `job.parallel.ep = 8 with job.recompute = "full" would fit`.
fn settings_that_fit(help: &str) -> Vec<(String, Value)> {
    let Some(settings) = help.strip_suffix(" would fit") else { return Vec::new() };
    let read = |setting: &str| {
        let (key, value) = setting.split_once(" = ")?;
        let is_key = key.starts_with("job.") && !key.contains(' ');
        is_key.then_some((key.to_owned(), serde_json::from_str(value).ok()?))
    };
    settings.split(" with ").map(read).collect::<Option<_>>().unwrap_or_default()
}

/// The text of a file with this value for a key: where the key stands, or else in its table.
fn with_key(text: &str, key: &str, value: &Value) -> Result<String, Failure> {
    let (home, name) = key.rsplit_once('.').unwrap_or(("", key));
    let written = toml::to_string(&json!({ name: value }));
    let written = written.map_err(|error| Failure::Run(error.to_string()))?;
    let is_line = written.trim_end().lines().count() == 1;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (mut table, mut place) = (String::new(), None);
    for (at, line) in text.lines().enumerate().filter(|_| is_line) {
        if let Some((name, _)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            table = name.to_owned();
        }
        // A line that shows a key as a remark is where it belongs.
        let plain = line.strip_prefix("# ").unwrap_or(line);
        let is_key = plain.split_once('=').is_some_and(|(own, _)| own.trim() == name);
        if table == home && is_key {
            let remark = plain.split_once(" #").map_or("", |(_, remark)| remark);
            let gap = if remark.is_empty() { "" } else { " #" };
            lines[at] = format!("{:<24}{gap}{remark}", written.trim_end()).trim_end().to_owned();
            return Ok(lines.join("\n") + "\n");
        }
        if table == home && (line.starts_with('[') || line.starts_with("name =")) {
            place = Some(at + 1);
        }
    }
    match place {
        Some(place) => lines.insert(place, written.trim_end().to_owned()),
        None => {
            let parents = home.split('.').filter(|word| !word.is_empty()).rev();
            let whole = parents.fold(json!({ name: value }), |inner, word| json!({ word: inner }));
            let whole = toml::to_string(&whole);
            let whole = whole.map_err(|error| Failure::Run(error.to_string()))?;
            lines.push(format!("\n{}", whole.trim_end()));
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// A published step of `validate` as a scenario file: its cluster and fabric by the rule of all
/// rows, its job as published, and what was not published as that rule chooses it.
pub fn published(id: &str, request: &Request) -> Result<String, Failure> {
    let row = files::published(id).ok_or_else(|| {
        Problem::error(format!("no published step is called `{id}`"))
            .with_help("`fatflow validate --json` lists them")
    })?;
    let scenario = load(&Request { extent: Extent::Settings, ..request.clone() })?.scenario;
    let assumptions = Assumptions {
        overheads: scenario.software.clone(),
        jitter: scenario.jitter.clone(),
        ..Assumptions::default()
    };
    let verdict = predict_row(&row, &scenario.catalogue, &assumptions, None);
    let chosen = verdict.map_err(Failure::Run)?.chosen;
    let (cluster, fabric) = fabric_of(&row.cluster);
    let transport = row.cluster.transport.unwrap_or(Transport::Infiniband);
    let mut file = json!({
        "name": row.id,
        "cluster": cluster,
        "fabric": fabric,
        "network": { "transport": transport, "routing": routing_of(&row.cluster) },
        "job": chosen,
    });
    file["job"]["placement"] = json!({ "policy": "linear" });
    let defaults = serde_json::to_value(&scenario).unwrap_or_default();
    without(&mut file, &defaults);
    let table = toml::to_string(&file).map_err(|error| Failure::Run(error.to_string()))?;
    let rule = wrapped(&format!("{}. {FABRIC_RULE}", row.source));
    Ok(format!("# A published step: `fatflow validate` predicts it.\n{rule}\n{table}"))
}

/// Takes away what says nothing, and what is as by default.
fn without(value: &mut Value, defaults: &Value) {
    let Value::Object(fields) = value else { return };
    fields.retain(|key, value| {
        without(value, &defaults[key.as_str()]);
        !value.is_null() && defaults.get(key) != Some(value) && *value != json!({})
    });
}

/// A text as remarks of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in text.split_whitespace() {
        if 100 <= lines[lines.len() - 1].len() + word.len() {
            lines.push(String::from("#"));
        }
        let last = lines.len() - 1;
        lines[last] += &format!(" {word}");
    }
    lines.join("\n") + "\n"
}

/// What flags have set as TOML: keys at the top of the file, and tables. The name has its line.
fn flags(loaded: &Loaded) -> (String, String) {
    let serde_json::Value::Object(set) = loaded.set_by_flags() else { return Default::default() };
    let set = set.into_iter().filter(|(key, _)| key != "name");
    let (tables, keys): (Map<_, _>, Map<_, _>) = set.partition(|(_, value)| value.is_object());
    let text = |map: &Map<_, _>| toml::to_string(map).expect("what TOML gave, TOML can hold");
    (text(&keys), text(&tables))
}

/// A text in TOML's quotes, which are JSON's.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(set: &[&str]) -> String {
        let set = set.iter().map(|text| (*text).to_owned()).collect();
        let (file, said) = own(&Request { set, ..Request::default() }).unwrap();
        assert_eq!(said, [""; 0]);
        file
    }

    /// Experts are spread where the usual layout would not fit; what flags have set stays.
    #[test]
    fn a_file_of_ones_own_fits_memory_and_says_what_it_set() {
        let asked = |set: &[&str]| {
            let set = set.iter().map(|text| (*text).to_owned()).collect();
            own(&Request { set, ..Request::default() }).unwrap()
        };
        let set = ["cluster.gpu=h100-sxm", "cluster.gpus=2048", "job.model=deepseek-v3"];
        let (file, said) = asked(&set);
        assert_eq!(said.len(), 1, "{said:?}");
        let set_it = said[0].starts_with("the usual layout would not fit a GPU, so the file has");
        assert!(set_it && said[0].contains("job.parallel.ep = "), "{said:?}");
        assert!(problems_of(&file).is_empty() && file.contains("\nep = "), "{file}");
        let (file, said) = asked(&[&set[..], &["job.parallel.ep=1"]].concat());
        assert!(
            said[0].starts_with("`fatflow check` will refuse this: a GPU of stage"),
            "{said:?}"
        );
        assert!(file.contains("\nep = 1 "), "{file}");
        let (_, said) = asked(&["cluster.gpu=b200-sxm"]);
        assert!(said[0].ends_with("; try b200"), "{said:?}");
    }

    /// Loaded as a file, it has nothing of a preset, nothing unused and nothing unwise.
    #[test]
    fn a_file_of_ones_own_is_whole_and_has_what_flags_set() {
        let set = [
            "cluster.gpu=h200-sxm",
            "cluster.gpus=512",
            "network.routing.qps=4",
            "library.channels=16",
            "fabric.radix=128",
            "seed=3",
            "faults=[{on=\"NIC 0\", what={kind=\"link-down\"}}]",
        ];
        for set in [&set[..0], &set] {
            let file = asked(set);
            let text = Some(scenario::source::Source::new("own.toml", file.clone()));
            let purpose = scenario::Purpose::Run(crate::Engine::Flow);
            let scenario = Some("own.toml".to_owned());
            let loaded =
                load(&Request { scenario, text, purpose, ..Request::default() }).expect(&file);
            assert!(loaded.warnings.is_empty(), "{file}");
            assert_eq!(loaded.unused, [], "{file}");
            assert_eq!(loaded.inherited(), None);
            let job = loaded.job.unwrap();
            assert_eq!(job.layout.gpus(), if set.is_empty() { 256 } else { 512 });
            let gpu = if set.is_empty() { "h100-sxm" } else { "h200-sxm" };
            assert_eq!(loaded.scenario.cluster.gpu, gpu);
            assert_eq!(loaded.scenario.faults.len(), usize::from(!set.is_empty()));
        }
        let line = "gpu = \"h200-sxm\"         # fatflow presets --kind gpu";
        assert!(asked(&set).contains(line), "{}", asked(&set));
    }
}
