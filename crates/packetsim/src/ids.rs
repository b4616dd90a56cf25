//! Numbers of things, each kind a type of its own: links and nodes are the fabric's, operations the
//! transfers', the others are the engine's.
//!
//! In records that are copied at every hop a number has 32 bits, and "none" is the largest of them
//! ([`Maybe`]).

use std::marker::PhantomData;

use units::Id;

units::id!(
    /// One queue pair.
    PairId,
    /// One switch of the scale-out network, in the fabric's order.
    SwitchId,
    /// The sending port of a NIC, or of an aggregation unit.
    SenderId,
    /// A server with its NICs, or all servers of one scale-up network.
    StationId,
    /// What waits at one leaf of a scheduled fabric for one of its ports, in one class.
    VoqId,
);

/// An id as the number in a packed record, and back.
pub(crate) trait Raw: Id {
    /// The id with this number.
    #[inline]
    fn of(raw: u32) -> Self {
        Self::from_index(raw as usize)
    }

    /// Its number.
    #[inline]
    fn raw(self) -> u32 {
        self.index() as u32
    }
}

impl<I: Id> Raw for I {}

/// An id or none, in four bytes.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Maybe<I> {
    raw: u32,
    kind: PhantomData<fn(I)>,
}

impl<I: Id> Maybe<I> {
    /// None.
    pub(crate) const NONE: Self = Self { raw: u32::MAX, kind: PhantomData };

    /// This one.
    #[inline]
    pub(crate) fn some(id: I) -> Self {
        Self { raw: id.raw(), kind: PhantomData }
    }

    /// The id, if there is one.
    #[inline]
    pub(crate) fn get(self) -> Option<I> {
        if self.is_none() { None } else { Some(I::of(self.raw)) }
    }

    /// The id where there must be one: none is the number of nothing, and looking it up panics.
    #[inline]
    pub(crate) fn known(self) -> I {
        I::of(self.raw)
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.raw == u32::MAX
    }

    /// Whether there is one.
    #[inline]
    pub(crate) fn is_some(self) -> bool {
        !self.is_none()
    }

    /// Its number, or the largest.
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        self.raw
    }
}

impl<I: Id> Default for Maybe<I> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<I: Id> std::fmt::Debug for Maybe<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}
