//! Tables for the terminal: columns as wide as they need to be, as narrow as they must.
//!
//! Widths are counted in columns of the terminal, not in bytes or characters. If a table is wider
//! than the terminal, its text and the names of its number columns are broken at blanks; a table
//! that may is turned on its side; what is still too wide goes on below, under its first column
//! again. Nothing is cut, and no number or word is broken.

use std::fmt::Write as _;

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

/// Blanks between columns.
const GAP: usize = 2;

/// Behind these a name may be broken, besides at blanks.
const JOINTS: [char; 4] = ['-', '/', '_', '.'];

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
    /// Whether rows may become columns where it is too wide.
    turns: bool,
    /// How many rows a terminal shows; a page has all.
    most: Option<usize>,
}

impl Table {
    /// A table without rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect();
        Self { columns, rows: Vec::new(), turns: false, most: None }
    }

    /// The same, turned on its side where that fits and this does not.
    #[must_use]
    pub fn turning(self) -> Self {
        Self { turns: true, ..self }
    }

    /// The same; a terminal shows its first rows only, and says how many more there are.
    #[must_use]
    pub fn first(self, most: usize) -> Self {
        Self { most: Some(most), ..self }
    }

    /// The same without columns in which no row has anything.
    pub(crate) fn filled(&self) -> Self {
        let is_filled = |at: &usize| self.rows.iter().any(|row| !row[*at].trim().is_empty());
        let kept: Vec<usize> =
            (0..self.columns.len()).filter(|at| *at == 0 || is_filled(at)).collect();
        if self.rows.is_empty() || kept.len() == self.columns.len() {
            return self.clone();
        }
        let pick = |row: &Vec<String>| kept.iter().map(|at| row[*at].clone()).collect();
        Self {
            columns: kept.iter().map(|at| self.columns[*at].clone()).collect(),
            rows: self.rows.iter().map(pick).collect(),
            ..*self
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let plain = |cell: String| cell.replace(|c: char| c.is_control(), " ");
        let cells: Vec<String> = cells.into_iter().map(|cell| plain(cell.into())).collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell for each column");
        self.rows.push(cells);
    }

    /// The table as text, at most `width` columns wide unless a single word is wider.
    pub fn render(&self, width: usize) -> String {
        let mut shown = self.filled();
        let more = self.most.map_or(0, |most| self.rows.len().saturating_sub(most));
        shown.rows.truncate(self.rows.len() - more);
        let text = shown.text(width);
        match more {
            0 => text,
            1 => text + "1 more row: --report FILE.html and --json have it.\n",
            more => text + &format!("{more} more rows: --report FILE.html and --json have them.\n"),
        }
    }

    fn text(&self, width: usize) -> String {
        let is_wide = |table: &Self, widths: &[usize]| width < table.total(widths);
        if self.turns && is_wide(self, &self.natural()) {
            let turned = self.turned();
            let helps = is_wide(self, &self.least());
            if !is_wide(&turned, &turned.natural()) || (helps && !is_wide(&turned, &turned.least()))
            {
                return turned.block(width);
            }
        }
        let blocks = self.blocks(width);
        blocks.iter().map(|block| block.block(width)).collect::<Vec<_>>().join("\n")
    }

    /// Rows as columns, columns as rows.
    fn turned(&self) -> Self {
        let names = self.rows.iter().map(|row| row[0].as_str());
        let mut table = Self::new(
            std::iter::once(("", Align::Left)).chain(names.map(|name| (name, Align::Right))),
        );
        for (at, (name, _)) in self.columns.iter().enumerate().skip(1) {
            let cells = self.rows.iter().map(|row| row[at].trim().to_owned());
            table.row(std::iter::once(name.clone()).chain(cells));
        }
        table
    }

    /// The table in pieces that fit, each with the first column.
    fn blocks(&self, width: usize) -> Vec<Self> {
        let least = self.least();
        let mut pieces: Vec<Vec<usize>> = Vec::new();
        for at in 1..self.columns.len() {
            let fits = |piece: &&mut Vec<usize>| {
                let needed: usize = piece.iter().chain([&at]).map(|at| least[*at] + GAP).sum();
                least[0] + needed <= width
            };
            match pieces.last_mut().filter(fits) {
                Some(piece) => piece.push(at),
                None => pieces.push(vec![at]),
            }
        }
        if pieces.len() < 2 {
            return vec![self.clone()];
        }
        let pick = |piece: &[usize], row: &[String]| -> Vec<String> {
            std::iter::once(0).chain(piece.iter().copied()).map(|at| row[at].clone()).collect()
        };
        let part = |piece: &Vec<usize>| Self {
            columns: std::iter::once(0)
                .chain(piece.iter().copied())
                .map(|at| self.columns[at].clone())
                .collect(),
            rows: self.rows.iter().map(|row| pick(piece, row)).collect(),
            turns: false,
            most: None,
        };
        pieces.iter().map(part).collect()
    }

    fn block(&self, width: usize) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        if names.iter().any(|name| !name.is_empty()) {
            self.line(&names, &widths, Place::Head, &mut text);
            writeln!(text, "{}", "─".repeat(self.total(&widths)))
                .expect("writing to a String cannot fail");
        }
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(&cells, &widths, Place::Row, &mut text);
        }
        text
    }

    /// How wide it is with columns of these widths.
    fn total(&self, widths: &[usize]) -> usize {
        widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    /// The widths with every cell on one line.
    fn natural(&self) -> Vec<usize> {
        self.each(|text, _| text.trim_end().width(), |name| name.width())
    }

    /// The least widths: text breaks between words, numbers do not.
    fn least(&self) -> Vec<usize> {
        let longest = |pieces: Vec<&str>| pieces.iter().map(|p| p.trim_end().width()).max();
        self.each(
            |text, side| match side {
                Align::Left => longest(pieces(text, Place::Row)).unwrap_or(0),
                Align::Right => text.width(),
            },
            |name| longest(pieces(name, Place::Head)).unwrap_or(0),
        )
    }

    fn each(
        &self,
        cell: impl Fn(&str, Align) -> usize,
        name: impl Fn(&str) -> usize,
    ) -> Vec<usize> {
        let widest = |(at, (head, side)): (usize, &(String, Align))| {
            self.rows.iter().map(|row| cell(&row[at], *side)).fold(name(head), usize::max)
        };
        self.columns.iter().enumerate().map(widest).collect()
    }

    fn widths(&self, most: usize) -> Vec<usize> {
        let (mut widths, least) = (self.natural(), self.least());
        let mut excess = self.total(&widths).saturating_sub(most);
        while 0 < excess {
            let may = (0..widths.len()).filter(|at| least[*at] < widths[*at]);
            let Some(widest) = may.max_by_key(|at| widths[*at]) else { break };
            widths[widest] -= 1;
            excess -= 1;
        }
        widths
    }

    /// One row, on as many lines as its cells need; names stand at the bottom.
    fn line(&self, cells: &[&str], widths: &[usize], place: Place, text: &mut String) {
        let broken: Vec<Vec<String>> =
            cells.iter().zip(widths).map(|(cell, width)| broken(cell, *width, place)).collect();
        let height = broken.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            let start = text.len();
            for (index, (lines, width)) in broken.iter().zip(widths).enumerate() {
                if 0 < index {
                    text.push_str(&" ".repeat(GAP));
                }
                let above = if place == Place::Head { height - lines.len() } else { 0 };
                let line = at.checked_sub(above).and_then(|at| lines.get(at));
                let line = line.map_or("", String::as_str);
                let blanks = " ".repeat(width.saturating_sub(line.width()));
                match self.columns[index].1 {
                    Align::Left => text.extend([line, &blanks]),
                    Align::Right => text.extend([&blanks, line]),
                }
            }
            text.truncate(start + text[start..].trim_end().len());
            text.push('\n');
        }
    }
}

/// Where a cell stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Head,
    Row,
}

/// The pieces that a text may be broken into.
fn pieces(text: &str, place: Place) -> Vec<&str> {
    let is_joint = |c: char| c == ' ' || (place == Place::Head && JOINTS.contains(&c));
    let (mut pieces, mut from) = (Vec::new(), 0);
    for (at, c) in text.char_indices().filter(|(_, c)| is_joint(*c)) {
        let end = at + c.len_utf8();
        // The point of a number is no joint.
        let is_point = c == '.' && text[end..].starts_with(|next: char| next.is_ascii_digit());
        if !is_point {
            pieces.push(&text[from..end]);
            from = end;
        }
    }
    if from < text.len() {
        pieces.push(&text[from..]);
    }
    pieces
}

/// The text on lines of at most `width`, as far as its words allow.
fn broken(text: &str, width: usize, place: Place) -> Vec<String> {
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for piece in pieces(text, place) {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && width < line.width() + piece.trim_end().width() {
            line.truncate(line.trim_end().len());
            lines.push(piece.to_owned());
        } else {
            line.push_str(piece);
        }
    }
    let line = lines.last_mut().expect("there is always one");
    line.truncate(line.trim_end().len());
    lines
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
    fn columns_without_anything_are_left_out_and_hidden_rows_are_counted() {
        let columns = [("port", Align::Left), ("lost", Align::Right), ("sent", Align::Right)];
        let mut table = Table::new(columns).first(1);
        table.row(["a", "", "1"]);
        table.row(["b", " ", "2"]);
        table.row(["c", "", "3"]);
        let names: Vec<String> = table.filled().columns.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["port", "sent"]);
        let text = table.render(80);
        assert!(text.contains("2 more rows") && !text.contains("lost"), "{text}");
        assert!(text.contains('1') && !text.contains('3'), "{text}");
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
    fn a_narrow_terminal_breaks_text_and_never_words_or_numbers() {
        insta::assert_snapshot!(example().render(30), @r"
        tier   switches  what
        ──────────────────────────────
        leaf      1,536  one in each
                         rack
        größe         8  交换机 with
                         wide
                         characters
        ");
        for width in 1..60 {
            let text = example().render(width);
            for word in ["1,536", "characters", "größe", "switches"] {
                assert!(text.contains(word), "{width}: {text}");
            }
            let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap();
            assert!(widest <= width.max(17), "{width}: {text}");
        }
    }

    #[test]
    fn names_break_at_their_joints_and_a_table_may_turn() {
        let name = "infiniband-all-to-all";
        let mut table = Table::new([("", Align::Left), (name, Align::Right), ("b", Align::Right)]);
        table.row(["small messages, 99th percentile", "4.23e-6 s", "123,456,789,012,345"]);
        table.row(["drops", "0", "7"]);
        let text = table.render(50);
        let heads: Vec<&str> = text.lines().take(2).map(str::trim).collect();
        assert_eq!(heads[0], "infiniband-", "{text}");
        assert!(heads[1].starts_with("all-to-all "), "{text}");
        let turned = table.turning().render(62);
        assert!(turned.lines().nth(2).unwrap().starts_with("infiniband-all-to-all"), "{turned}");
        assert!(turned.contains("4.23e-6 s") && turned.contains("123,456,789,012,345"));
    }
}
