//! What reading one input may take, so that a few bytes cannot ask for gigabytes.
//!
//! A reader is given a [`Budget`], spends from it as it goes, and refuses with the place where it
//! ran out. The limits are those of the format, and tests set lower ones.
//!
//! ```
//! use units::Budget;
//!
//! let mut budget = Budget { items: 2, ..Budget::ENDLESS };
//! budget.spend_items(2).unwrap();
//! let over = budget.spend_items(1).unwrap_err();
//! assert_eq!(over.to_string(), "there are too many items: 1 wanted, 0 left");
//! ```

use std::fmt;

/// What is left of each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Budget {
    /// Bytes of the input itself.
    pub bytes: u64,
    /// Things in it: lines, cables, hosts, values, records.
    pub items: u64,
    /// How deep things may lie in each other.
    pub depth: u64,
    /// Bytes that are made of shorter ones: lists that are written out, aliases, packed data.
    pub expansion: u64,
}

/// A budget that ran out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OverBudget {
    what: &'static str,
    wanted: u64,
    left: u64,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, wanted, left } = self;
        write!(f, "there are too many {what}: {wanted} wanted, {left} left")
    }
}

impl std::error::Error for OverBudget {}

impl Budget {
    /// No limits; a place to start from.
    pub const ENDLESS: Self =
        Self { bytes: u64::MAX, items: u64::MAX, depth: u64::MAX, expansion: u64::MAX };

    /// Takes bytes of the input.
    pub fn spend_bytes(&mut self, count: u64) -> Result<(), OverBudget> {
        spend(&mut self.bytes, count, "bytes")
    }

    /// Takes items.
    pub fn spend_items(&mut self, count: u64) -> Result<(), OverBudget> {
        spend(&mut self.items, count, "items")
    }

    /// Takes bytes that were made of shorter ones.
    pub fn spend_expansion(&mut self, count: u64) -> Result<(), OverBudget> {
        spend(&mut self.expansion, count, "bytes once it is written out")
    }

    /// Whether so many levels may lie in each other. Depth is not spent: it is given back on the
    /// way out.
    pub fn allow_depth(&self, levels: u64) -> Result<(), OverBudget> {
        match levels <= self.depth {
            true => Ok(()),
            false => {
                Err(OverBudget { what: "levels in each other", wanted: levels, left: self.depth })
            }
        }
    }
}

fn spend(left: &mut u64, count: u64, what: &'static str) -> Result<(), OverBudget> {
    let over = OverBudget { what, wanted: count, left: *left };
    *left = left.checked_sub(count).ok_or(over)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_gone_and_what_is_refused_is_not() {
        let mut budget = Budget { bytes: 10, items: 3, depth: 2, expansion: 5 };
        budget.spend_bytes(10).unwrap();
        assert!(budget.spend_bytes(1).is_err());
        assert!(budget.spend_items(4).is_err());
        budget.spend_items(3).unwrap();
        budget.spend_expansion(5).unwrap();
        assert!(budget.spend_expansion(u64::MAX).is_err());
        assert!(budget.allow_depth(2).is_ok() && budget.allow_depth(3).is_err());
    }
}
