//! What a result looks like, before anybody knows on what it is drawn.

use std::borrow::Cow;

use serde::Serialize;
use units::Unused;

use crate::chart::{Chart, Fact};
use crate::draw;
use crate::table::Table;

/// A result that can be serialised for programs and laid out for people.
pub trait Answer: Serialize {
    /// What people see.
    fn sheet(&self) -> Sheet;

    /// What computed it, if an engine did.
    fn engine(&self) -> Option<&'static str> {
        None
    }

    /// What somebody wrote and this answer does not obey, where it is about several scenarios.
    fn unused(&self) -> Vec<Unused> {
        Vec::new()
    }
}

/// Text and tables, top to bottom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// What stands on it.
    pub parts: Vec<Part>,
}

/// One part of a sheet.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A heading.
    Heading(String),
    /// A paragraph, without line breaks of its own.
    Text(String),
    /// Text whose lines stay as they are.
    Verbatim(String),
    /// A table.
    Table(Table),
    /// A few numbers, large where there is room.
    Facts(Vec<Fact>),
    /// A paragraph that should not be missed.
    Note(String),
    /// A chart.
    Chart(Box<Chart>),
    /// Details that a page has room for, and a terminal has not.
    OnPage(Vec<Part>),
}

impl Sheet {
    /// An empty sheet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a heading.
    pub fn heading(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Heading(text.into()));
        self
    }

    /// Adds a paragraph.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Adds text whose lines stay as they are.
    pub fn verbatim(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Verbatim(text.into()));
        self
    }

    /// Adds a table.
    pub fn table(mut self, table: Table) -> Self {
        self.parts.push(Part::Table(table));
        self
    }

    /// Adds a few numbers: what each is, the number written out, and what to know about it.
    pub fn facts<'a>(
        mut self,
        items: impl IntoIterator<Item = (&'a str, String, &'a str)>,
    ) -> Self {
        let fact = |(label, value, note): (&str, String, &str)| Fact {
            label: label.to_owned(),
            value,
            note: note.to_owned(),
        };
        self.parts.push(Part::Facts(items.into_iter().map(fact).collect()));
        self
    }

    /// Adds a paragraph that should not be missed.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Note(text.into()));
        self
    }

    /// Adds what only a page shows.
    pub fn on_page(mut self, details: Self) -> Self {
        self.parts.push(Part::OnPage(details.parts));
        self
    }

    /// Every part, those that only a page shows among them.
    pub fn all_parts(&self) -> Vec<&Part> {
        let mut all = Vec::new();
        for part in &self.parts {
            match part {
                Part::OnPage(parts) => all.extend(parts),
                part => all.push(part),
            }
        }
        all
    }

    /// The headings of what only a page shows.
    pub fn folded(&self) -> Vec<&str> {
        let folded = self.parts.iter().filter_map(|part| match part {
            Part::OnPage(parts) => Some(parts),
            _ => None,
        });
        let mut headings = Vec::new();
        for part in folded.flatten() {
            if let Part::Heading(text) = part {
                headings.push(text.as_str());
            }
        }
        headings
    }

    /// The same with what only a page shows among the rest.
    pub fn unfolded(self) -> Self {
        let parts = self.parts.into_iter().flat_map(|part| match part {
            Part::OnPage(parts) => parts,
            part => vec![part],
        });
        Self { parts: parts.collect() }
    }

    /// Says on the first screen which inputs were not used, and why.
    pub fn with_unused(mut self, unused: &[Unused]) -> Self {
        let mut reasons: Vec<(&Unused, Vec<&str>)> = Vec::new();
        for input in unused {
            let same = |(first, _): &&mut (&Unused, Vec<&str>)| {
                (&first.why, &first.used_by) == (&input.why, &input.used_by)
            };
            match reasons.iter_mut().find(same) {
                Some((_, keys)) => keys.push(&input.key),
                None => reasons.push((input, vec![&input.key])),
            }
        }
        let at = self.parts.iter().position(|part| !matches!(part, Part::Heading(_)));
        for (input, keys) in reasons.into_iter().rev() {
            let (keys, Unused { why, used_by, .. }) = (by_table(&keys), input);
            let note = format!("not used: {keys} ({why}; used by {used_by})");
            self.parts.insert(at.unwrap_or(self.parts.len()), Part::Note(note));
        }
        self
    }

    /// Says below the heading what the answer is about; a sheet without one is too short for that.
    pub fn with_about(mut self, lines: &str) -> Self {
        if let Some(Part::Heading(_)) = self.parts.first() {
            self.parts.insert(1, Part::Text(lines.to_owned()));
        }
        self
    }

    /// Adds a chart.
    pub fn chart(mut self, chart: Chart) -> Self {
        self.parts.push(Part::Chart(Box::new(chart)));
        self
    }

    /// The sheet as text of at most this width. Headings are bold, with escape codes that the
    /// writer strips where there is no terminal.
    pub fn render(&self, width: usize) -> String {
        let mut text = String::new();
        let shown = |part: &&Part| match part {
            Part::Chart(chart) => draw::draws(chart),
            Part::OnPage(_) => false,
            _ => true,
        };
        let mut parts = self.parts.iter().filter(shown).peekable();
        while let Some(part) = parts.next() {
            // A heading over charts that only a page can draw is left out with them.
            if let (Part::Heading(_), None | Some(Part::Heading(_))) = (part, parts.peek()) {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            match part {
                Part::Heading(heading) => {
                    let heading = harmless(heading);
                    text.push_str(&format!("\u{1b}[1m{heading}\u{1b}[0m\n"));
                }
                Part::Text(paragraph) => text.push_str(&harmless(&wrap(paragraph, width))),
                Part::Verbatim(lines) => {
                    text.push_str(&harmless(lines.trim_end()));
                    text.push('\n');
                }
                Part::Table(table) => text.push_str(&harmless(&table.render(width))),
                Part::Facts(items) => text.push_str(&harmless(&draw::facts(items, width))),
                Part::Note(paragraph) => {
                    text.push_str(&harmless(&wrap(&format!("! {paragraph}"), width)));
                }
                Part::Chart(chart) => text.push_str(&harmless(&draw::chart(chart, width))),
                Part::OnPage(_) => {}
            }
        }
        text
    }
}

/// The text without what a terminal would obey: control characters but line breaks and tabs, and
/// those that turn the direction of writing, become `?`.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let harms = |c: char| {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (c.is_control() && !matches!(c, '\n' | '\t'))
    };
    match text.contains(harms) {
        true => text.chars().map(|c| if harms(c) { '?' } else { c }).collect::<String>().into(),
        false => text.into(),
    }
}

/// Breaks a paragraph at blanks into lines of at most `width` columns.
pub(crate) fn wrap(paragraph: &str, width: usize) -> String {
    use unicode_width::UnicodeWidthStr;
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let needed = word.width();
        if 0 < column && width < column + 1 + needed {
            text.push('\n');
            column = 0;
        } else if 0 < column {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += needed;
    }
    text.push('\n');
    text
}

/// Keys in a line; many of one table as its name and their number (JSON has each).
fn by_table(keys: &[&str]) -> String {
    const MANY: usize = 6;
    let table = |key: &str| key.split('.').next().unwrap_or_default().to_owned();
    let mut words: Vec<String> = Vec::new();
    for key in keys {
        let count = keys.iter().filter(|other| table(other) == table(key)).count();
        let word = match count {
            MANY.. => format!("{}.* ({count} keys)", table(key)),
            _ => (*key).to_owned(),
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_with_nothing_below_it_is_left_out() {
        let sheet = Sheet::default().heading("empty").heading("full").text("words").heading("end");
        assert_eq!(sheet.render(20), "\u{1b}[1mfull\u{1b}[0m\n\nwords\n");
    }

    #[test]
    fn unused_inputs_stand_below_the_heading_once_for_each_reason() {
        let unused = |key: &str, why: &str| Unused {
            key: key.to_owned(),
            why: why.to_owned(),
            used_by: "packets".to_owned(),
        };
        let unused = [unused("a", "no queues"), unused("b", "no time"), unused("c", "no queues")];
        let sheet = Sheet::default().heading("title").text("words").with_unused(&unused);
        let lines = "! not used: a, c (no queues; used by packets)\n\n\
                     ! not used: b (no time; used by packets)";
        assert_eq!(sheet.render(80), format!("\u{1b}[1mtitle\u{1b}[0m\n\n{lines}\n\nwords\n"));
    }

    #[test]
    fn many_unused_inputs_of_one_table_are_one_word() {
        let keys = ["job.a", "job.b", "seed", "job.c", "job.d", "job.e", "job.f"];
        assert_eq!(super::by_table(&keys), "job.* (6 keys), seed");
        assert_eq!(super::by_table(&keys[..4]), "job.a, job.b, seed, job.c");
    }

    #[test]
    fn names_cannot_speak_to_the_terminal() {
        let evil = "a\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}b";
        let mut table = Table::new([(evil, crate::Align::Left)]);
        table.row([evil]);
        let facts = [(evil, evil.to_owned(), evil)];
        let sheet = Sheet::new().heading(evil).text(evil).verbatim(evil).note(evil);
        let shown = sheet.table(table).facts(facts).render(80);
        let ours = shown.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        assert!(!ours.contains(|c: char| c.is_control() && c != '\n'), "{ours:?}");
        assert!(!ours.contains('\u{202e}'));
    }

    #[test]
    fn paragraphs_break_at_the_width_and_nowhere_else() {
        assert_eq!(wrap("one two three four", 9), "one two\nthree\nfour\n");
        assert_eq!(wrap("unbreakable", 4), "unbreakable\n");
        assert_eq!(wrap("", 4), "\n");
    }
}
