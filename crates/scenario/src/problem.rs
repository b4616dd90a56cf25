//! What is wrong with an input, in a form that can be shown with the line it stands on.
//!
//! A [`Problem`] says what is wrong, where, and what would be right. It owns what it shows (the
//! name and text of its source are shared), so that it outlives the load that found it.
//! [`Problems`] is what a failed load returns: all of them, in the order of the text.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode,
};

use crate::source::Source;

/// More problems than this are counted, not shown.
const MAX_SHOWN: usize = 50;

/// Lines longer than this are not shown: a file on one line would fill the screen.
const MAX_LINE_BYTES: usize = 400;

/// One thing that is wrong, where, and what would be right.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The dotted path of the key concerned; empty if it concerns no single key.
    pub key: String,
    /// What would be right, if there is something to say.
    pub help: Option<String>,
    /// Where it stands, if it stands anywhere.
    pub place: Option<Box<Place>>,
}

/// A place in a source.
#[derive(Clone, Debug)]
pub struct Place {
    /// The text.
    pub source: Source,
    /// The bytes of the offending word.
    pub span: Range<usize>,
    /// A few words to write below it.
    pub label: String,
}

impl Place {
    /// Line and column, both counted from 1.
    pub fn line_and_column(&self) -> (usize, usize) {
        self.source.line_and_column(self.span.start)
    }

    /// Whether the line (and its neighbours, which are shown too) are short enough to show.
    fn can_be_shown(&self) -> bool {
        let text = &*self.source.text;
        let start = text[..self.span.start].rmatch_indices('\n').nth(1).map_or(0, |(at, _)| at);
        let end = text[self.span.end..].match_indices('\n').nth(1);
        let end = end.map_or(text.len(), |(at, _)| self.span.end + at);
        text[start..end].split('\n').all(|line| line.len() <= MAX_LINE_BYTES)
    }
}

impl Problem {
    /// A problem without a place.
    pub fn error(message: impl Into<String>) -> Self {
        Self { message: message.into(), key: String::new(), help: None, place: None }
    }

    /// Adds what would be right.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the key it concerns.
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Adds where it stands and a few words to write below the word.
    pub fn at(mut self, source: &Source, span: Range<usize>, label: impl Into<String>) -> Self {
        let span = source.clamp(span);
        let place = Place { source: source.clone(), span, label: label.into() };
        self.place = Some(Box::new(place));
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// How problems are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether escape codes for colours may be used.
    pub colour: Colour,
    /// The columns that there are.
    pub width: usize,
}

/// Whether text carries colours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Colour {
    /// Plain text.
    Never,
    /// With escape codes.
    Always,
}

/// All that is wrong with an input; never empty.
#[derive(Clone, Debug)]
pub struct Problems(pub Vec<Problem>);

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
            if let Some(place) = &problem.place {
                let (line, column) = place.line_and_column();
                write!(f, " ({}:{line}:{column})", place.source.name)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl Problems {
    /// Draws every problem with the line it stands on, and counts them.
    pub fn render(&self, style: Style) -> String {
        let theme = match style.colour {
            Colour::Never => GraphicalTheme::unicode_nocolor(),
            Colour::Always => GraphicalTheme::unicode(),
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(style.width.max(40))
            .with_context_lines(1)
            .with_links(false);
        let mut text = String::new();
        for problem in self.0.iter().take(MAX_SHOWN) {
            let drawn = Drawn::new(problem);
            handler.render_report(&mut text, &drawn).expect("writing to a String cannot fail");
            text.push('\n');
        }
        match self.0.len() {
            0 | 1 => {}
            count if count <= MAX_SHOWN => {
                writeln!(text, "{count} errors").expect("writing to a String cannot fail");
            }
            count => writeln!(text, "{count} errors, of which the first {MAX_SHOWN} are shown")
                .expect("writing to a String cannot fail"),
        }
        text
    }
}

/// A problem as `miette` wants it.
struct Drawn<'a> {
    problem: &'a Problem,
    message: String,
    help: Option<String>,
    source: Option<NamedSource<Arc<str>>>,
}

impl<'a> Drawn<'a> {
    fn new(problem: &'a Problem) -> Self {
        let place = problem.place.as_deref();
        let shown = place.filter(|place| place.can_be_shown());
        let source = shown.map(|place| NamedSource::new(&place.source.name, harmless(place)));
        let message = match place {
            Some(place) if source.is_none() => {
                let (line, column) = place.line_and_column();
                format!("{} ({}:{line}:{column})", problem.message, place.source.name)
            }
            _ => problem.message.clone(),
        };
        let help = problem.help.as_deref().map(written_out);
        Self { problem, message: written_out(&message), help, source }
    }
}

/// The text without control characters, which a terminal would obey. Every byte keeps its place.
fn harmless(place: &Place) -> Arc<str> {
    let text = &place.source.text;
    let harms = |c: char| c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t');
    if !text.contains(harms) {
        return Arc::clone(text);
    }
    text.chars().map(|c| if harms(c) { '?' } else { c }).collect::<String>().into()
}

/// A message in which control characters are written out.
fn written_out(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => written.push(' '),
            c if c.is_control() => written.extend(c.escape_default()),
            c => written.push(c),
        }
    }
    written
}

impl fmt::Debug for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.problem, f)
    }
}

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Drawn<'_> {}

impl Diagnostic for Drawn<'_> {
    fn help<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        let help = self.help.as_ref()?;
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref()?;
        let place = self.problem.place.as_ref()?;
        let label = LabeledSpan::new(
            (!place.label.is_empty()).then(|| place.label.clone()),
            place.span.start,
            place.span.len(),
        );
        Some(Box::new(std::iter::once(label)))
    }
}
