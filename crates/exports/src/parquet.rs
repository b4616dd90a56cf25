//! Tables as Parquet files, which pyarrow, pandas, polars, DuckDB and Spark read.
//!
//! The `parquet` crate's own column writers are used without Arrow: the tables are flat, and Arrow
//! would be most of what there is to compile. Row groups of a million rows, dictionaries for words,
//! Snappy. Integers are 64-bit unsigned, numbers doubles, words UTF-8; nothing is nullable but
//! [`Column::SomeNumbers`].

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
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
            let values: Vec<ByteArray> =
                values[rows].iter().map(|word| ByteArray::from(word.as_bytes().to_vec())).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;
    use crate::table::Form;

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
            .with("word", Column::Words((0..rows).map(|n| format!("w{}", n % 5).into()).collect()));
        let mut bytes = Vec::new();
        table.write(Form::Parquet, &mut bytes).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let mut read = 0_u64;
        for row in reader.get_row_iter(None).unwrap() {
            let row: Vec<Field> = row.unwrap().into_columns().into_iter().map(|c| c.1).collect();
            let gap = if read.is_multiple_of(2) { Field::Double(1.5) } else { Field::Null };
            let word = Field::Str(format!("w{}", read % 5));
            let expected =
                [Field::ULong(u64::MAX - read), Field::Double(read as f64 / 3.0), gap, word];
            assert_eq!(row, expected);
            read += 1;
        }
        assert_eq!(read, rows as u64);
    }
}
