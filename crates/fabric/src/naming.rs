//! Nodes and links by the names that people give them.
//!
//! A switch or NIC is named as [`Fabric::name`] prints it ("leaf 3", "zone 2 CTSW 5", "NIC 17", or
//! its imported name); links by their two ends with a dash or arrow between them ("leaf 3 - spine
//! 5"): all cables between the two, or one of them by its number ("leaf 3 - spine 5 (2)", as
//! [`Fabric::link_name`] prints it); one of a NIC's as "NIC 17 port 1". "server 3" is its GPUs and
//! NICs. A star stands for any number ("spine *"). Case and repeated blanks do not matter.

use units::Id;

use crate::graph::{Fabric, LinkId, NodeId, NodeKind};

/// A name that nothing has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownName {
    /// What is wrong, in words.
    pub reason: String,
    /// A name that exists.
    pub suggestion: String,
}

impl std::fmt::Display for UnknownName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (try {})", self.reason, self.suggestion)
    }
}

impl std::error::Error for UnknownName {}

/// The nodes that a name stands for.
pub fn nodes(fabric: &Fabric, name: &str) -> Result<Vec<NodeId>, UnknownName> {
    let wanted = words(name);
    // GPUs and NICs are many and numbered: no need to look at each.
    let numbered: Option<(&str, &str)> = match wanted.as_slice() {
        [kind, number] => Some((kind.as_str(), number.as_str())),
        _ => None,
    };
    let numbers = |first: usize, count: usize, number: &str| -> Vec<NodeId> {
        match number.parse::<usize>() {
            Ok(number) if number < count => vec![NodeId::from_index(first + number)],
            Err(_) if number == "*" => (first..first + count).map(NodeId::from_index).collect(),
            _ => Vec::new(),
        }
    };
    let mut found = match numbered {
        Some(("gpu", number)) => numbers(0, fabric.gpus(), number),
        Some(("nic", number)) => numbers(fabric.gpus(), fabric.nics(), number),
        Some(("server", number)) => server(fabric, number),
        _ => Vec::new(),
    };
    if found.is_empty() {
        let first = fabric.gpus();
        let all = (first..fabric.nodes().len()).map(NodeId::from_index);
        let is_numbered = |node: &NodeId| {
            fabric.nodes()[*node].kind == NodeKind::Nic && !fabric.has_imported_names()
        };
        let others = all.filter(|node| !is_numbered(node));
        found = others.filter(|node| matches(&wanted, &fabric.name(*node))).collect();
    }
    if found.is_empty() {
        let suggestion = nearest_name(fabric, name);
        return Err(UnknownName { reason: format!("nothing is called `{name}`"), suggestion });
    }
    Ok(found)
}

/// Whether a name is that of a server.
pub fn is_server(name: &str) -> bool {
    matches!(words(name).as_slice(), [kind, _] if kind == "server")
}

/// The GPUs and NICs of a server, by its number.
fn server(fabric: &Fabric, number: &str) -> Vec<NodeId> {
    let is_it = |server: usize| number == "*" || number.parse() == Ok(server);
    let ends = (0..fabric.gpus() + fabric.nics()).map(NodeId::from_index);
    ends.filter(|node| fabric.server_of(*node).is_some_and(is_it)).collect()
}

/// The link of a NIC's port, both directions: "NIC 17 port 1".
fn port(fabric: &Fabric, name: &str) -> Option<Vec<LinkId>> {
    let words = words(name);
    let [.., port, number] = words.as_slice() else { return None };
    let number: usize = number.parse().ok().filter(|_| port == "port")?;
    let nics = nodes(fabric, &words[..words.len() - 2].join(" ")).ok()?;
    let ports = nics.iter().filter_map(|nic| fabric.ports(*nic).get(number));
    let links: Vec<LinkId> = ports.flat_map(|link| [*link, fabric.reverse(*link)]).collect();
    Some(links).filter(|links| !links.is_empty())
}

/// The links that a name stands for, in both directions: those between two ends, or all of one
/// node's.
pub fn links(fabric: &Fabric, name: &str) -> Result<Vec<LinkId>, UnknownName> {
    // An imported name may have a dash in it, so the whole is tried first.
    let whole = nodes(fabric, name);
    if let Ok(nodes) = whole {
        let forth = nodes.iter().flat_map(|node| fabric.ports(*node));
        let mut links: Vec<LinkId> =
            forth.flat_map(|link| [*link, fabric.reverse(*link)]).collect();
        links.sort_unstable();
        links.dedup();
        return Ok(links);
    }
    if let Some(links) = port(fabric, name) {
        return Ok(links);
    }
    let Some((from, to)) = split(name) else { return Err(whole.expect_err("it was just tried")) };
    let (to, number) = numbered(to);
    let (from, mut to) = (nodes(fabric, from)?, nodes(fabric, to)?);
    to.sort_unstable();
    let ports = from.iter().flat_map(|node| fabric.ports(*node));
    let between: Vec<LinkId> = ports
        .filter(|link| to.binary_search(&fabric.links()[**link].to).is_ok())
        .copied()
        .collect();
    let is_it = |link: &&LinkId| number.is_none_or(|it| it == fabric.number_of(**link).0);
    let wanted = between.iter().filter(is_it);
    let mut links: Vec<LinkId> = wanted.flat_map(|link| [*link, fabric.reverse(*link)]).collect();
    links.sort_unstable();
    links.dedup();
    if let (true, Some(last)) = (links.is_empty(), between.last()) {
        let reason = format!("no cable is `{name}`: there are {}", fabric.number_of(*last).1);
        return Err(UnknownName { reason, suggestion: fabric.link_name(*last) });
    }
    if links.is_empty() {
        let there = from.first().and_then(|node| fabric.ports(*node).first());
        let suggestion = there.map(|link| fabric.link_name(*link)).unwrap_or_default();
        return Err(UnknownName { reason: format!("no cable is `{name}`"), suggestion });
    }
    Ok(links)
}

fn split(name: &str) -> Option<(&str, &str)> {
    [" - ", " – ", " -> ", " → ", " <-> "].iter().find_map(|dash| name.split_once(dash))
}

/// A name without the number of a cable behind it, and the number: "spine 5 (2)".
fn numbered(name: &str) -> (&str, Option<usize>) {
    let inner = name.trim_end().strip_suffix(')').and_then(|name| name.rsplit_once(" ("));
    match inner.and_then(|(name, number)| Some((name, number.parse().ok()?))) {
        Some((name, number)) => (name, Some(number)),
        None => (name, None),
    }
}

fn words(name: &str) -> Vec<String> {
    name.split_whitespace().map(str::to_lowercase).collect()
}

fn matches(wanted: &[String], name: &str) -> bool {
    let mut words = name.split_whitespace();
    let each = wanted.iter().all(|wanted| {
        words.next().is_some_and(|word| wanted == "*" || wanted == &word.to_lowercase())
    });
    each && words.next().is_none()
}

fn nearest_name(fabric: &Fabric, name: &str) -> String {
    let first = name.split_whitespace().next().unwrap_or_default().to_lowercase();
    let leaf = || fabric.leaves().first().map(|leaf| fabric.name(*leaf));
    match first.as_str() {
        "nic" => return "NIC 0".to_owned(),
        "gpu" => return "GPU 0".to_owned(),
        "server" => return "server 0".to_owned(),
        // All of one kind can be named at once, but not all of every kind.
        "*" => {
            let like = leaf().and_then(|leaf| Some(format!("{} *", leaf.rsplit_once(' ')?.0)));
            return like.unwrap_or_else(|| "NIC *".to_owned());
        }
        _ => {}
    }
    // Among the switches, one whose tier sounds right; else the first of them.
    let mut switches = fabric.switches().map(|switch| fabric.name(switch));
    let like = switches.find(|known| !first.is_empty() && known.to_lowercase().contains(&first));
    like.or_else(leaf).unwrap_or_else(|| "NIC 0".to_owned())
}
