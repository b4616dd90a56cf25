//! The ranges of settings, each beside the field that it bounds.
//!
//! A struct of settings implements [`Ranged`]: it names its fields and what they may be. Tables
//! inside it are checked with [`Ranges::table`], which puts their key in front.
//!
//! ```
//! use units::{Bytes, OutOfRange, Ranged, Ranges};
//!
//! struct Queue {
//!     size: Bytes,
//!     share: f64,
//! }
//!
//! impl Ranged for Queue {
//!     fn ranges(&self, check: &mut Ranges) {
//!         check.positive("size", self.size);
//!         check.share("share", self.share);
//!     }
//! }
//!
//! let queue = Queue { size: Bytes::from_kib(4), share: 7.0 };
//! let [OutOfRange { keys, message }] = &Ranges::of("network.queue", &queue)[..] else { panic!() };
//! assert_eq!(keys, &["network.queue.share"]);
//! assert_eq!(message, "`network.queue.share` is 7, but must be from 0 to 1");
//! ```

use std::fmt::Display;

/// Settings that know the ranges of their fields.
pub trait Ranged {
    /// Holds every field that has a range against it.
    fn ranges(&self, check: &mut Ranges);
}

/// A value outside its range.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutOfRange {
    /// The dotted paths of the keys concerned; the first has the value.
    pub keys: Vec<String>,
    /// What the value is and what it must be, in one sentence without a full stop.
    pub message: String,
}

/// Collects the values that are outside their ranges.
#[derive(Debug)]
pub struct Ranges {
    path: String,
    found: Vec<OutOfRange>,
    known: Vec<KnownRange>,
}

/// What a value may be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KnownRange {
    /// The dotted path of the key.
    pub key: String,
    /// In words: "from 0 to 1".
    pub range: String,
}

impl Ranges {
    /// What is out of range in the settings that stand at this path; it may be empty.
    pub fn of(path: &str, settings: &dyn Ranged) -> Vec<OutOfRange> {
        Self::asked(path, settings).found
    }

    /// The ranges of the settings that stand at this path, whatever their values are.
    ///
    /// ```
    /// # use units::{Ranged, Ranges};
    /// struct Share(f64);
    /// impl Ranged for Share {
    ///     fn ranges(&self, check: &mut Ranges) {
    ///         check.share("share", self.0);
    ///     }
    /// }
    /// assert_eq!(Ranges::known("a", &Share(0.5))[0].range, "from 0 to 1");
    /// ```
    pub fn known(path: &str, settings: &dyn Ranged) -> Vec<KnownRange> {
        Self::asked(path, settings).known
    }

    fn asked(path: &str, settings: &dyn Ranged) -> Self {
        let mut ranges = Self { path: String::new(), found: Vec::new(), known: Vec::new() };
        ranges.table(path, settings);
        ranges
    }

    /// Notes what a key may be, and refuses a value that is not so.
    fn hold(&mut self, key: &str, value: impl Display, range: &str, is_within: bool) {
        let known = KnownRange { key: self.full(key), range: range.to_owned() };
        self.known.push(known);
        if !is_within {
            self.refuse(&[key], value, range);
        }
    }

    /// Checks a table inside the settings at hand.
    pub fn table(&mut self, key: &str, settings: &dyn Ranged) {
        let inside = self.full(key);
        let outside = std::mem::replace(&mut self.path, inside);
        settings.ranges(self);
        self.path = outside;
    }

    /// Refuses a value, and says what it must be. The value is that of the first key; the others
    /// decide its range.
    pub fn refuse(&mut self, keys: &[&str], value: impl Display, range: &str) {
        let keys: Vec<String> = keys.iter().map(|key| self.full(key)).collect();
        let message = format!("`{}` is {value}, but must be {range}", keys[0]);
        self.found.push(OutOfRange { keys, message });
    }

    /// From `least` to `most`, both allowed.
    pub fn within<T: Display + PartialOrd>(&mut self, key: &str, value: T, [least, most]: [T; 2]) {
        let is_within = least <= value && value <= most;
        self.hold(key, value, &format!("from {least} to {most}"), is_within);
    }

    /// At least this. Not a number is not in range.
    pub fn at_least<T: Display + PartialOrd>(&mut self, key: &str, value: T, least: T) {
        let is_within = least <= value;
        self.hold(key, value, &format!("at least {least}"), is_within);
    }

    /// At most this. Not a number is not in range.
    pub fn at_most<T: Display + PartialOrd>(&mut self, key: &str, value: T, most: T) {
        let is_within = value <= most;
        self.hold(key, value, &format!("at most {most}"), is_within);
    }

    /// A share or a probability: from 0 to 1, both allowed.
    pub fn share(&mut self, key: &str, value: f64) {
        self.within(key, value, [0.0, 1.0]);
    }

    /// A weight or a share that cannot be 0: above 0 and at most 1.
    pub fn weight(&mut self, key: &str, value: f64) {
        self.hold(key, value, "above 0 and at most 1", 0.0 < value && value <= 1.0);
    }

    /// A count, a size or a time that cannot be 0.
    pub fn positive<T: Default + Display + PartialOrd>(&mut self, key: &str, value: T) {
        let is_within = T::default() < value;
        self.hold(key, value, "above 0", is_within);
    }

    /// Two values of which the first may not be above the second.
    pub fn ordered<T: Display + PartialOrd>(&mut self, low: (&str, T), high: (&str, T)) {
        if low.1.partial_cmp(&high.1).is_none_or(|order| order.is_gt()) {
            let range = format!("at most `{}`, which is {}", self.full(high.0), high.1);
            self.refuse(&[low.0, high.0], low.1, &range);
        }
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() || key.is_empty() {
            return format!("{}{key}", self.path);
        }
        format!("{}.{key}", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Span};

    struct Inner {
        low: u32,
        high: u32,
    }

    impl Ranged for Inner {
        fn ranges(&self, check: &mut Ranges) {
            check.ordered(("low", self.low), ("high", self.high));
        }
    }

    struct Outer(f64);

    impl Ranged for Outer {
        fn ranges(&self, check: &mut Ranges) {
            check.table("inner", &Inner { low: 2, high: 1 });
            check.share("share", self.0);
            check.weight("weight", self.0);
            check.at_least("least", self.0, 0.0);
            check.at_most("most", self.0, 1.0);
            check.positive("positive", self.0);
        }
    }

    fn said(value: f64) -> Vec<String> {
        Ranges::of("a", &Outer(value)).into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn keys_stand_below_their_tables_and_not_a_number_is_never_in_range() {
        let inner = "`a.inner.low` is 2, but must be at most `a.inner.high`, which is 1";
        assert_eq!(said(0.5), [inner]);
        assert_eq!(said(1.0), [inner]);
        assert_eq!(
            said(f64::NAN),
            [
                inner,
                "`a.share` is NaN, but must be from 0 to 1",
                "`a.weight` is NaN, but must be above 0 and at most 1",
                "`a.least` is NaN, but must be at least 0",
                "`a.most` is NaN, but must be at most 1",
                "`a.positive` is NaN, but must be above 0",
            ]
        );
        let [.., most] = &said(1.5)[..] else { panic!("1.5 is above 1") };
        assert_eq!(most, "`a.most` is 1.5, but must be at most 1");
    }

    #[test]
    fn ends_of_ranges_are_allowed_and_their_neighbours_are_not() {
        struct At(u64);
        impl Ranged for At {
            fn ranges(&self, check: &mut Ranges) {
                check.within("within", Bytes::new(self.0), [Bytes::new(2), Bytes::new(4)]);
                check.positive("span", Span::from_ps(self.0));
            }
        }
        let refused = |value| Ranges::of("", &At(value)).len();
        assert_eq!([0, 1, 2, 4, 5].map(refused), [2, 1, 0, 0, 1]);
        let message = &Ranges::of("", &At(5))[0].message;
        assert_eq!(message, "`within` is 5B, but must be from 2B to 4B");
    }
}
