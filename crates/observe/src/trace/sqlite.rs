//! As much of SQLite's file format as it takes to read tables from first row to last.
//!
//! A database is pages; a table is a tree of pages whose leaves hold rows in the order of their
//! numbers; a row too long for its page goes on in others. Nothing is written, indexes are not
//! used, and what is damaged is said to be: no page is visited twice.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};

use crate::input::ReadError;

/// What every database begins with.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";
/// A longer row is damage.
const LONGEST_ROW: u64 = 64 << 20;

/// Where pages come from.
pub(super) trait Pages: Read + Seek {}
impl<T: Read + Seek> Pages for T {}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Whole(i64),
    /// A number.
    Real(f64),
    /// A text, or bytes; what is no UTF-8 is replaced.
    Text(String),
}

impl Value {
    /// As a number.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(whole) => Some(*whole as f64),
            Self::Real(real) => Some(*real),
            Self::Text(text) => text.parse().ok(),
            Self::Null => None,
        }
    }

    /// As a whole number, such as the number of another row.
    pub(super) fn whole(&self) -> Option<i64> {
        match self {
            Self::Whole(whole) => Some(*whole),
            _ => None,
        }
    }

    /// As a text.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A table: its name, its first page, its columns.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Its name.
    pub(super) name: String,
    root: u32,
    columns: Vec<String>,
    /// The column that is the number of the row itself.
    key: Option<usize>,
}

impl Table {
    /// Where a column stands in a row.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.eq_ignore_ascii_case(name))
    }
}

/// An open database.
pub(super) struct Database<'a> {
    pages: Box<dyn Pages + 'a>,
    page_bytes: usize,
    /// Bytes of a page that are used.
    usable: usize,
    /// All tables.
    pub(super) tables: Vec<Table>,
}

impl<'a> Database<'a> {
    /// Reads what tables there are.
    pub(super) fn open(mut pages: Box<dyn Pages + 'a>) -> Result<Self, ReadError> {
        let mut head = [0; 100];
        pages.seek(SeekFrom::Start(0))?;
        pages
            .read_exact(&mut head)
            .map_err(|_| ReadError::new("ends within its first 100 bytes"))?;
        let page_bytes = match u16::from_be_bytes([head[16], head[17]]) {
            1 => 1 << 16,
            bytes => usize::from(bytes),
        };
        if !head.starts_with(MAGIC) || !page_bytes.is_power_of_two() || page_bytes < 512 {
            return Err(ReadError::new(format!(
                "is no SQLite database: pages of {page_bytes} bytes"
            )));
        }
        if u32::from_be_bytes([head[56], head[57], head[58], head[59]]) > 1 {
            return Err(ReadError::new("its texts are UTF-16, which is not read"));
        }
        let usable = page_bytes - usize::from(head[20]);
        let mut database = Self { pages, page_bytes, usable, tables: Vec::new() };
        let schema = Table {
            name: "sqlite_schema".to_owned(),
            root: 1,
            columns: ["type", "name", "tbl_name", "rootpage", "sql"].map(str::to_owned).to_vec(),
            key: None,
        };
        let mut tables = Vec::new();
        database.rows(&schema, |row| {
            let [kind, name, _, root, sql] = row else { return };
            let root = root.whole().and_then(|root| u32::try_from(root).ok());
            if let (Some("table"), Some(name), Some(root), Some(sql)) =
                (kind.text(), name.text(), root, sql.text())
            {
                let (columns, key) = columns(sql);
                tables.push(Table { name: name.to_owned(), root, columns, key });
            }
        })?;
        database.tables = tables;
        Ok(database)
    }

    /// Calls `each` with every row of a table, in order.
    pub(super) fn rows(
        &mut self,
        table: &Table,
        mut each: impl FnMut(&[Value]),
    ) -> Result<(), ReadError> {
        let mut seen = BTreeSet::new();
        // Pages that are still to be read, the next one last.
        let mut left = vec![table.root];
        while let Some(number) = left.pop() {
            if !seen.insert(number) {
                return Err(ReadError::new(format!("page {number} is used twice: damaged")));
            }
            let page = self.page(number)?;
            let start = if number == 1 { 100 } else { 0 };
            let cells = usize::from(short(&page, start + 3)?);
            match page.get(start).copied() {
                Some(0x05) => {
                    left.push(long(&page, start + 8)?);
                    for cell in (0..cells).rev() {
                        let at = usize::from(short(&page, start + 12 + 2 * cell)?);
                        left.push(long(&page, at)?);
                    }
                }
                Some(0x0d) => {
                    for cell in 0..cells {
                        let at = usize::from(short(&page, start + 8 + 2 * cell)?);
                        let (key, payload) = self.payload(&page, at)?;
                        each(&row(table, key, &payload)?);
                    }
                }
                kind => {
                    let kind = kind.unwrap_or_default();
                    let reason = format!("page {number} of {} is of kind {kind}", table.name);
                    return Err(ReadError::new(format!("{reason}: damaged")));
                }
            }
        }
        Ok(())
    }

    fn page(&mut self, number: u32) -> Result<Vec<u8>, ReadError> {
        let missing = || ReadError::new(format!("page {number} is not there: the file is cut"));
        let at = u64::from(number.checked_sub(1).ok_or_else(missing)?) * self.page_bytes as u64;
        let mut page = vec![0; self.page_bytes];
        self.pages.seek(SeekFrom::Start(at))?;
        self.pages.read_exact(&mut page).map_err(|_| missing())?;
        Ok(page)
    }

    /// The number of a row and its bytes, gathered from all of its pages.
    fn payload(&mut self, page: &[u8], at: usize) -> Result<(i64, Vec<u8>), ReadError> {
        let mut rest = page.get(at..).unwrap_or_default();
        let length = varint(&mut rest)?;
        let key = varint(&mut rest)? as i64;
        if LONGEST_ROW < length {
            return Err(ReadError::new(format!("a row claims {length} bytes: damaged")));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let most = self.usable.saturating_sub(35);
        let here = if length <= most {
            length
        } else {
            let least = (self.usable.saturating_sub(12)) * 32 / 255 - 23;
            let fits = least + (length - least) % (self.usable - 4);
            if fits <= most { fits } else { least }
        };
        let cut = || ReadError::new("a row reaches beyond its page: damaged");
        let mut payload = rest.get(..here).ok_or_else(cut)?.to_vec();
        let mut next = if here < length { long(rest, here)? } else { 0 };
        while payload.len() < length {
            let page = self.page(next)?;
            next = long(&page, 0)?;
            let more = (length - payload.len()).min(self.usable - 4);
            payload.extend_from_slice(page.get(4..4 + more).ok_or_else(cut)?);
        }
        Ok((key, payload))
    }
}

/// Columns of a `CREATE TABLE`, and which of them is the row's own number.
fn columns(sql: &str) -> (Vec<String>, Option<usize>) {
    let body = sql.split_once('(').map_or("", |(_, body)| body);
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for letter in body.chars() {
        match letter {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            ')' if depth == 0 => break,
            _ => {
                depth += i32::from(letter == '(') - i32::from(letter == ')');
                part.push(letter);
            }
        }
    }
    parts.push(part);
    let (mut columns, mut key) = (Vec::new(), None);
    for part in parts {
        let part = part.trim();
        let upper = part.to_ascii_uppercase();
        let constraints = ["PRIMARY KEY", "FOREIGN KEY", "UNIQUE", "CHECK", "CONSTRAINT"];
        if constraints.iter().any(|word| upper.starts_with(word)) {
            let own = upper.strip_prefix("PRIMARY KEY").and_then(|rest| {
                let name = rest.trim().trim_start_matches('(').trim_end_matches(')');
                let name = name.trim_matches(QUOTES);
                columns.iter().position(|column: &String| column.eq_ignore_ascii_case(name))
            });
            key = key.or(own);
            continue;
        }
        let name = part.split(char::is_whitespace).next().unwrap_or_default();
        if upper.contains("INTEGER") && upper.contains("PRIMARY KEY") {
            key = Some(columns.len());
        }
        columns.push(name.trim_matches(QUOTES).to_owned());
    }
    (columns, key)
}

/// What may stand around a name.
const QUOTES: [char; 6] = ['"', '`', '\'', '[', ']', ' '];

/// The values of a row, one for each column of its table.
fn row(table: &Table, key: i64, payload: &[u8]) -> Result<Vec<Value>, ReadError> {
    let mut kinds = payload;
    let header = usize::try_from(varint(&mut kinds)?).unwrap_or(usize::MAX);
    let cut =
        || ReadError::new(format!("a row of {} is shorter than it says: damaged", table.name));
    let mut values = payload.get(header..).ok_or_else(cut)?;
    let used = payload.len() - kinds.len();
    let mut kinds = payload.get(used..header).ok_or_else(cut)?;
    let mut row = Vec::with_capacity(table.columns.len());
    while !kinds.is_empty() {
        let kind = varint(&mut kinds)?;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind as usize,
            5 => 6,
            6 | 7 => 8,
            text => usize::try_from(text.saturating_sub(12) / 2).unwrap_or(usize::MAX),
        };
        let (bytes, rest) = values.split_at_checked(length).ok_or_else(cut)?;
        values = rest;
        row.push(match kind {
            0 => Value::Null,
            7 => Value::Real(f64::from_be_bytes(bytes.try_into().unwrap_or_default())),
            8 => Value::Whole(0),
            9 => Value::Whole(1),
            1..=6 => Value::Whole(bytes.iter().fold(sign(bytes), |n, b| n << 8 | i64::from(*b))),
            _ => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        });
    }
    // Columns that were added later have no values in earlier rows.
    row.resize(table.columns.len().max(row.len()), Value::Null);
    if let Some(at) = table.key
        && row[at] == Value::Null
    {
        row[at] = Value::Whole(key);
    }
    Ok(row)
}

fn sign(bytes: &[u8]) -> i64 {
    if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 }
}

/// A number of seven bits a byte, the highest first, nine bytes at most.
fn varint(bytes: &mut &[u8]) -> Result<u64, ReadError> {
    let mut number = 0_u64;
    for place in 0..9 {
        let Some((first, rest)) = bytes.split_first() else {
            return Err(ReadError::new("a number is cut: damaged"));
        };
        *bytes = rest;
        if place == 8 {
            return Ok(number << 8 | u64::from(*first));
        }
        number = number << 7 | u64::from(first & 0x7f);
        if first & 0x80 == 0 {
            break;
        }
    }
    Ok(number)
}

fn short(bytes: &[u8], at: usize) -> Result<u16, ReadError> {
    let found = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    found.map(u16::from_be_bytes).ok_or_else(|| ReadError::new("a page is damaged"))
}

fn long(bytes: &[u8], at: usize) -> Result<u32, ReadError> {
    let found = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    found.map(u32::from_be_bytes).ok_or_else(|| ReadError::new("a page is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_keys_are_found() {
        let sql = "CREATE TABLE `t_x` (\"id\" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, \
                   \"guid\" TEXT DEFAULT \"{}\" NOT NULL, a DECIMAL(3, 4), \
                   FOREIGN KEY (a) REFERENCES `b` (id))";
        assert_eq!(columns(sql), (["id", "guid", "a"].map(str::to_owned).to_vec(), Some(0)));
        let (names, key) = columns("CREATE TABLE t (a TEXT, id INTEGER, PRIMARY KEY (id))");
        assert_eq!((names.len(), key), (2, Some(1)));
    }

    #[test]
    fn what_is_no_database_says_so() {
        for bytes in [&b"SQLite format 3\0"[..], &[0; 4096]] {
            assert!(Database::open(Box::new(std::io::Cursor::new(bytes))).is_err());
        }
    }
}
