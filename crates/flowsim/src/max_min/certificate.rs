//! A proof that rates are the max-min allocation, which trusts nothing that the solver kept but
//! the rates themselves.

use units::Id;

use super::{Entry, FlowId, MaxMin, Member, NOWHERE};

impl MaxMin {
    /// Checks that the rates are the max-min allocation, to this relative precision.
    ///
    /// No link carries more than it can, and every running flow crosses a full link on which
    /// nobody has a higher level.
    pub fn certificate(&self, precision: f64) -> Result<(), String> {
        let level = |flow: u32| {
            let held = self.flows[FlowId::from_index(flow as usize)].held;
            self.links[held as usize].level
        };
        let (mut full, mut highest) =
            (vec![false; self.links.len()], vec![0.0_f64; self.links.len()]);
        for (link, members) in self.members.iter().enumerate() {
            let load =
                |member: &Member| self.entries[member.entry as usize].load * level(member.flow);
            let carried: f64 = members.iter().map(load).sum();
            let capacity = self.links[link].capacity;
            if capacity * (1.0 + precision) < carried {
                return Err(format!("link {link} carries {carried} of {capacity}"));
            }
            full[link] = capacity * (1.0 - precision) <= carried;
            highest[link] = members.iter().map(|m| level(m.flow)).fold(0.0, f64::max);
        }
        for (id, flow) in self.flows.enumerate() {
            if flow.held >= NOWHERE - 1 {
                continue;
            }
            let mine = level(id.index() as u32) * (1.0 + precision);
            let proof =
                |entry: &Entry| full[entry.link as usize] && highest[entry.link as usize] <= mine;
            if !self.entries[self.range(id.index())].iter().any(proof) {
                return Err(format!("nothing holds back {id:?}"));
            }
        }
        Ok(())
    }
}
