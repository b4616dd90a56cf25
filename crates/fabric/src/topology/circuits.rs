//! A layer of optical circuits: direct light paths between spines of different pods.
//!
//! Each pod can hold so many circuits at once; which pods they join can be set anew, which takes
//! the time in the settings. Circuits are cables between spines. A fabric whose circuits are set
//! anew holds those of all its settings, and in each of them the others are out of service
//! ([`lit`]). Circuits bypass the cores, which may be left out (`cores = 0`); a packet takes the
//! way with the fewest hops, so pods that a circuit joins leave the cores alone.
//!
//! [`by_demand`] gives circuits to pairs of pods one at a time, always to the pair whose circuits
//! would be the fullest: what is left of the fullest one decides when an exchange is over.
//!
//! Sources: the layer between pods of Jupiter (Poutievski et al., SIGCOMM 2022) and TPU v4 (Jouppi
//! et al., ISCA 2023), without their engineering; circuits that follow a job's traffic: TopoOpt
//! (Wang et al., NSDI 2023), which sets them once for a job.

use units::Rate;

use super::error::Errors;
use super::settings::{CircuitSchedule, CircuitsConfig};
use super::sizing::Inputs;
use crate::graph::{ClassId, Fabric, FabricBuilder, LinkClass, LinkKind, NodeId};

/// Pairs of pods that are joined, each as often as it has circuits.
pub type Setting = Vec<[u32; 2]>;

/// The circuits that suit a demand best, when every pod can hold `per_pod`. `demand` is what a pair
/// of pods exchanges in its busier direction, in any unit.
pub fn by_demand(demand: &[([u32; 2], f64)], pods: u32, per_pod: u32) -> Setting {
    let mut held = vec![0_u32; pods as usize];
    let mut given = vec![0_u32; demand.len()];
    let mut setting = Setting::new();
    loop {
        let has_room = |pair: &[u32; 2]| pair.iter().all(|pod| held[*pod as usize] < per_pod);
        // A pair without a circuit comes before all that have one: it would have to go round.
        let need = |at: usize| match given[at] {
            0 => (1, demand[at].1),
            some => (0, demand[at].1 / f64::from(some)),
        };
        let open = (0..demand.len()).filter(|at| 0.0 < demand[*at].1 && has_room(&demand[*at].0));
        let neediest = open.max_by(|a, b| {
            let ((first, a_need), (second, b_need)) = (need(*a), need(*b));
            first.cmp(&second).then(a_need.total_cmp(&b_need)).then(b.cmp(a))
        });
        let Some(at) = neediest else { return setting };
        given[at] += 1;
        demand[at].0.iter().for_each(|pod| held[*pod as usize] += 1);
        setting.push(demand[at].0);
    }
}

/// The fabric in one of its settings: circuits of the others carry nothing. `None` lights none.
pub fn lit(fabric: &Fabric, setting: Option<usize>, settings: usize) -> Fabric {
    let is_circuit = |class: &ClassId| fabric.classes()[*class].kind == LinkKind::Circuit;
    // Each network wires its settings one after the other, each as a class.
    let classes: Vec<ClassId> = fabric.classes().ids().filter(is_circuit).collect();
    let dark = |class: ClassId| {
        let place = classes.iter().position(|one| *one == class);
        place.is_some_and(|place| Some(place % settings.max(1)) != setting)
    };
    let mut health = fabric.health().clone();
    for link in fabric.links().ids().filter(|link| dark(fabric.links()[*link].class)) {
        health.fail(link);
    }
    let mut one = fabric.clone();
    one.set_health(health);
    one
}

/// Refuses circuits where there are no pods with spines that they could join.
pub(crate) fn refuse_circuits(inputs: &Inputs<'_>, errors: &mut Errors) {
    if 0 < inputs.fabric.circuits.per_pod {
        let topology = inputs.fabric.topology.name();
        let reason = format!("circuits join spines of pods, and a {topology} has none");
        errors.push(&inputs.at("circuits.per_pod"), reason, "per_pod = 0");
    }
}

/// The pairs of pods to join, each as often as it has circuits.
pub(crate) fn pairs(
    config: &CircuitsConfig,
    pods: usize,
    inputs: &Inputs<'_>,
    errors: &mut Errors,
) -> Setting {
    let path = inputs.at("circuits");
    if pods < 2 {
        errors.push(&path, "circuits join pods, and there is one".to_owned(), "pods = 4");
        return Setting::new();
    }
    check_schedule(config, &path, errors);
    let mut held = vec![0_u32; pods];
    let mut made = Setting::new();
    let mut join = |pair: [u32; 2], held: &mut [u32]| {
        pair.iter().for_each(|pod| held[*pod as usize] += 1);
        made.push(pair);
    };
    for &[a, b] in &config.pairs {
        if pods <= a.max(b) as usize || a == b {
            let last = pods - 1;
            let reason = format!("pods {a} and {b} cannot be joined: there are pods 0 to {last}");
            errors.push(&format!("{path}.pairs"), reason, "");
            continue;
        }
        join([a.min(b), a.max(b)], &mut held);
    }
    if config.pairs.is_empty() {
        // To pods further and further ahead in their circle, as long as both have room, and again.
        let pods = pods as u32;
        loop {
            let before = held.clone();
            for ahead in 1..=pods / 2 {
                for a in (0..pods).filter(|a| 2 * ahead != pods || *a < ahead) {
                    let b = (a + ahead) % pods;
                    if held[a as usize].max(held[b as usize]) < config.per_pod {
                        join([a.min(b), a.max(b)], &mut held);
                    }
                }
            }
            if held == before {
                break;
            }
        }
    }
    if let Some(pod) = held.iter().position(|held| config.per_pod < *held) {
        let reason = format!("pod {pod} would hold {} circuits of {}", held[pod], config.per_pod);
        errors.push(&format!("{path}.pairs"), reason, &format!("per_pod = {}", held[pod]));
    }
    made
}

fn check_schedule(config: &CircuitsConfig, path: &str, errors: &mut Errors) {
    if config.schedule == CircuitSchedule::Fixed {
        return;
    }
    if !config.pairs.is_empty() {
        let reason = "a schedule that follows the job's phases finds its pairs itself".to_owned();
        errors.push(&format!("{path}.pairs"), reason, "schedule = \"fixed\"");
    }
    if path != "fabric.circuits" {
        let reason = "circuits of a part of the fabric are set once".to_owned();
        errors.push(&format!("{path}.schedule"), reason, "\"fixed\"");
    }
}

/// Adds the circuits. Those of a pair of pods are dealt over the spines in turn, one pair after the
/// other: every leaf can use all its uplinks towards every pod that has enough of them.
pub(crate) fn wire(
    config: &CircuitsConfig,
    pairs: &[[u32; 2]],
    spines: &[Vec<NodeId>],
    usual_rate: Rate,
    builder: &mut FabricBuilder,
) {
    let class = builder.class(LinkClass {
        name: "circuit".to_owned(),
        kind: LinkKind::Circuit,
        rate: config.rate.unwrap_or(usual_rate),
        delay: config.length.propagation(),
        length: config.length,
    });
    let mut next = vec![0; spines.len()];
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    for pair in &pairs {
        let [from, to] = pair.map(|pod| {
            let pod = pod as usize;
            next[pod] += 1;
            spines[pod][(next[pod] - 1) % spines[pod].len()]
        });
        builder.cable(from, to, class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circuits_go_where_most_is_exchanged_and_nobody_is_left_out() {
        let demand = [([0, 1], 6.0), ([0, 2], 2.0), ([1, 2], 1.0), ([2, 3], 0.0)];
        let count = |setting: &Setting, pair| setting.iter().filter(|one| **one == pair).count();
        let setting = by_demand(&demand, 4, 4);
        assert_eq!([[0, 1], [0, 2], [1, 2]].map(|pair| count(&setting, pair)), [3, 1, 1]);
        assert_eq!(count(&setting, [2, 3]), 0);
        // One circuit a pod: the largest pair has it, the others go round.
        assert_eq!(by_demand(&demand, 4, 1), vec![[0, 1]]);
    }
}
