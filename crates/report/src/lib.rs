//! How results are shown: sheets of text and tables for people, an envelope of JSON for programs.
//!
//! A command's result implements [`Answer`] once; the terminal and every other medium draw the
//! same [`Sheet`].
//!
//! # Map of the modules, in reading order
//!
//! * [`sheet`]: what a result looks like, before anybody knows on what it is drawn.
//! * [`table`]: columns that fit the width.
//! * [`chart`]: charts as data; [`draw`]: charts in Unicode for the terminal.
//! * [`number`]: numbers as people read them.
//! * [`envelope`]: the JSON that every command answers with.
//! * [`page`]: a self-contained HTML page with charts.

pub mod chart;
pub mod digest;
pub mod draw;
pub mod envelope;
pub mod number;
pub mod page;
pub mod sheet;
pub mod table;

pub use chart::{Chart, ChartKind, Fact, Frame, Rule, Scale, TreeNode, Unit};
pub use envelope::{Envelope, ErrorEnvelope, Mistake};
pub use page::Page;
pub use sheet::{Answer, Part, Sheet, harmless};
pub use table::{Align, Table};
