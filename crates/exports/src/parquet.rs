//! Tables as Parquet files, which pyarrow, pandas, polars, DuckDB and Spark read.
//!
//! The `parquet` crate's own column writers are used without Arrow: the tables are flat, and Arrow
//! would be most of what there is to compile. Row groups of a million rows, dictionaries for words,
//! Snappy. Integers are 64-bit unsigned, numbers doubles, words UTF-8; nothing is nullable but
//! [`Column::SomeNumbers`] and [`Column::SomeWords`]. [`read`] reads what [`write`] wrote.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::table::{Column, Table};

/// Rows of one group: what a reader takes into memory at once.
const GROUP_ROWS: usize = 1 << 20;

/// Writes a table.
pub fn write(table: &Table, out: &mut (dyn Write + Send)) -> io::Result<()> {
    write_all(table, out).map_err(io::Error::other)
}

fn write_all(table: &Table, out: &mut (dyn Write + Send)) -> Result<(), ParquetError> {
    let fields: Result<Vec<_>, _> =
        table.columns().iter().map(|(name, column)| field(name, column).map(Arc::new)).collect();
    let schema = Type::group_type_builder("fatflow").with_fields(fields?).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let properties = properties.set_created_by("fatflow".to_owned()).build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut first = 0;
    while first < table.rows() {
        let end = table.rows().min(first + GROUP_ROWS);
        let mut group = file.next_row_group()?;
        for (_, column) in table.columns() {
            let mut writer = group.next_column()?.expect("a writer for each column");
            values(column, first..end, &mut writer)?;
            writer.close()?;
        }
        group.close()?;
        first = end;
    }
    file.close()?;
    Ok(())
}

fn field(name: &str, column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical, repetition) = match column {
        Column::Integers(_) => {
            let unsigned = LogicalType::integer(64, false);
            (Physical::INT64, Some(unsigned), Repetition::REQUIRED)
        }
        Column::Numbers(_) => (Physical::DOUBLE, None, Repetition::REQUIRED),
        Column::SomeNumbers(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        Column::Words(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
        Column::SomeWords(_) => {
            (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL)
        }
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

fn values(
    column: &Column,
    rows: std::ops::Range<usize>,
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    match column {
        Column::Integers(values) => {
            // Unsigned integers are kept in the bits of signed ones.
            let values: Vec<i64> = values[rows].iter().map(|value| value.cast_signed()).collect();
            writer.typed::<Int64Type>().write_batch(&values, None, None)?;
        }
        Column::Numbers(values) => {
            writer.typed::<DoubleType>().write_batch(&values[rows], None, None)?;
        }
        Column::SomeNumbers(values) => {
            let present: Vec<i16> =
                values[rows.clone()].iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<f64> = values[rows].iter().copied().flatten().collect();
            writer.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
        }
        Column::Words(values) => {
            let values: Vec<ByteArray> = values[rows].iter().map(|word| bytes_of(word)).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        Column::SomeWords(values) => {
            let present: Vec<i16> =
                values[rows.clone()].iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<ByteArray> =
                values[rows].iter().flatten().map(|word| bytes_of(word)).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, Some(&present), None)?;
        }
    }
    Ok(())
}

fn bytes_of(word: &str) -> ByteArray {
    ByteArray::from(word.as_bytes().to_vec())
}

/// Reads a table that [`write`] wrote; other Parquet files are refused.
pub fn read(bytes: Vec<u8>) -> io::Result<Table> {
    // The library panics at some damaged files (found by fuzzing); they are no worse than others.
    let tried = std::panic::catch_unwind(|| read_all(bytes));
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the table is damaged");
    tried.map_err(|_| damaged())?.map_err(io::Error::other)
}

fn read_all(bytes: Vec<u8>) -> Result<Table, ParquetError> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut table = Table::new();
    for at in 0..schema.num_columns() {
        let about = schema.column(at);
        let optional = about.max_def_level() == 1;
        if about.max_rep_level() != 0 || 1 < about.max_def_level() {
            return Err(ParquetError::General(format!("column `{}` is nested", about.name())));
        }
        let mut column = Values::new(about.physical_type(), optional)?;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
            if GROUP_ROWS < rows {
                return Err(ParquetError::General(format!("a group of {rows} rows")));
            }
            column.read(group.get_column_reader(at)?, rows)?;
        }
        table = table.with(about.name().to_owned(), column.column(optional)?);
    }
    Ok(table)
}

/// Values of one column as they are read: with gaps, whether or not it can have some.
enum Values {
    Integers(Vec<Option<i64>>),
    Numbers(Vec<Option<f64>>),
    Words(Vec<Option<ByteArray>>),
}

impl Values {
    fn new(physical: Physical, optional: bool) -> Result<Self, ParquetError> {
        match physical {
            Physical::INT64 if !optional => Ok(Self::Integers(Vec::new())),
            Physical::DOUBLE => Ok(Self::Numbers(Vec::new())),
            Physical::BYTE_ARRAY => Ok(Self::Words(Vec::new())),
            other => Err(ParquetError::General(format!("columns of {other} are not read here"))),
        }
    }

    fn read(&mut self, reader: ColumnReader, rows: usize) -> Result<(), ParquetError> {
        match (self, reader) {
            (Self::Integers(into), ColumnReader::Int64ColumnReader(from)) => fill(from, rows, into),
            (Self::Numbers(into), ColumnReader::DoubleColumnReader(from)) => fill(from, rows, into),
            (Self::Words(into), ColumnReader::ByteArrayColumnReader(from)) => {
                fill(from, rows, into)
            }
            _ => Err(ParquetError::General("a row group has other types".to_owned())),
        }
    }

    fn column(self, optional: bool) -> Result<Column, ParquetError> {
        const FULL: &str = "a column that cannot have gaps has none";
        let word = |bytes: ByteArray| -> Result<Cow<'static, str>, ParquetError> {
            Ok(Cow::Owned(bytes.as_utf8()?.to_owned()))
        };
        Ok(match self {
            Self::Integers(values) => {
                let values = values.into_iter().map(|value| value.expect(FULL).cast_unsigned());
                Column::Integers(values.collect())
            }
            Self::Numbers(values) if optional => Column::SomeNumbers(values),
            Self::Numbers(values) => {
                Column::Numbers(values.into_iter().map(|value| value.expect(FULL)).collect())
            }
            Self::Words(values) if optional => {
                let words = values.into_iter().map(|value| value.map(word).transpose());
                Column::SomeWords(words.collect::<Result<_, _>>()?)
            }
            Self::Words(values) => {
                let words = values.into_iter().map(|value| word(value.expect(FULL)));
                Column::Words(words.collect::<Result<_, _>>()?)
            }
        })
    }
}

/// Reads the rows of one group.
fn fill<T: DataType>(
    mut from: ColumnReaderImpl<T>,
    rows: usize,
    into: &mut Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut left = rows;
    while 0 < left {
        let (mut present, mut values) = (Vec::new(), Vec::new());
        let (read, ..) = from.read_records(left, Some(&mut present), None, &mut values)?;
        if read == 0 {
            return Err(ParquetError::EOF("a column ends before its rows do".to_owned()));
        }
        left -= read;
        let mut values = values.into_iter();
        match present.is_empty() {
            true => into.extend(values.map(Some)),
            false => into.extend(present.iter().map(|level| match level {
                0 => None,
                _ => values.next(),
            })),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::record::Field;

    use super::*;
    use crate::table::Form;

    /// Every byte of a small table changed in turn: a table or an error.
    #[test]
    fn a_damaged_table_is_an_error() {
        let table = Table::new()
            .with("case", Column::Integers(vec![1, 2]))
            .with("value", Column::SomeNumbers(vec![Some(0.5), None]));
        let mut bytes = Vec::new();
        table.write(Form::Parquet, &mut bytes).unwrap();
        let mut refused = 0;
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                refused += u32::from(read(damaged).is_err());
            }
        }
        assert!(100 < refused, "{refused}");
    }

    /// Round trip over more than one row group; independent readers are in `tests/formats`.
    #[test]
    fn what_is_written_is_read() {
        let rows = GROUP_ROWS + 3;
        let table = Table::new()
            .with("n", Column::Integers((0..rows as u64).map(|n| u64::MAX - n).collect()))
            .with("x", Column::Numbers((0..rows).map(|n| n as f64 / 3.0).collect()))
            .with(
                "gap",
                Column::SomeNumbers((0..rows).map(|n| (n % 2 == 0).then_some(1.5)).collect()),
            )
            .with("word", Column::Words((0..rows).map(|n| format!("w{}", n % 5).into()).collect()))
            .with(
                "remark",
                Column::SomeWords((0..rows).map(|n| (n % 3 == 0).then(|| "x".into())).collect()),
            );
        let mut bytes = Vec::new();
        table.write(Form::Parquet, &mut bytes).unwrap();
        assert_eq!(read(bytes.clone()).unwrap(), table);
        assert!(read(bytes[..bytes.len() / 2].to_vec()).is_err());
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let mut count = 0_u64;
        for row in reader.get_row_iter(None).unwrap() {
            let row: Vec<Field> = row.unwrap().into_columns().into_iter().map(|c| c.1).collect();
            let gap = if count.is_multiple_of(2) { Field::Double(1.5) } else { Field::Null };
            let word = Field::Str(format!("w{}", count % 5));
            let remark =
                if count.is_multiple_of(3) { Field::Str("x".to_owned()) } else { Field::Null };
            let number = Field::Double(count as f64 / 3.0);
            let expected = [Field::ULong(u64::MAX - count), number, gap, word, remark];
            assert_eq!(row, expected);
            count += 1;
        }
        assert_eq!(count, rows as u64);
    }
}
