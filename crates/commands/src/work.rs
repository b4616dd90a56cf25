//! Synthetic traffic written out for an engine: patterns between NICs, collectives between GPUs.
//!
//! A scenario's loads share the links, each from its own start on. A group of GPUs that runs a
//! collective counts as one flow.

use std::ops::Range;

use scenario::Loaded;
use traffic::collective::{Collective, Communicator, Group, Limit, Wanted};
use traffic::pattern::{self, Flow, Load, Pattern};
use traffic::{OpId, OpKind, Transfers, serving};
use units::{Random, Span};

use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::packets::Patience;

/// What to run: transfers, and for each flow the operation that ends it.
#[derive(Debug)]
pub struct Work {
    /// What the engine runs.
    pub transfers: Transfers,
    /// The flows; a group that runs a collective is one flow, from its first GPU to its last.
    pub flows: Vec<Flow>,
    /// The operation that ends each flow.
    pub ends: Vec<OpId>,
    /// The loads, what is looked at first.
    pub parts: Vec<Part>,
}

/// One load.
#[derive(Clone, Debug)]
pub struct Part {
    /// What results call it.
    pub name: String,
    /// Which of the flows are its own.
    pub flows: Range<usize>,
    /// When it begins.
    pub start: Span,
    /// Which collective it runs, if it is one, and on how many ranks each group does.
    pub collective: Option<(Collective, u32)>,
    /// How many tokens are decoded one after the other, if they are.
    pub tokens: Option<u32>,
}

/// Writes out the scenario's synthetic traffic for an engine.
pub fn work(loaded: &Loaded, engine: Engine, patience: Patience) -> Result<Work, Failure> {
    if !loaded.members.is_empty() {
        let reason = "several jobs (`[[jobs]]`) are for `run` and `sweep`".to_owned();
        return Err(Failure::Run(reason));
    }
    let mut work = Work {
        transfers: Transfers::new(),
        flows: Vec::new(),
        ends: Vec::new(),
        parts: Vec::new(),
    };
    for (number, (load, flows)) in (0..).zip(loaded.loads()?) {
        let first = work.flows.len();
        let first_connection = work.transfers.connections().len();
        let collective = if flows.is_empty() && load.pattern.has_gpus() {
            let random = Random::new(loaded.scenario.seed, "placement", number);
            collectives(loaded, (engine, patience), load, random, &mut work)?
        } else {
            let label = work.transfers.label(load.title());
            let after = |flow| if number == 0 { loaded.after(flow) } else { &[] };
            let (fabric, transfers) = (loaded.fabric(), &mut work.transfers);
            work.ends.extend(pattern::write_after(fabric, &flows, after, label, transfers));
            work.flows.extend(flows);
            None
        };
        work.transfers.set_service_level(first_connection, load.service_level);
        let (name, flows) = (load.title().to_owned(), first..work.flows.len());
        let tokens = (load.pattern == Pattern::Decode).then_some(load.messages);
        work.parts.push(Part { name, flows, start: load.start, collective, tokens });
    }
    if work.flows.is_empty() {
        return Err(Failure::Run("this scenario has no traffic to run".to_owned()));
    }
    Ok(work)
}

/// Writes the collectives of each group of GPUs, one after the other. Returns which it is and the
/// ranks of a group, where it is one alone.
fn collectives(
    loaded: &Loaded,
    (engine, patience): (Engine, Patience),
    load: &Load,
    random: Random,
    work: &mut Work,
) -> Result<Option<(Collective, u32)>, Failure> {
    let (fabric, settings) = (loaded.fabric(), engine::library(loaded));
    let (settings, detail, weights) = (&settings, engine::detail(loaded, engine), &[][..]);
    let calls = serving::calls(load, &loaded.surroundings(load).model);
    let groups = load.groups(fabric, random);
    let times = calls.times * u64::from(load.messages);
    let copies = (groups.len() as u64).saturating_mul(calls.count() * u64::from(load.messages));
    let operations = engine::most_operations(engine, detail, patience);
    let limit = Limit { operations, copies };
    let several = 1 < groups.len();
    let mut ranks = 0;
    for (number, gpus) in groups.iter().enumerate() {
        let nodes: Vec<_> = gpus.iter().map(|gpu| fabric.gpu(*gpu)).collect();
        let mut group = Group::new(Communicator::new(fabric, &nodes));
        ranks = group.communicator.ranks() as u32;
        let title = load.title();
        let name = if several { format!("{title} {number}") } else { title.to_owned() };
        let label = work.transfers.label(name);
        let wait = OpKind::Wait { span: load.start };
        let mut end = work.transfers.add(wait, label, &[]);
        for (collective, bytes) in (0..times).flat_map(|_| calls.each.iter().copied()) {
            let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
            let on = (fabric, engine);
            end = engine::lower(on, &mut group, &wanted, &mut work.transfers, &[end])?.end;
        }
        work.ends.push(end);
        let [src, dst] = [gpus.first(), gpus.last()].map(|gpu| gpu.map_or(0, |gpu| *gpu as u32));
        let (bytes, start, messages) = (calls.bytes(), load.start, load.messages);
        work.flows.push(Flow { src, dst, bytes, start, messages });
    }
    Ok((load.pattern == Pattern::Collective).then_some((load.collective, ranks)))
}
