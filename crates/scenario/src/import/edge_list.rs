//! An edge list: a table of cables with the names of their ends.
//!
//! The first line names the columns, in any order and with comma, semicolon or tab between them.
//! Two columns are the ends (`a,b`, `source,target`, `src,dst`, `from,to`, `node1,node2`, or
//! NetBox's `side_a_device,side_b_device`); the others are optional: `rate`, `delay`, `length` as
//! people write them, or as plain numbers in `rate_bps`, `rate_gbps`, `delay_ns`, `length_m`;
//! `count` of cables side by side; `a_kind` and `b_kind` (`nic` or `switch`); `a_model` and
//! `b_model`.
//!
//! Which names are endpoints: what a kind says; else names that have one cable only; else names
//! that sound like a host. NICs of one server share what stands before the last `/` or `:` of their
//! names (`node3/nic0`).

use std::collections::BTreeMap;

use fabric::topology::{EdgeConfig, GraphConfig, SwitchConfig};
use units::{Budget, Length, Rate, Span};

use super::{LineError, by_server, server_of};

/// Names of columns, and what they mean.
const COLUMNS: &[(&str, &[&str])] = &[
    ("a", &["a", "source", "src", "from", "node1", "side_a_device", "a_device", "endpoint_a"]),
    ("b", &["b", "target", "dst", "to", "node2", "side_b_device", "b_device", "endpoint_b"]),
    ("rate", &["rate", "bandwidth", "speed"]),
    ("rate_bps", &["rate_bps"]),
    ("rate_gbps", &["rate_gbps", "gbps"]),
    ("delay", &["delay", "latency"]),
    ("delay_ns", &["delay_ns", "latency_ns"]),
    ("length", &["length"]),
    ("length_m", &["length_m"]),
    ("count", &["count", "cables"]),
    ("a_kind", &["a_kind", "source_kind"]),
    ("b_kind", &["b_kind", "target_kind"]),
    ("a_model", &["a_model", "source_model"]),
    ("b_model", &["b_model", "target_model"]),
];

/// Words with which the names of hosts begin.
const HOSTS: &[&str] = &["host", "server", "node", "nic", "gpu", "hca", "dgx", "compute"];

/// What is known of a name.
#[derive(Clone, Debug, Default)]
struct About {
    cables: usize,
    is_endpoint: Option<bool>,
    model: Option<String>,
}

pub(crate) fn read(text: &str, budget: &mut Budget) -> Result<GraphConfig, LineError> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter(text))
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let headers = reader.headers().map_err(|error| wrong(&error))?.clone();
    let columns = columns(&headers)?;
    let mut edges: Vec<EdgeConfig> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut abouts: BTreeMap<String, About> = BTreeMap::new();
    for record in reader.records() {
        let record = record.map_err(|error| wrong(&error))?;
        let line = record.position().map_or(0, |position| position.line() as usize);
        let field = |name: &str| {
            let place = columns.get(name)?;
            record.get(*place).filter(|field| !field.is_empty())
        };
        let edge = edge(&field).map_err(|reason| (line, reason))?;
        let cables = edge.count.unwrap_or(1) as usize;
        for (name, end) in [(&edge.a, "a"), (&edge.b, "b")] {
            let about = abouts.entry(name.clone()).or_insert_with(|| {
                names.push(name.clone());
                About::default()
            });
            about.cables += cables;
            if let Some(kind) = field(&format!("{end}_kind")) {
                about.is_endpoint = Some(is_endpoint(kind).map_err(|reason| (line, reason))?);
            }
            about.model = field(&format!("{end}_model")).map(str::to_owned).or(about.model.take());
        }
        budget.spend_items(1).map_err(|over| (line, over.to_string()))?;
        edges.push(edge);
    }
    Ok(graph(edges, &names, &abouts))
}

fn wrong(error: &csv::Error) -> LineError {
    let line = error.position().map_or(0, |position| position.line() as usize);
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("there are {len} columns, the first line has {expected_len}")
        }
        _ => format!("cannot be read as a table: {error}"),
    };
    (line, reason)
}

fn delimiter(text: &str) -> u8 {
    let first = text.lines().find(|line| !line.starts_with('#') && !line.trim().is_empty());
    let first = first.unwrap_or_default();
    let count = |delimiter: u8| first.bytes().filter(|byte| *byte == delimiter).count();
    [b',', b';', b'\t']
        .into_iter()
        .max_by_key(|&delimiter| (count(delimiter), delimiter == b','))
        .expect("there are three")
}

fn columns(headers: &csv::StringRecord) -> Result<BTreeMap<&'static str, usize>, LineError> {
    let mut columns = BTreeMap::new();
    for (place, header) in headers.iter().enumerate() {
        let header = header.to_lowercase().replace([' ', '-'], "_");
        let meaning = COLUMNS.iter().find(|(_, names)| names.contains(&header.as_str()));
        if let Some((meaning, _)) = meaning {
            columns.entry(*meaning).or_insert(place);
        }
    }
    match (columns.contains_key("a"), columns.contains_key("b")) {
        (true, true) => Ok(columns),
        _ => {
            Err((1, "the first line must name the columns of both ends, such as `a,b`".to_owned()))
        }
    }
}

fn edge<'a>(field: &impl Fn(&str) -> Option<&'a str>) -> Result<EdgeConfig, String> {
    let end = |name: &str| field(name).map(str::to_owned).ok_or(format!("end `{name}` is missing"));
    let number = |name: &str| -> Result<Option<f64>, String> {
        let Some(text) = field(name) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && 0.0 <= *number);
        number.map(Some).ok_or(format!("`{text}` is not a number for `{name}`"))
    };
    let (a, b) = (end("a")?, end("b")?);
    if a == b {
        return Err(format!("`{a}` is joined with itself"));
    }
    let quantity = |error: units::QuantityError| error.to_string();
    let rate: Option<Rate> = field("rate").map(str::parse).transpose().map_err(quantity)?;
    let bps = match (number("rate_bps")?, number("rate_gbps")?) {
        (Some(bps), _) => Some(bps),
        (None, gbps) => gbps.map(|gbps| gbps * 1e9),
    };
    if bps.is_some_and(|bps| !(1.0..1e18).contains(&bps)) {
        return Err("a rate must be above zero and below 10¹⁸ bit/s".to_owned());
    }
    let delay: Option<Span> = field("delay").map(str::parse).transpose().map_err(quantity)?;
    let delay_ns = number("delay_ns")?.map(|ns| Span::from_secs_f64((ns * 1e-9).min(1e6)));
    let length: Option<Length> = field("length").map(str::parse).transpose().map_err(quantity)?;
    let length_m = number("length_m")?.map(|m| Length::from_mm((m * 1e3).round().min(1e9) as u64));
    let count = number("count")?.map(|count| count as u32);
    if count.is_some_and(|count| !(1..=1 << 16).contains(&count)) {
        return Err("`count` must be between 1 and 65536".to_owned());
    }
    Ok(EdgeConfig {
        a,
        b,
        rate: rate.or(bps.map(Rate::from_bps_f64)),
        delay: delay.or(delay_ns),
        length: length.or(length_m),
        count: count.filter(|count| *count != 1),
    })
}

fn is_endpoint(kind: &str) -> Result<bool, String> {
    match kind.to_lowercase().as_str() {
        "nic" | "host" | "server" | "endpoint" | "gpu" | "ca" | "hca" => Ok(true),
        "switch" | "router" => Ok(false),
        other => Err(format!("`{other}` is neither `nic` nor `switch`")),
    }
}

fn graph(
    edges: Vec<EdgeConfig>,
    names: &[String],
    abouts: &BTreeMap<String, About>,
) -> GraphConfig {
    let knows_kinds = abouts.values().any(|about| about.is_endpoint.is_some());
    let has_ends = abouts.values().any(|about| about.cables == 1);
    let is_endpoint = |name: &&String| {
        let about = &abouts[*name];
        let sounds = || {
            let lower = name.to_lowercase();
            HOSTS.iter().any(|word| lower.starts_with(word))
        };
        match about.is_endpoint {
            Some(said) => said,
            None if knows_kinds => false,
            None if has_ends => about.cables == 1,
            None => sounds(),
        }
    };
    let endpoints = names.iter().filter(is_endpoint);
    let (endpoints, nics_per_node) =
        by_server(endpoints.map(|name| (server_of(name).to_owned(), name.clone())).collect());
    let modelled = names.iter().filter(|name| !is_endpoint(name));
    let switches = modelled
        .filter_map(|name| {
            let model = abouts[name].model.clone()?;
            Some(SwitchConfig { name: name.clone(), model: Some(model) })
        })
        .collect();
    GraphConfig { endpoints, nics_per_node, switches, edges }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GraphConfig, LineError> {
        super::read(text, &mut { super::super::BUDGET })
    }

    #[test]
    fn columns_go_by_many_names() {
        let graph = read("source;target;gbps;latency_ns\nh1;s;100;500\nh2;s;100;500\n").unwrap();
        assert_eq!(graph.endpoints, ["h1", "h2"]);
        let expected = EdgeConfig::new("h2", "s", Rate::from_gbps(100), Span::from_ns(500));
        assert_eq!(graph.edges[1], expected);
    }

    #[test]
    fn kinds_win_over_guesses_and_servers_stay_together() {
        let text = "a,a_kind,b,b_kind,rate\n\
                    n0/nic0,nic,leaf0,switch,400Gbps\n\
                    n1/nic0,nic,leaf0,switch,400Gbps\n\
                    n0/nic1,nic,leaf1,switch,400Gbps\n\
                    n1/nic1,nic,leaf1,switch,400Gbps\n\
                    leaf1,switch,stub,switch,400Gbps\n";
        let graph = read(text).unwrap();
        assert_eq!(graph.endpoints, ["n0/nic0", "n0/nic1", "n1/nic0", "n1/nic1"]);
        assert_eq!(graph.nics_per_node, Some(2));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let told = |text: &str| read(text).unwrap_err();
        assert_eq!(told("x,y\n1,2\n").0, 1);
        assert_eq!(told("a,b,rate\nh,s,400\n").0, 2);
        assert!(told("a,b,rate\nh,s,400\n").1.contains("the unit is missing"));
        assert_eq!(
            told("a,b\nh,s\nh,s,t\n"),
            (3, "there are 3 columns, the first line has 2".to_owned())
        );
        assert_eq!(told("a,b\nh,h\n"), (2, "`h` is joined with itself".to_owned()));
        assert_eq!(told("a,b,gbps\nh,s,-1\n").0, 2);
        assert_eq!(
            told("a,b,count\nh,s,0\n"),
            (2, "`count` must be between 1 and 65536".to_owned())
        );
    }
}
