//! How the optical circuits between pods follow a job's step.
//!
//! How it works. What the job exchanges between pods is added up for its two phases: the passes
//! (tensor, context, expert and pipeline parallel) and the copies (gradients and weights). For the
//! passes, for the copies and for both together the circuits are set by demand
//! ([`fabric::topology::circuits`]), and the step is predicted with each setting kept all along,
//! with none lit where cores join the pods too, with circuits spread evenly, and with one setting
//! for the passes and another for the copies. The last costs two reconfigurations in every step,
//! during which nothing crosses, and takes away the overlap of gradients with passes, because the
//! passes of all stages must be over. The shortest step wins, the one with fewer changes if two
//! are equal. The closed forms of the analytic engine know no circuits and leave them spread
//! evenly.
//!
//! Where it departs from reality: all circuits are set at the same time, also those that stay; the
//! way back is exposed whole, although the first pass of the next step could hide some of it.

use std::collections::BTreeMap;

use fabric::Fabric;
use fabric::topology::CircuitSchedule;
use fabric::topology::circuits::{Setting, by_demand, lit};
use job::{Axis, Program};
use scenario::Loaded;
use serde::Serialize;
use step::predict::library_of;

use super::predicted;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::occupancy::every_microbatch;
use crate::traffic::Walk;
use crate::world::{JobWorld, Places, assumptions};

/// How circuits are set over a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Circuits {
    /// How long one change of the circuits takes.
    pub reconfiguration_s: f64,
    /// The ways to set them that were tried, what was chosen marked.
    pub plans: Vec<Plan>,
    /// The chosen circuits.
    pub lit: Vec<Lit>,
}

/// One way to set the circuits over a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// In words.
    pub plan: &'static str,
    /// Changes of the circuits in every step.
    pub reconfigurations: u32,
    /// How long the step takes; nothing if some pods cannot reach each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_s: Option<f64>,
    /// Whether it was chosen.
    pub chosen: bool,
}

/// Circuits between two pods.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lit {
    /// While what is exchanged.
    pub phase: &'static str,
    /// From which pod to which.
    pub pods: [u32; 2],
    /// How many, in each network of the fabric.
    pub circuits: u32,
}

/// A way to set the circuits: which setting while passes run, and which while copies do.
#[derive(Clone, Copy, Debug)]
struct Choice {
    words: &'static str,
    passes: Light,
    copies: Light,
}

/// Which circuits are lit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Light {
    /// Those of the scenario's fabric.
    Even,
    /// None.
    Dark,
    /// Those of one of the settings.
    Setting(usize),
}

/// The job on its fabric, with circuits that follow its phases where the scenario asks for it.
pub(super) fn world<'a>(
    loaded: &'a Loaded,
    engine: Engine,
) -> Result<(JobWorld<'a>, Option<Circuits>), Failure> {
    let world = JobWorld::of(loaded)?;
    let config = &loaded.scenario.fabric.circuits;
    let fixed = config.schedule == CircuitSchedule::Fixed || config.per_pod == 0;
    if fixed || !engine.has_contention() {
        return Ok((world, None));
    }
    let (demand, pods) = demand(loaded, &world)?;
    let all = sum(&demand[0], &demand[1]);
    let settings: Vec<Setting> = [&all, &demand[0], &demand[1]]
        .map(|demand| {
            let demand: Vec<([u32; 2], f64)> = demand.iter().map(|(p, b)| (*p, *b)).collect();
            by_demand(&demand, pods, config.per_pod)
        })
        .to_vec();
    let fabric = loaded.fabric_with_circuits(&settings)?;
    let apart = demand.iter().all(|demand| !demand.is_empty())
        && settings[1] != settings[2]
        && every_microbatch(&Program::new(world.job)) == 0.0;
    let has_cores = loaded.scenario.fabric.cores != Some(0);
    let mut plans = Vec::new();
    let mut best: Option<(f64, Choice, JobWorld<'a>)> = None;
    for choice in choices(&settings, apart, has_cores) {
        let tried = on(loaded, &world, &fabric, choice)?;
        // On the flow engine: packets take too long to try everything with.
        let step_s =
            predicted(loaded, &tried, Engine::Flow).map(|known| known.step.as_secs_f64()).ok();
        let reconfigurations = if choice.passes == choice.copies { 0 } else { 2 };
        plans.push(Plan { plan: choice.words, reconfigurations, step_s, chosen: false });
        if let Some(step_s) = step_s
            && best.as_ref().is_none_or(|(known, ..)| step_s < *known)
        {
            best = Some((step_s, choice, tried));
        }
    }
    let Some((_, choice, chosen)) = best else {
        let message = "no setting of the circuits joins all pods that exchange something";
        return Err(loaded.problem("fabric.circuits", message).into());
    };
    plans.iter_mut().for_each(|plan| plan.chosen = plan.plan == choice.words);
    let lit = lit_circuits(&settings, choice);
    let reconfiguration_s = config.reconfiguration.as_secs_f64();
    Ok((chosen, Some(Circuits { reconfiguration_s, plans, lit })))
}

/// What may be tried, that with fewer changes first.
fn choices(settings: &[Setting], apart: bool, has_cores: bool) -> Vec<Choice> {
    let kept = |words, light| Choice { words, passes: light, copies: light };
    let mut all = vec![kept("spread evenly", Light::Even)];
    if has_cores {
        all.push(kept("none, everything over the cores", Light::Dark));
    }
    let words = ["by the demand of the step", "by that of passes", "by that of copies"];
    for (number, words) in words.into_iter().enumerate() {
        let is_new = !settings[..number].contains(&settings[number]);
        if is_new && !settings[number].is_empty() {
            all.push(kept(words, Light::Setting(number)));
        }
    }
    if apart {
        let [passes, copies] = [1, 2].map(Light::Setting);
        all.push(Choice { words: "set anew for copies and back", passes, copies });
        if has_cores {
            let passes = Light::Dark;
            all.push(Choice { words: "lit for copies alone", passes, copies });
        }
    }
    all
}

/// The job with the circuits of a choice.
fn on<'a>(
    loaded: &'a Loaded,
    world: &JobWorld<'a>,
    fabric: &Fabric,
    choice: Choice,
) -> Result<JobWorld<'a>, Failure> {
    const SETTINGS: usize = 3;
    let set = |light: Light| match light {
        Light::Even => loaded.fabric().clone(),
        Light::Dark => lit(fabric, None, SETTINGS),
        Light::Setting(number) => lit(fabric, Some(number), SETTINGS),
    };
    let takes = loaded.scenario.fabric.circuits.reconfiguration;
    let reset = (choice.passes != choice.copies).then(|| (set(choice.copies), takes));
    world.on_circuits(loaded, set(choice.passes), reset)
}

type Demand = BTreeMap<[u32; 2], f64>;

/// What the passes and what the copies of a step exchange between pods, in the busier direction,
/// and how many pods there are.
fn demand(loaded: &Loaded, world: &JobWorld<'_>) -> Result<([Demand; 2], u32), Failure> {
    let program = Program::new(world.job);
    let gpus_per_node = world.fabric().gpus_per_node().max(1) as u64;
    let overheads = assumptions(loaded).overheads;
    let settings = &library_of(world.job, &world.library, &overheads, gpus_per_node);
    let (fabric, placement) = (world.fabric(), &world.placement);
    let walk = Walk { program: &program, fabric, placement, settings };
    let places = Places::of(fabric);
    let mut one_way: [Demand; 2] = Default::default();
    walk.each(&mut |line| {
        let ends = [line.connection.from, line.connection.to].map(|nic| places.get(nic));
        if let [Some((_, from)), Some((_, to))] = ends
            && from != to
        {
            let phase = usize::from(line.axis == Axis::Dp);
            *one_way[phase].entry([from, to]).or_default() += line.total();
        }
    })?;
    let both = one_way.map(|demand| {
        let mut both = Demand::new();
        for ([from, to], bytes) in demand {
            let known = both.entry([from.min(to), from.max(to)]).or_insert(0.0);
            *known = known.max(bytes);
        }
        both
    });
    let pods = fabric.leaves().iter().map(|leaf| fabric.nodes()[*leaf].zone + 1).max();
    Ok((both, pods.unwrap_or(0)))
}

fn sum(a: &Demand, b: &Demand) -> Demand {
    let mut sum = a.clone();
    for (pair, bytes) in b {
        *sum.entry(*pair).or_default() += bytes;
    }
    sum
}

fn lit_circuits(settings: &[Setting], choice: Choice) -> Vec<Lit> {
    let phases = match choice.passes == choice.copies {
        true => vec![("all of the step", choice.passes)],
        false => vec![("passes", choice.passes), ("copies", choice.copies)],
    };
    let mut rows = Vec::new();
    for (phase, light) in phases {
        let Light::Setting(number) = light else { continue };
        let mut counts: BTreeMap<[u32; 2], u32> = BTreeMap::new();
        settings[number].iter().for_each(|pair| *counts.entry(*pair).or_default() += 1);
        rows.extend(counts.into_iter().map(|(pods, circuits)| Lit { phase, pods, circuits }));
    }
    rows
}
