//! Tables for the terminal: columns as wide as they need to be, as narrow as they must.
//!
//! Widths are counted in columns of the terminal, not in bytes or characters. If a table is wider
//! than the terminal, its widest text columns and then the names of number columns are cut until it
//! fits, and an ellipsis says so; numbers are never cut.

use std::fmt::Write as _;

use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Blanks between columns.
const GAP: usize = 2;

/// What is cut to which width, in this order: text that stays readable, the names of number columns
/// (never the numbers), then text as far as need be.
const CUTS: [(Align, usize); 3] = [(Align::Left, 20), (Align::Right, 12), (Align::Left, 8)];

/// To which side a column leans.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The columns' names and sides.
    pub columns: Vec<(String, Align)>,
    /// The rows; each has as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell for each column");
        self.rows.push(cells);
    }

    /// The table as text, at most `width` columns wide if text columns can be cut that far.
    pub fn render(&self, width: usize) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        if names.iter().any(|name| !name.is_empty()) {
            self.line(&names, &widths, &mut text);
            let rule: usize = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
            writeln!(text, "{}", "─".repeat(rule)).expect("writing to a String cannot fail");
        }
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(&cells, &widths, &mut text);
        }
        text
    }

    fn widths(&self, most: usize) -> Vec<usize> {
        let mut cells = vec![0; self.columns.len()];
        for row in &self.rows {
            for (width, cell) in cells.iter_mut().zip(row) {
                *width = cell.width().max(*width);
            }
        }
        let names = self.columns.iter().map(|(name, _)| name.width());
        let mut widths: Vec<usize> =
            names.zip(&cells).map(|(name, cell)| name.max(*cell)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(most);
        for (side, least) in CUTS {
            let of_side = |index: &usize| self.columns[*index].1 == side;
            let floor =
                |index: usize| if side == Align::Right { cells[index].max(least) } else { least };
            while 0 < excess {
                let may = (0..widths.len()).filter(of_side).filter(|i| floor(*i) < widths[*i]);
                let Some(widest) = may.max_by_key(|index| widths[*index]) else { break };
                widths[widest] -= 1;
                excess -= 1;
            }
        }
        widths
    }

    fn line(&self, cells: &[&str], widths: &[usize], text: &mut String) {
        let start = text.len();
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if 0 < index {
                text.push_str("  ");
            }
            let cell = cut(cell, *width);
            let blanks = " ".repeat(width.saturating_sub(cell.width()));
            match self.columns[index].1 {
                Align::Left => {
                    text.push_str(&cell);
                    text.push_str(&blanks);
                }
                Align::Right => {
                    text.push_str(&blanks);
                    text.push_str(&cell);
                }
            }
        }
        text.truncate(start + text[start..].trim_end().len());
        text.push('\n');
    }
}

/// The text, cut to so many columns; line breaks and other control characters become blanks.
fn cut(text: &str, width: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.width() <= width {
        return text;
    }
    let mut kept = String::new();
    let mut columns = 0;
    for c in text.chars() {
        let next = c.width().unwrap_or(0);
        if width < columns + next + 1 {
            break;
        }
        kept.push(c);
        columns += next;
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let columns = [("tier", Align::Left), ("switches", Align::Right), ("what", Align::Left)];
        let mut table = Table::new(columns);
        table.row(["leaf", "1,536", "one in each rack"]);
        table.row(["größe", "8", "交换机 with wide characters"]);
        table
    }

    #[test]
    fn a_table_is_as_wide_as_it_needs_to_be() {
        insta::assert_snapshot!(example().render(80), @r"
        tier   switches  what
        ────────────────────────────────────────────
        leaf      1,536  one in each rack
        größe         8  交换机 with wide characters
        ");
    }

    #[test]
    fn a_narrow_terminal_cuts_text_and_never_numbers() {
        insta::assert_snapshot!(example().render(30), @r"
        tier   switches  what
        ──────────────────────────────
        leaf      1,536  one in each …
        größe         8  交换机 with …
        ");
        let widest = example().render(1).lines().map(UnicodeWidthStr::width).max();
        assert_eq!(widest, Some(5 + 2 + 8 + 2 + 8));
    }

    #[test]
    fn long_names_of_number_columns_give_way_before_labels_become_unreadable() {
        let name = "infiniband-all-to-all";
        let mut table = Table::new([("", Align::Left), (name, Align::Right), (name, Align::Right)]);
        table.row(["small messages, 99th percentile", "4.23e-6 s", "123,456,789,012,345"]);
        insta::assert_snapshot!(table.render(60), @r"
                              infiniband-all-t…  infiniband-all-to-…
        ────────────────────────────────────────────────────────────
        small messages, 99t…          4.23e-6 s  123,456,789,012,345
        ");
    }
}
