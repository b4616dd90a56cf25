//! Many short lists in one allocation: what crosses each link, and what it holds back.
//!
//! A network has millions of links, most of which a few flows cross, and one vector for each would
//! ask for memory as often. Here a list is a block of a common pool, as long as a power of two; a
//! list that outgrows its block moves to one of twice the length, and blocks that were left are
//! used again.

/// A list: where its block begins, how much is in it, and how much would fit.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    first: u32,
    length: u32,
    room: u32,
}

/// Lists, numbered from 0.
#[derive(Clone, Debug)]
pub(super) struct Lists<T> {
    lists: Vec<List>,
    pool: Vec<T>,
    /// Free blocks, by the logarithm of their length.
    free: [Vec<u32>; 32],
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self { lists: Vec::new(), pool: Vec::new(), free: std::array::from_fn(|_| Vec::new()) }
    }
}

impl<T: Copy> Lists<T> {
    /// One more list, empty.
    pub(super) fn add(&mut self) {
        self.lists.push(List::default());
    }

    /// What is in a list.
    pub(super) fn get(&self, list: usize) -> &[T] {
        let List { first, length, .. } = self.lists[list];
        &self.pool[first as usize..][..length as usize]
    }

    /// What is in a list, to be changed.
    pub(super) fn get_mut(&mut self, list: usize) -> &mut [T] {
        let List { first, length, .. } = self.lists[list];
        &mut self.pool[first as usize..][..length as usize]
    }

    /// How much is in a list.
    pub(super) fn len(&self, list: usize) -> usize {
        self.lists[list].length as usize
    }

    /// Appends to a list.
    pub(super) fn push(&mut self, list: usize, item: T) {
        let List { first, length, room } = self.lists[list];
        if length == room {
            self.grow(list, item);
        } else {
            self.pool[(first + length) as usize] = item;
        }
        self.lists[list].length += 1;
    }

    /// Takes an item out; the last one takes its place and is returned, if there is one.
    pub(super) fn swap_remove(&mut self, list: usize, place: u32) -> Option<T> {
        let List { first, length, .. } = self.lists[list];
        assert!(place < length, "place {place} of {length}");
        self.lists[list].length -= 1;
        let last = self.pool[(first + length - 1) as usize];
        self.pool[(first + place) as usize] = last;
        (place < length - 1).then_some(last)
    }

    /// Empties a list; its block stays its own.
    pub(super) fn clear(&mut self, list: usize) {
        self.lists[list].length = 0;
    }

    /// Moves a full list to a block of twice the length; `item` comes next and fills what is new.
    #[cold]
    fn grow(&mut self, list: usize, item: T) {
        let List { first, length, room } = self.lists[list];
        let wanted = (2 * room).max(1);
        let block = self.free[wanted.ilog2() as usize].pop().unwrap_or_else(|| {
            let block = u32::try_from(self.pool.len()).expect("under 2³² entries");
            self.pool.resize(self.pool.len() + wanted as usize, item);
            block
        });
        let from = first as usize;
        self.pool.copy_within(from..from + length as usize, block as usize);
        self.pool[(block + length) as usize] = item;
        if 0 < room {
            self.free[room.ilog2() as usize].push(first);
        }
        (self.lists[list].first, self.lists[list].room) = (block, wanted);
    }
}

#[cfg(test)]
mod tests {
    use units::Random;

    use super::*;

    /// Property: lists behave like vectors, and blocks are used again.
    #[test]
    fn lists_are_vectors() {
        let mut random = Random::new(1, "lists", 0);
        let mut lists = Lists::default();
        let mut vectors: Vec<Vec<u64>> = vec![Vec::new(); 20];
        vectors.iter().for_each(|_| lists.add());
        for item in 0..20_000 {
            let at = random.below(20) as usize;
            let vector = &mut vectors[at];
            match random.below(20) {
                0 => {
                    lists.clear(at);
                    vector.clear();
                }
                1..9 if !vector.is_empty() => {
                    let place = random.below(vector.len() as u64) as usize;
                    vector.swap_remove(place);
                    let filler = lists.swap_remove(at, place as u32);
                    assert_eq!(filler, vector.get(place).copied());
                }
                _ => {
                    lists.push(at, item);
                    vector.push(item);
                }
            }
            assert_eq!(lists.get(at), vector);
            assert_eq!(lists.len(at), vector.len());
        }
        let most: usize = vectors.iter().map(|vector| vector.capacity()).sum();
        assert!(lists.pool.len() < 4 * most.max(1_000), "{} items", lists.pool.len());
    }
}
