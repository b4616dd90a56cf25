//! Typed ids, and vectors that take only them.
//!
//! An id is the index at which a thing was created. Each kind is its own type, so a link cannot be
//! looked up among flows, and iteration follows the order of creation.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A kind of id. Made by [`id!`](crate::id!).
pub trait Id: Copy + Eq + Ord + std::fmt::Debug {
    /// The id of the thing at `index`, which must fit 32 bits.
    fn from_index(index: usize) -> Self;

    /// Where the thing is.
    fn index(self) -> usize;
}

/// Defines id types: `id!(/// One directed link. LinkId);`
#[macro_export]
macro_rules! id {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(u32);

        impl $crate::Id for $name {
            #[inline]
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("more than 4,294,967,295 of one kind"))
            }

            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

/// A vector indexed by one kind of id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    kind: PhantomData<fn(I)>,
}

impl<I: Id, T> IdVec<I, T> {
    /// An empty vector with room for `capacity` items.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::from(Vec::with_capacity(capacity))
    }

    /// Adds an item and returns its id.
    pub fn push(&mut self, item: T) -> I {
        let id = I::from_index(self.items.len());
        self.items.push(item);
        id
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The item, if there is one with this id.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.index())
    }

    /// All ids, in order of creation.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }

    /// All items, in order of creation.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// All items, mutable, in order of creation.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// Ids and items, in order of creation.
    pub fn enumerate(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::from_index(index), item))
    }

    /// The items as a slice.
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self { items: Vec::new(), kind: PhantomData }
    }
}

impl<I, T> From<Vec<T>> for IdVec<I, T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, kind: PhantomData }
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(items: S) -> Self {
        Self::from(Vec::from_iter(items))
    }
}

impl<'a, I: Id, T> IntoIterator for &'a IdVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

#[cfg(test)]
mod tests {
    #![expect(unreachable_pub, reason = "the macro makes public types")]

    use super::*;

    crate::id!(
        /// A thing.
        ThingId
    );

    #[test]
    fn ids_follow_the_order_of_creation() {
        let mut things: IdVec<ThingId, &str> = IdVec::default();
        let first = things.push("first");
        let second = things.push("second");
        assert_eq!(things[second], "second");
        assert_eq!(things.ids().collect::<Vec<_>>(), [first, second]);
        assert_eq!(things.get(ThingId::from_index(2)), None);
        assert_eq!(size_of::<ThingId>(), 4);
        things.iter_mut().for_each(|thing| *thing = &thing[1..]);
        assert_eq!((&things).into_iter().collect::<Vec<_>>(), [&"irst", &"econd"]);
    }
}
