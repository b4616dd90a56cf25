//! The transfers of one phase of a scenario's job, as the step would run them.

use commands::Failure;
use commands::world::{JobWorld, assumptions};
use scenario::Loaded;
use step::network::{EngineContext, Runner};
use step::predict::predict_on;
use traffic::collective::Detail;
use traffic::{NotRun, Transfers};
use units::Bytes;

/// Operations that a phase may have.
const MOST_OPERATIONS: usize = 200_000;

/// The transfers of the phase whose name begins so, with at most so many bytes a group; and what
/// to say about it.
pub fn transfers(
    loaded: &Loaded,
    name: &str,
    largest: Bytes,
) -> Result<(Transfers, String), Failure> {
    let world = JobWorld::of(loaded)?;
    let mut seen: Vec<(String, Transfers)> = Vec::new();
    let mut engine = |_: &fabric::Fabric, transfers: &Transfers| {
        let first = transfers.ops().iter().next();
        let label = first.map(|op| transfers.label_text(op.label)).unwrap_or_default();
        // Its last word is the number of the group.
        let label = label.rsplit_once(' ').map_or(label, |(phase, _)| phase).to_owned();
        seen.push((label, transfers.clone()));
        Err(NotRun::OnlySeen)
    };
    let runner = Runner {
        engine: &mut engine,
        detail: Detail::Stepwise,
        largest: Some(largest),
        most_operations: MOST_OPERATIONS,
        known: Vec::new(),
        beside: EngineContext::default(),
        once: 0,
    };
    predict_on(world.world(), &assumptions(loaded), Some(runner))
        .map_err(|reason| Failure::Run(reason.to_string()))?;
    let names: Vec<String> = seen.iter().map(|(label, _)| label.clone()).collect();
    let found = seen.into_iter().find(|(label, _)| label.starts_with(name));
    let Some((label, transfers)) = found else {
        let known =
            if names.is_empty() { "none leaves its server".to_owned() } else { names.join(", ") };
        return Err(Failure::Usage(format!("no phase of the job begins with `{name}`: {known}")));
    };
    let said = format!(
        "the phase {label} of all its groups, with at most {largest} each: bytes must arrive, \
         nothing is summed"
    );
    Ok((transfers, said))
}
