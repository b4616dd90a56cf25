//! How much memory a run may still take, as somebody outside knows it.
//!
//! What grows while a run goes on asks here first, so that it ends with a sentence instead of an
//! abort. The number comes from outside: nothing here asks a machine.
//!
//! ```
//! use units::Room;
//!
//! let room = Room::of(1 << 20);
//! let mut list: Vec<u64> = Vec::new();
//! room.reserve("numbers", &mut list, 1000).unwrap();
//! let out = room.reserve("numbers", &mut list, 1 << 20).unwrap_err();
//! assert!(out.to_string().starts_with("numbers need 8MB more"), "{out}");
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Bytes;

/// How many bytes a run may still take, `None` if nothing new is known; or the sentence with which
/// it must end.
pub type Asked = Result<Option<u64>, String>;

/// Asks somebody outside.
pub type Bound<'a> = &'a dyn Fn() -> Asked;

/// Bytes that may still be taken. Those who share a run share one of these; without a number there
/// is no bound.
#[derive(Clone, Debug, Default)]
pub struct Room(Option<Arc<AtomicU64>>);

/// Something did not fit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutOfRoom {
    what: &'static str,
    wanted: u64,
    left: u64,
}

impl fmt::Display for OutOfRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, wanted, left } = self;
        let [wanted, left] = [*wanted, *left].map(Bytes::new);
        write!(f, "{what} need {wanted:.0} more memory, and {left:.0} are left")
    }
}

impl std::error::Error for OutOfRoom {}

impl Room {
    /// So many bytes.
    pub fn of(bytes: u64) -> Self {
        Self(Some(Arc::new(AtomicU64::new(bytes))))
    }

    /// So many are left now, whatever was thought before. Where there is no bound there is none.
    pub fn set(&self, bytes: u64) {
        if let Some(left) = &self.0 {
            left.store(bytes, Ordering::Relaxed);
        }
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |left| left.load(Ordering::Relaxed))
    }

    /// Whether so many bytes may be taken; they are not, yet.
    pub fn allow(&self, what: &'static str, wanted: u64) -> Result<(), OutOfRoom> {
        let left = self.left();
        if wanted <= left { Ok(()) } else { Err(OutOfRoom { what, wanted, left }) }
    }

    /// Makes place for so many more in a list, which at least doubles where it must grow. While it
    /// moves, the old memory may have to be kept beside the new.
    pub fn reserve<T>(
        &self,
        what: &'static str,
        list: &mut Vec<T>,
        more: usize,
    ) -> Result<(), OutOfRoom> {
        let (old, needed) = (list.capacity(), list.len().saturating_add(more));
        if needed <= old {
            return Ok(());
        }
        let size = size_of::<T>() as u64;
        let bytes = |places: usize| (places as u64).saturating_mul(size);
        let places = needed.max(old.saturating_mul(2));
        self.allow(what, bytes(places))?;
        // The machine may know better than whoever gave the number.
        let refused =
            |_| OutOfRoom { what, wanted: bytes(places), left: self.left().min(bytes(places)) };
        list.try_reserve_exact(places - list.len()).map_err(refused)?;
        if let Some(left) = &self.0 {
            let taken = bytes(list.capacity() - old);
            let less = |left: u64| Some(left.saturating_sub(taken));
            // It cannot fail: there is always an answer.
            let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_takes_from_what_is_left_and_shared() {
        let room = Room::of(1_000);
        let (mut list, mut other): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        room.reserve("these", &mut list, 10).unwrap();
        assert_eq!(room.left(), 1_000 - 4 * list.capacity() as u64);
        // A list with places takes nothing.
        list.extend(0..5);
        room.reserve("these", &mut list, 5).unwrap();
        assert_eq!(room.left(), 960);
        // It doubles, and the copy at another place has the same room.
        room.clone().reserve("these", &mut list, 6).unwrap();
        assert_eq!((list.capacity(), room.left()), (20, 920));
        let out = room.reserve("those", &mut other, 231).unwrap_err();
        assert_eq!(out, OutOfRoom { what: "those", wanted: 924, left: 920 });
        assert_eq!(other.capacity(), 0);
        room.set(924);
        room.reserve("those", &mut other, 231).unwrap();
        assert_eq!(room.left(), 0);
    }

    #[test]
    fn without_a_bound_the_machine_alone_refuses() {
        let room = Room::default();
        let mut list: Vec<u64> = Vec::new();
        room.set(0);
        room.reserve("these", &mut list, 1_000).unwrap();
        assert_eq!(room.left(), u64::MAX);
        assert!(room.reserve("these", &mut list, usize::MAX / 2).is_err());
        assert!(room.reserve("these", &mut list, usize::MAX).is_err());
    }
}
