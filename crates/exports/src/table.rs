//! Columns with names: what spreadsheets, pandas and databases read.
//!
//! One table is written as CSV or as Parquet, so both say the same. CSV as RFC 4180 has it: a
//! header, commas, quotes where a word needs them; a value that is missing is empty. A word that a
//! spreadsheet would compute (`=…`, `+…`, `-…`, `@…`) gets an apostrophe before it, as OWASP's page
//! on CSV injection has it.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

/// The values of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Counts and numbers of things.
    Integers(Vec<u64>),
    /// Measured values.
    Numbers(Vec<f64>),
    /// Measured values, of which some are missing.
    SomeNumbers(Vec<Option<f64>>),
    /// Names.
    Words(Vec<Cow<'static, str>>),
    /// Names, of which some are missing.
    SomeWords(Vec<Option<Cow<'static, str>>>),
}

impl Column {
    /// How many values it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Numbers(values) => values.len(),
            Self::SomeNumbers(values) => values.len(),
            Self::Words(values) => values.len(),
            Self::SomeWords(values) => values.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn write_csv(&self, row: usize, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Integers(values) => write!(out, "{}", values[row]),
            Self::Numbers(values) => write!(out, "{}", values[row]),
            Self::SomeNumbers(values) => match values[row] {
                Some(value) => write!(out, "{value}"),
                None => Ok(()),
            },
            Self::Words(values) => write_word(&values[row], out),
            Self::SomeWords(values) => match &values[row] {
                Some(word) => write_word(word, out),
                None => Ok(()),
            },
        }
    }
}

/// A word, in quotes where it needs them.
fn write_word(word: &str, out: &mut dyn Write) -> io::Result<()> {
    if word.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        return write!(out, "\"'{}\"", word.replace('"', "\"\""));
    }
    if word.contains([',', '"', '\n', '\r']) {
        return write!(out, "\"{}\"", word.replace('"', "\"\""));
    }
    out.write_all(word.as_bytes())
}

/// Columns of equal length, with names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<(Cow<'static, str>, Column)>,
}

/// What a table is written as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// Text.
    Csv,
    /// Columns in binary.
    Parquet,
}

impl Form {
    /// By the ending of a file's name: `.parquet` and `.pq` are Parquet, everything else CSV.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("parquet" | "pq") => Self::Parquet,
            _ => Self::Csv,
        }
    }
}

impl Table {
    /// No columns yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one more column.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, column: Column) -> Self {
        let (name, rows) = (name.into(), self.rows());
        assert!(self.columns.is_empty() || column.len() == rows, "{name} is not {rows} long");
        self.columns.push((name, column));
        self
    }

    /// The same with the columns of another one of equal length.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        other.columns.into_iter().fold(self, |table, (name, column)| table.with(name, column))
    }

    /// All columns.
    pub fn columns(&self) -> &[(Cow<'static, str>, Column)] {
        &self.columns
    }

    /// All columns, to be kept.
    pub fn into_columns(self) -> Vec<(Cow<'static, str>, Column)> {
        self.columns
    }

    /// The column of a name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(known, _)| known == name).map(|(_, column)| column)
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Writes it in a form.
    pub fn write(&self, form: Form, out: &mut (dyn Write + Send)) -> io::Result<()> {
        match form {
            Form::Csv => self.write_csv(out),
            Form::Parquet => crate::parquet::write(self, out),
        }
    }

    fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| &**name).collect();
        writeln!(out, "{}", names.join(","))?;
        for row in 0..self.rows() {
            for (place, (_, column)) in self.columns.iter().enumerate() {
                if 0 < place {
                    out.write_all(b",")?;
                }
                column.write_csv(row, out)?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_a_header_quotes_and_gaps() {
        let words = ["leaf 1 → spine 2", "with, comma", "a \"word\""].map(Cow::from).to_vec();
        let table = Table::new()
            .with("flow", Column::Integers(vec![0, 1, u64::MAX]))
            .with("name", Column::Words(words))
            .with("share", Column::Numbers(vec![0.5, 1.0, 1e-9]))
            .with("finish_ns", Column::SomeNumbers(vec![Some(12.5), None, Some(3.0)]));
        let mut text = Vec::new();
        table.write(Form::Csv, &mut text).unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r#"
        flow,name,share,finish_ns
        0,leaf 1 → spine 2,0.5,12.5
        1,"with, comma",1,
        18446744073709551615,"a ""word""",0.000000001,3
        "#);
    }

    #[test]
    fn a_spreadsheet_computes_nothing() {
        let words = ["=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(1)", "\t=1", "a=1"];
        let words = words.map(Cow::from).to_vec();
        let mut text = Vec::new();
        let table = Table::new().with("name", Column::Words(words));
        table.write(Form::Csv, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let harmless = |line: &str| line.starts_with("\"'") || line == "a=1";
        assert!(text.lines().skip(1).all(harmless), "{text}");
    }

    #[test]
    fn the_ending_decides() {
        let of = |name: &str| Form::of(Path::new(name));
        assert_eq!([of("a.parquet"), of("b.pq")], [Form::Parquet; 2]);
        assert_eq!([of("a.csv"), of("parquet"), of("x.parquet.csv")], [Form::Csv; 3]);
    }
}
