//! Execution traces, run as a job on a scenario's fabric.
//!
//! Every node waits for those that its trace names. Computation takes as long as it took; one GPU
//! computes one thing at a time, and so does its host. A collective begins when all of its group
//! are there and runs as the scenario's library runs it; those of one group come one after the
//! other. A message leaves when its sender is there, and its receiver goes on when it has arrived.
//! Rank `n` is GPU `n` of the scenario.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use ::observe::Observed;
use ::observe::observed::{Does, Kind, RankWork, WorkNode};
use report::number::significant;
use report::{Align, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;
use traffic::collective::{Collective, Communicator, Group, Limit, Wanted};
use traffic::{OpId, OpKind, Outcome, Transfers};
use units::{Bytes, Span};

use super::page::microseconds;
use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::packets::{Budget, Patience};

/// So many of what was left undone are named when a trace does not come to its end.
const NAMED: usize = 3;

/// What the traces come to on a scenario's fabric.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replayed {
    /// The scenario.
    pub scenario: String,
    /// The engine.
    pub engine: &'static str,
    /// Ranks of the job.
    pub ranks: u32,
    /// Nodes that were run.
    pub nodes: u64,
    /// From the start to the end of the last node.
    pub makespan_s: f64,
    /// Computation of the GPU that computes most.
    pub compute_s: f64,
    /// What is not computation on that GPU: communication that nothing hides, and waiting.
    pub exposed_s: f64,
    /// The rank that ends last.
    pub last_rank: u32,
    /// Collectives and messages by kind and size.
    pub calls: Vec<ReplayedCall>,
    /// What was assumed where the traces do not say.
    pub assumptions: Vec<String>,
}

/// A collective, or messages, of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedCall {
    /// What it does.
    pub kind: &'static str,
    /// As nccl-tests counts them.
    pub bytes: u64,
    /// Ranks of its group.
    pub ranks: u32,
    /// How often.
    pub count: u64,
    /// How long one takes here, on average, once all are there.
    pub time_us: f64,
    /// How long one took where it was recorded, if the traces say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_us: Option<f64>,
}

/// The members of a group of ranks.
type Members = Vec<u32>;

/// What is run as one: the node of one rank, or a collective's nodes of all.
struct Item {
    /// By rank, its node.
    nodes: Vec<(usize, usize)>,
    does: Job,
    start_us: u64,
}

/// What an item does.
#[derive(Clone, Copy)]
enum Job {
    Compute {
        rank: u32,
        us: f64,
        on_host: bool,
    },
    Collective {
        kind: Kind,
        bytes: u64,
        group: usize,
        us: f64,
    },
    Send {
        from: u32,
        to: u32,
        bytes: u64,
    },
    /// Waits for the item that sends.
    Receive {
        sender: Option<usize>,
    },
}

/// The traces of a job, put together.
struct Plan<'a> {
    works: Vec<&'a RankWork>,
    ranks: Vec<u32>,
    items: Vec<Item>,
    groups: Vec<Members>,
    assumptions: BTreeSet<String>,
}

/// Runs the execution traces that were read on a scenario's fabric; none if there are none.
pub fn replay(
    observed: &Observed,
    loaded: &Loaded,
    engine: Engine,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Option<Replayed>, Failure> {
    let works: Vec<&RankWork> =
        observed.workloads.iter().filter(|work| !work.nodes.is_empty()).collect();
    if works.is_empty() {
        return Ok(None);
    }
    let gpus = loaded.fabric().gpus() as u32;
    let mut plan = Plan::of(works, &observed.groups, gpus)?;
    let most = plan.groups.iter().flatten().chain(&plan.ranks).max().copied().unwrap_or(0);
    if gpus <= most {
        let reason = format!("the traces have a rank {most}, and the scenario {gpus} GPUs");
        return Err(Failure::Run(format!("{reason}: --set cluster.gpus={}", most + 1)));
    }
    let written = plan.write(loaded, engine)?;
    watch.expected_events =
        engine::estimate(loaded, engine, &written.transfers, &mut Budget::new(Patience::Usual))?;
    let outcome = engine::observe(loaded, engine, &written.transfers, (None, None), watch)?.outcome;
    plan.told(&written, &outcome, loaded, engine).map(Some)
}

impl<'a> Plan<'a> {
    fn of(
        works: Vec<&'a RankWork>,
        named: &BTreeMap<String, Vec<u32>>,
        gpus: u32,
    ) -> Result<Self, Failure> {
        let lost: u64 = works.iter().map(|work| work.left_out).sum();
        if 0 < lost {
            let reason = format!("{lost} nodes are more than are kept: give fewer traces");
            return Err(Failure::Run(reason));
        }
        let ranks: Vec<u32> =
            works.iter().zip(0..).map(|(work, at)| work.rank.unwrap_or(at)).collect();
        let everybody: BTreeSet<u32> = ranks.iter().copied().collect();
        if everybody.len() < ranks.len() {
            let reason = "two traces are of the same rank: their names must end in its number";
            return Err(Failure::Run(format!("{reason}, as in job.3.et")));
        }
        let (items, groups, assumptions) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut plan = Self { works, ranks, items, groups, assumptions };
        let mut everybody: Members = everybody.into_iter().collect();
        if everybody.len() == 1 {
            everybody = (0..gpus).collect();
            let all = format!("one trace stands for all {gpus} GPUs of the scenario");
            plan.assumptions.insert(all);
        }
        plan.gather(named, &everybody);
        Ok(plan)
    }

    /// Who is in a group: as a file says; else all whose traces name it.
    fn members(
        &mut self,
        name: &str,
        named: &BTreeMap<String, Vec<u32>>,
        everybody: &Members,
    ) -> Members {
        if let Some(members) = named.get(name) {
            return members.clone();
        }
        if name.is_empty() || self.ranks.len() == 1 {
            return everybody.clone();
        }
        let says = |node: &WorkNode| match &node.does {
            Does::Collective { group, .. } => group == name,
            _ => false,
        };
        let with = self.works.iter().zip(&self.ranks);
        let mut members: Members =
            with.filter(|(work, _)| work.nodes.iter().any(says)).map(|(_, rank)| *rank).collect();
        members.sort_unstable();
        let text = "groups are the ranks whose traces name them: no file of groups was given";
        self.assumptions.insert(text.to_owned());
        members
    }

    /// Makes items of nodes: the same collective of all ranks of a group is one.
    fn gather(&mut self, named: &BTreeMap<String, Vec<u32>>, everybody: &Members) {
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let mut joint: BTreeMap<(usize, Kind, u64, u64), usize> = BTreeMap::new();
        let mut sends: BTreeMap<(u32, u32, u64, u64), usize> = BTreeMap::new();
        let mut receives: Vec<(usize, (u32, u32, u64, u64))> = Vec::new();
        for at in 0..self.works.len() {
            let (work, rank) = (self.works[at], self.ranks[at]);
            let mut order: Vec<usize> = (0..work.nodes.len()).collect();
            order.sort_by_key(|node| (work.nodes[*node].start_us, work.nodes[*node].id));
            let mut calls: BTreeMap<(usize, Kind, u64), u64> = BTreeMap::new();
            let mut messages: BTreeMap<(u32, u32, u64, bool), u64> = BTreeMap::new();
            for node in order {
                let place = (at, node);
                let WorkNode { does, start_us, .. } = &work.nodes[node];
                let item = |does: Job| Item { nodes: vec![place], does, start_us: *start_us };
                match does {
                    Does::Compute { us, on_host } => {
                        let (us, on_host) = (*us, *on_host);
                        self.items.push(item(Job::Compute { rank, us, on_host }));
                    }
                    Does::Collective { kind, bytes, group, us } => {
                        let number = match known.get(group) {
                            Some(number) => *number,
                            None => {
                                let members = self.members(group, named, everybody);
                                self.groups.push(members);
                                known.insert(group.clone(), self.groups.len() - 1);
                                self.groups.len() - 1
                            }
                        };
                        let turn = calls.entry((number, *kind, *bytes)).or_default();
                        let key = (number, *kind, *bytes, *turn);
                        *turn += 1;
                        if let Some(same) = joint.get(&key) {
                            self.items[*same].nodes.push(place);
                            continue;
                        }
                        joint.insert(key, self.items.len());
                        let (kind, bytes, group, us) = (*kind, *bytes, number, *us);
                        self.items.push(item(Job::Collective { kind, bytes, group, us }));
                    }
                    Does::Message { from, to, tag, bytes, is_send } => {
                        let turn = messages.entry((*from, *to, *tag, *is_send)).or_default();
                        let key = (*from, *to, *tag, *turn);
                        *turn += 1;
                        match is_send {
                            true => {
                                sends.insert(key, self.items.len());
                                let (from, to, bytes) = (*from, *to, *bytes);
                                self.items.push(item(Job::Send { from, to, bytes }));
                            }
                            false => {
                                receives.push((self.items.len(), key));
                                self.items.push(item(Job::Receive { sender: None }));
                            }
                        }
                    }
                }
            }
        }
        for (item, key) in receives {
            let sender = sends.get(&key).copied();
            if sender.is_none() {
                let text = "messages whose sender has no trace are there when they are wanted";
                self.assumptions.insert(text.to_owned());
            }
            self.items[item].does = Job::Receive { sender };
        }
    }

    /// For each item those that it waits for.
    fn waits(&mut self) -> Vec<BTreeSet<usize>> {
        let mut places: Vec<BTreeMap<u64, usize>> = vec![BTreeMap::new(); self.works.len()];
        for (number, item) in self.items.iter().enumerate() {
            for (at, node) in &item.nodes {
                places[*at].insert(self.works[*at].nodes[*node].id, number);
            }
        }
        let mut absent = 0_u64;
        let mut waits = Vec::with_capacity(self.items.len());
        for (number, item) in self.items.iter().enumerate() {
            let mut of: BTreeSet<usize> = BTreeSet::new();
            for (at, node) in &item.nodes {
                for id in &self.works[*at].nodes[*node].after {
                    match places[*at].get(id) {
                        Some(earlier) => drop(of.insert(*earlier)),
                        None => absent += 1,
                    }
                }
            }
            if let Job::Receive { sender: Some(sender) } = item.does {
                of.insert(sender);
            }
            of.remove(&number);
            waits.push(of);
        }
        if 0 < absent {
            let text = format!("{absent} waits for nodes that are not there are left out");
            self.assumptions.insert(text);
        }
        waits
    }

    /// An order in which everything comes behind what it waits for.
    fn order(&self, waits: &[BTreeSet<usize>]) -> Result<Vec<usize>, Failure> {
        let mut left: Vec<usize> = waits.iter().map(BTreeSet::len).collect();
        let mut behind: Vec<Vec<usize>> = vec![Vec::new(); waits.len()];
        for (item, of) in waits.iter().enumerate() {
            of.iter().for_each(|earlier| behind[*earlier].push(item));
        }
        let ready = |item: usize| Reverse((self.items[item].start_us, item));
        let mut heap: BinaryHeap<_> =
            (0..waits.len()).filter(|item| left[*item] == 0).map(ready).collect();
        let mut order = Vec::with_capacity(waits.len());
        while let Some(Reverse((_, item))) = heap.pop() {
            order.push(item);
            for later in &behind[item] {
                left[*later] -= 1;
                if left[*later] == 0 {
                    heap.push(ready(*later));
                }
            }
        }
        if order.len() == waits.len() {
            return Ok(order);
        }
        let stuck = (0..waits.len()).filter(|item| 0 < left[*item]).take(NAMED);
        let name = |item: usize| {
            let (at, node) = self.items[item].nodes[0];
            format!("node {} of {}", self.works[at].nodes[node].id, self.works[at].file)
        };
        let stuck: Vec<String> = stuck.map(name).collect();
        let count = waits.len() - order.len();
        let reason = format!("{count} nodes wait for each other, such as {}", stuck.join(", "));
        Err(Failure::Run(format!("{reason}: the ranks' collectives do not agree")))
    }

    /// Writes everything for an engine.
    fn write(&mut self, loaded: &Loaded, engine: Engine) -> Result<Written, Failure> {
        let waits = self.waits();
        let order = self.order(&waits)?;
        let mut writer = Writer::new(loaded, engine, self);
        for item in order {
            let before = waits[item].iter().filter_map(|earlier| writer.written.ends[*earlier]);
            let after: Vec<OpId> = before.collect();
            writer.item(item, &self.items[item], after)?;
        }
        let Writer { written, mut assumptions, .. } = writer;
        self.assumptions.append(&mut assumptions);
        Ok(written)
    }

    /// What a run of it came to.
    fn told(
        self,
        written: &Written,
        outcome: &Outcome,
        loaded: &Loaded,
        engine: Engine,
    ) -> Result<Replayed, Failure> {
        let finish = |op: OpId| outcome.ops[op].map(|times| times.finish.as_secs_f64());
        let mut calls: BTreeMap<(Kind, u64, u32), Calls> = BTreeMap::new();
        let mut computes: BTreeMap<u32, f64> = BTreeMap::new();
        let (mut makespan_s, mut last_rank) = (0.0, 0);
        for (number, item) in self.items.iter().enumerate() {
            let end = written.ends[number].and_then(finish);
            let Some(end) = end else {
                let words = outcome.findings.iter().map(|f| format!("{}: {}", f.at, f.text)).next();
                let words = words.unwrap_or_else(|| "the run was stopped".to_owned());
                return Err(Failure::Run(format!("the traces do not come to their end: {words}")));
            };
            if makespan_s < end {
                (makespan_s, last_rank) = (end, self.ranks[item.nodes[0].0]);
            }
            let began = written.afters[number].iter().filter_map(|op| finish(*op));
            let took_us = 1e6 * (end - began.fold(0.0, f64::max));
            let (key, recorded) = match item.does {
                Job::Compute { rank, us, on_host } => {
                    *computes.entry(rank).or_default() += if on_host { 0.0 } else { 1e-6 * us };
                    continue;
                }
                Job::Collective { kind, bytes, group, us } => {
                    let ranks = self.groups[group].len() as u32;
                    ((kind, whole(kind, bytes, ranks), ranks), us)
                }
                Job::Send { bytes, .. } => ((Kind::SendRecv, bytes, 2), 0.0),
                Job::Receive { .. } => continue,
            };
            let call = calls.entry(key).or_default();
            call.count += 1;
            call.us += took_us;
            if 0.0 < recorded {
                call.recorded = (call.recorded.0 + recorded, call.recorded.1 + 1.0);
            }
        }
        let compute_s = computes.values().copied().fold(0.0, f64::max);
        let call = |((kind, bytes, ranks), call): ((Kind, u64, u32), Calls)| ReplayedCall {
            kind: kind.name(),
            bytes,
            ranks,
            count: call.count,
            time_us: call.us / call.count as f64,
            recorded_us: (0.0 < call.recorded.1).then(|| call.recorded.0 / call.recorded.1),
        };
        let ranks = self.groups.iter().flatten().chain(&self.ranks).collect::<BTreeSet<_>>().len();
        Ok(Replayed {
            scenario: loaded.input.clone(),
            engine: engine.name(),
            ranks: ranks as u32,
            nodes: self.works.iter().map(|work| work.nodes.len() as u64).sum(),
            makespan_s,
            compute_s,
            exposed_s: (makespan_s - compute_s).max(0.0),
            last_rank,
            calls: calls.into_iter().map(call).collect(),
            assumptions: self.assumptions.into_iter().collect(),
        })
    }
}

/// Calls of one kind and size: how many, and their time in all.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    count: u64,
    us: f64,
    recorded: (f64, f64),
}

/// Traces count what one rank puts in, nccl-tests the larger of before and after.
fn whole(kind: Kind, bytes: u64, ranks: u32) -> u64 {
    match kind {
        Kind::AllGather | Kind::Gather => bytes.saturating_mul(u64::from(ranks)),
        _ => bytes,
    }
}

/// What an engine runs.
struct Written {
    transfers: Transfers,
    /// The operation that ends each item.
    ends: Vec<Option<OpId>>,
    /// What each item waited for.
    afters: Vec<Vec<OpId>>,
}

/// Writes items one after the other.
struct Writer<'a> {
    loaded: &'a Loaded,
    engine: Engine,
    settings: traffic::nccl::Settings,
    limit: Limit,
    written: Written,
    /// What each group has open, and the end of its last collective.
    groups: Vec<(Group, Option<OpId>)>,
    /// Pairs that send messages, opened once.
    pairs: BTreeMap<(u32, u32), Group>,
    /// What each GPU and its host computed last.
    last: BTreeMap<(u32, bool), OpId>,
    assumptions: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    fn new(loaded: &'a Loaded, engine: Engine, plan: &Plan<'_>) -> Self {
        let fabric = loaded.fabric();
        let open = |members: &Members| {
            let gpus: Vec<_> = members.iter().map(|rank| fabric.gpu(*rank as usize)).collect();
            (Group::new(Communicator::new(fabric, &gpus)), None)
        };
        let is_call = |item: &&Item| !matches!(item.does, Job::Compute { .. });
        let copies = plan.items.iter().filter(is_call).count().max(1) as u64;
        let detail = engine::detail(loaded, engine);
        let operations = engine::most_operations(engine, detail, Patience::Usual);
        let transfers = Transfers::new();
        let (ends, afters) = (vec![None; plan.items.len()], vec![Vec::new(); plan.items.len()]);
        Self {
            loaded,
            engine,
            settings: engine::library(loaded),
            limit: Limit { operations, copies },
            written: Written { transfers, ends, afters },
            groups: plan.groups.iter().map(open).collect(),
            pairs: BTreeMap::new(),
            last: BTreeMap::new(),
            assumptions: BTreeSet::new(),
        }
    }

    fn item(&mut self, number: usize, item: &Item, mut after: Vec<OpId>) -> Result<(), Failure> {
        let end = match item.does {
            Job::Compute { rank, us, on_host } => {
                let last = self.last.get(&(rank, on_host)).copied();
                after.extend(last.filter(|_| 0.0 < us));
                let end = self.wait("computation", us, &after);
                if 0.0 < us {
                    self.last.insert((rank, on_host), end);
                }
                end
            }
            Job::Receive { .. } => self.wait("arrival", 0.0, &after),
            Job::Send { from, to, bytes } => {
                let fabric = self.loaded.fabric();
                let gpus = [from, to].map(|rank| fabric.gpu(rank as usize));
                let open = || Group::new(Communicator::new(fabric, &gpus));
                let mut group = self.pairs.remove(&(from, to)).unwrap_or_else(open);
                let end = self.lower(Collective::SendRecv, bytes, &mut group, &after)?;
                self.pairs.insert((from, to), group);
                end
            }
            Job::Collective { kind, bytes, group, .. } => {
                let (mut own, last) = self.groups[group].clone();
                after.extend(last);
                let ranks = own.communicator.ranks() as u32;
                let end = match self.collective(kind).filter(|_| 1 < ranks) {
                    Some(collective) => {
                        let bytes = whole(kind, bytes, ranks).max(1);
                        self.lower(collective, bytes, &mut own, &after)?
                    }
                    None => self.wait("one rank", 0.0, &after),
                };
                self.groups[group] = (own, Some(end));
                end
            }
        };
        after.sort_unstable();
        after.dedup();
        (self.written.ends[number], self.written.afters[number]) = (Some(end), after);
        Ok(())
    }

    /// What runs a collective here; those that fatflow does not have are run by what moves the
    /// same bytes, and that is said.
    fn collective(&mut self, kind: Kind) -> Option<Collective> {
        let (other, words) = match kind {
            Kind::Barrier => (Collective::AllReduce, "a barrier runs as an all-reduce of its size"),
            known => return Collective::from_name(known.name()),
        };
        self.assumptions.insert(words.to_owned());
        Some(other)
    }

    fn wait(&mut self, label: &str, us: f64, after: &[OpId]) -> OpId {
        let transfers = &mut self.written.transfers;
        let label = transfers.label(label);
        transfers.add(OpKind::Wait { span: Span::from_secs_f64(1e-6 * us) }, label, after)
    }

    fn lower(
        &mut self,
        collective: Collective,
        bytes: u64,
        group: &mut Group,
        after: &[OpId],
    ) -> Result<OpId, Failure> {
        let transfers = &mut self.written.transfers;
        let label = transfers.label(collective.name());
        let (bytes, detail, weights) =
            (Bytes::new(bytes), engine::detail(self.loaded, self.engine), &[][..]);
        let (settings, limit) = (&self.settings, self.limit);
        let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
        let on = (self.loaded.fabric(), self.engine);
        Ok(engine::lower(on, group, &wanted, transfers, after)?.end)
    }
}

impl Replayed {
    /// Adds it to a sheet.
    pub(super) fn show(&self, sheet: Sheet) -> Sheet {
        let heading = format!("The traces on {}, {} engine", self.scenario, self.engine);
        let mut sheet = sheet.heading(heading).text(format!(
            "{} nodes of {} ranks take {}: the busiest GPU computes for {}, and {} of \
             communication and waiting are exposed. Rank {} ends last.",
            report::number::grouped(self.nodes),
            self.ranks,
            microseconds(1e6 * self.makespan_s),
            microseconds(1e6 * self.compute_s),
            microseconds(1e6 * self.exposed_s),
            self.last_rank
        ));
        let mut table = Table::new([
            ("call", Align::Left),
            ("size", Align::Right),
            ("ranks", Align::Right),
            ("count", Align::Right),
            ("takes (us)", Align::Right),
            ("recorded (us)", Align::Right),
        ]);
        for call in &self.calls {
            table.row([
                call.kind.to_owned(),
                Bytes::new(call.bytes).to_string(),
                call.ranks.to_string(),
                call.count.to_string(),
                significant(call.time_us),
                call.recorded_us.map_or_else(|| "–".to_owned(), significant),
            ]);
        }
        if !self.calls.is_empty() {
            sheet = sheet.table(table);
        }
        self.assumptions.iter().fold(sheet, |sheet, text| sheet.note(format!("assumed: {text}")))
    }
}
