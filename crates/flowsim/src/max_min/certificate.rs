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
        let (links, flows) = (self.overload(), self.unproven());
        let (overload, link) = links.unwrap_or((0.0, 0));
        if precision < overload {
            return Err(format!("link {link} carries {overload} more than it can"));
        }
        match flows {
            Some((missed, flow)) if precision < missed => {
                Err(format!("nothing holds back {flow:?}, it misses by {missed}"))
            }
            _ => Ok(()),
        }
    }

    /// The finest precision to which the rates are the max-min allocation: by how much a link
    /// carries more than it can, or what holds a flow back is not full or favours another.
    pub fn deviation(&self) -> f64 {
        let overload = self.overload().map_or(0.0, |(overload, _)| overload);
        self.unproven().map_or(0.0, |(missed, _)| missed).max(overload)
    }

    fn level_of(&self, flow: u32) -> f64 {
        let held = self.flows[FlowId::from_index(flow as usize)].held;
        self.links[held as usize].level
    }

    /// What a link carries by the rates of all that cross it.
    pub(super) fn added_up(&self, link: usize) -> f64 {
        let load =
            |member: &Member| self.entries[member.entry as usize].load * self.level_of(member.flow);
        self.members.get(link).iter().map(load).sum()
    }

    /// The link that is most beyond its capacity, and by which share.
    fn overload(&self) -> Option<(f64, usize)> {
        let loaded = (0..self.links.len()).filter(|link| 0 < self.members.len(*link));
        let over = loaded.map(|link| match (self.added_up(link), self.links[link].capacity) {
            (0.0, _) => (0.0, link),
            (carried, capacity) => (carried / capacity - 1.0, link),
        });
        over.max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The flow with the worst excuse for its rate, and by which share it misses.
    fn unproven(&self) -> Option<(f64, FlowId)> {
        // By link: the share of its capacity that is free, and the highest level on it.
        let of_link = |link: usize| {
            let levels = self.members.get(link).iter().map(|member| self.level_of(member.flow));
            let capacity = self.links[link].capacity;
            let free = if capacity == 0.0 { 0.0 } else { 1.0 - self.added_up(link) / capacity };
            (free, levels.fold(0.0, f64::max))
        };
        let links: Vec<(f64, f64)> = (0..self.links.len()).map(of_link).collect();
        let running = self.flows.enumerate().filter(|(_, flow)| flow.held < NOWHERE - 1);
        let misses = running.map(|(id, _)| {
            let mine = self.level_of(id.index() as u32);
            let miss = |entry: &Entry| {
                let (free, highest) = links[entry.link as usize];
                free.max(if highest <= mine { 0.0 } else { highest / mine - 1.0 })
            };
            let entries = &self.entries[self.range(id.index())];
            (entries.iter().map(miss).fold(f64::INFINITY, f64::min), id)
        });
        misses.max_by(|a, b| a.0.total_cmp(&b.0))
    }
}
