//! Quantities with their units as types, typed ids, and seeded randomness.
//!
//! ```
//! use units::{Bytes, Rate, Span};
//!
//! let rate: Rate = "400Gbps".parse().unwrap();
//! let packet: Bytes = "4KiB".parse().unwrap();
//! assert_eq!(rate.time_to_send(packet), Span::from_ps(81_920));
//! assert_eq!(rate.time_to_send(packet).to_string(), "81.92ns");
//! ```
//!
//! # Map of the modules, in reading order
//!
//! * [`time`]: [`Time`] and [`Span`], integer picoseconds.
//! * [`size`]: [`Bytes`], [`Rate`], [`Length`].
//! * [`quantity`]: how all of them are read and written as people write them.
//! * [`range`]: what settings may be, said beside their fields; [`unused`]: when they do nothing.
//! * [`budget`]: what reading one input may take.
//! * [`room`]: what a run may still take of memory.
//! * [`id`]: the [`id!`] macro and [`IdVec`], vectors that take only one kind of id.
//! * [`random`]: one generator, one stream for each (seed, component).
//!
//! # Invariants
//!
//! * Arithmetic never overflows silently: it panics with a sentence, or saturates where it says so.
//! * Adding two instants does not compile.
//! * What a quantity prints, it also reads, to the same value.

pub mod budget;
pub mod id;
pub mod quantity;
pub mod random;
pub mod range;
pub mod room;
pub mod size;
pub mod time;
pub mod unused;

pub use budget::{Budget, OverBudget};
pub use id::{Id, IdVec};
pub use quantity::QuantityError;
pub use random::Random;
pub use range::{KnownRange, OutOfRange, Ranged, Ranges};
pub use room::{Bound, OutOfRoom, Room};
pub use size::{Bytes, Length, Rate};
pub use time::{Span, Time};
pub use unused::{Unused, UnusedKeys};
