//! The network as a graph of GPUs, NICs, switches and links. It knows no job.
//!
//! A [`Fabric`] is built by a topology (one file each) or an import, and then only read. Which
//! links lead from a node towards a destination is answered by [`Routes`], from the structure of
//! the fabric where it has one (up to a common ancestor, then down) and from distance fields per
//! destination leaf where it has none or where something has failed.
//!
//! # Map of the modules, in reading order
//!
//! * [`graph`]: nodes, directed links, the builder, and the [`Fabric`] they make.
//! * [`routes`]: next hops, with failures.
//! * [`hash`]: what a switch sees of a flow, and how it hashes that.
//! * [`routing`]: which of several next hops a packet takes, one file for each policy.
//! * [`topology`]: the settings of clusters and fabrics, and one file for each family.
//! * [`domains`]: what one failure of each kind of part takes with it.
//! * [`fault`]: what fails when; [`address`]: IPv4 and MAC addresses.
//! * [`naming`]: nodes and links by the names that people give them.
//! * [`summary`]: a fabric in numbers: tiers, bisection, paths; [`cost`]: its bill of materials.
//! * [`hardware`]: what GPUs, NICs, switches and cables can do and cost, each figure cited.
//! * [`transport`]: which protocol carries messages, and what its headers cost.
//!
//! # Invariants
//!
//! * Memory grows linearly with endpoints and links: there is no all-pairs table.
//! * A cable is two directed links whose ids differ in the lowest bit.
//! * GPUs are the first nodes, back-end NICs the next: number `n` of each is found by arithmetic.

pub mod address;
pub mod cost;
pub mod domains;
pub mod fault;
pub mod graph;
pub mod hardware;
pub mod hash;
pub mod naming;
pub mod parts;
pub mod routes;
pub mod routing;
pub mod summary;
pub mod topology;
pub mod transport;

pub use graph::{Fabric, FabricBuilder, Link, LinkClass, LinkId, Node, NodeId, NodeKind};
pub use routes::{Health, Routes};
