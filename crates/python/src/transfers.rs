//! An Arrow stream as traffic: the columns of a flow file (`src`, `dst`, `bytes`, `start_ns`), and
//! `after`, the earlier rows that a row waits for.
//!
//! The rules are those of flow files (`scenario::flows`); here is only how numbers come out of
//! Arrow. Columns that nobody knows are named as unused.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, OffsetSizeTrait, RecordBatch};
use arrow_schema::DataType;
use commands::Failure;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use scenario::Problem;
use scenario::flows::FlowTable;
use units::Unused;

use crate::table::type_name;
use crate::watched::failed;

/// What the table is called where `traffic.flows` would name a file.
const NAME: &str = "transfers";

/// The columns that are read.
const COLUMNS: [&str; 5] = ["src", "dst", "bytes", "start_ns", "after"];

/// Traffic, and what of its table nobody reads.
pub(crate) type Read = (Arc<FlowTable>, Vec<Unused>);

/// Reads the traffic of a run from whatever hands out an Arrow stream.
pub(crate) fn read(from: &Bound<'_, PyAny>) -> PyResult<Read> {
    let batches = batches(from)?;
    flow_table(&batches).map_err(|failure| failed(from.py(), &failure))
}

/// The record batches of an object's Arrow stream.
fn batches(from: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let Ok(stream) = from.getattr("__arrow_c_stream__") else {
        let kind = from.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "transfers is a {kind}, which hands out no Arrow stream (`__arrow_c_stream__`): use a \
             table of polars, pyarrow or pandas 2.2 or later"
        )));
    };
    let capsule = stream.call0()?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    let reader = of_pointer(pointer.cast().as_ptr());
    let wrong = |error: arrow_schema::ArrowError| PyTypeError::new_err(error.to_string());
    let reader = reader.map_err(wrong)?;
    reader.map(|batch| batch.map_err(wrong)).collect()
}

/// Takes over the stream behind a pointer.
#[expect(unsafe_code, reason = "the C stream interface of Arrow is a pointer to a struct")]
fn of_pointer(
    stream: *mut FFI_ArrowArrayStream,
) -> Result<RecordBatchStreamReader, arrow_schema::ArrowError> {
    // SAFETY: the pointer is that of a capsule named `arrow_array_stream`, which the PyCapsule
    // interface says is an ArrowArrayStream; it is moved out, so that nobody releases it twice.
    unsafe { RecordBatchStreamReader::from_raw(stream) }
}

fn flow_table(batches: &[RecordBatch]) -> Result<Read, Failure> {
    let mut table = FlowTable { name: NAME.to_owned(), ..FlowTable::default() };
    let (mut first, mut vain) = (0, Vec::new());
    for batch in batches {
        let column = |name: &str| batch.column_by_name(name).filter(|c| !is_absent(c));
        let need = |name: &str| {
            let missing = || problem(None, format!("the column `{name}` is missing"));
            column(name).ok_or_else(missing).and_then(|c| integers(c, name, first))
        };
        table.src.extend(need("src")?);
        table.dst.extend(need("dst")?);
        table.bytes.extend(need("bytes")?);
        if let Some(start) = column("start_ns") {
            table.start_ns.extend(integers(start, "start_ns", first)?);
        }
        if let Some(after) = column("after") {
            table.after.extend(rows(after, first)?);
        }
        for field in batch.schema().fields() {
            let name = format!("{NAME}.{}", field.name());
            if !COLUMNS.contains(&field.name().as_str()) && vain.iter().all(|known| *known != name)
            {
                vain.push(name);
            }
        }
        first += batch.num_rows();
    }
    if first == 0 {
        return Err(problem(None, "there are no rows".to_owned()));
    }
    let unused = |key| Unused {
        key,
        why: "traffic is read from src, dst, bytes, start_ns and after".to_owned(),
        used_by: "nothing: leave the column out".to_owned(),
    };
    Ok((Arc::new(table), vain.into_iter().map(unused).collect()))
}

/// A column without a type holds nothing.
fn is_absent(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::Null)
}

fn problem(row: Option<usize>, reason: String) -> Failure {
    let (message, place) = match row {
        Some(row) => (format!("row {row}: {reason}"), format!("{NAME}[{row}]")),
        None => (reason, NAME.to_owned()),
    };
    let help = "a table of transfers has the columns src, dst, bytes, and may have start_ns, after";
    Problem::error(message).with_key(place).with_help(help).into()
}

/// The whole numbers of a column whose first row has this number.
fn integers(column: &ArrayRef, name: &str, first: usize) -> Result<Vec<u64>, Failure> {
    let read = match column.data_type() {
        DataType::UInt64 => whole::<UInt64Type>(column, Some),
        DataType::UInt32 => whole::<UInt32Type>(column, |value| Some(value.into())),
        DataType::UInt16 => whole::<UInt16Type>(column, |value| Some(value.into())),
        DataType::UInt8 => whole::<UInt8Type>(column, |value| Some(value.into())),
        DataType::Int64 => whole::<Int64Type>(column, |value| value.try_into().ok()),
        DataType::Int32 => whole::<Int32Type>(column, |value| value.try_into().ok()),
        DataType::Int16 => whole::<Int16Type>(column, |value| value.try_into().ok()),
        DataType::Int8 => whole::<Int8Type>(column, |value| value.try_into().ok()),
        DataType::Float64 => whole::<Float64Type>(column, of_float),
        DataType::Float32 => whole::<Float32Type>(column, |value| of_float(value.into())),
        other => {
            let kind = type_name(other);
            return Err(problem(None, format!("`{name}` is {kind}, not whole numbers")));
        }
    };
    read.map_err(|(row, value)| {
        let reason = match value {
            Some(value) => format!("`{name}` is `{value}`, not a whole number"),
            None => format!("`{name}` is missing"),
        };
        problem(Some(first + row), reason)
    })
}

/// A row, and what stands there that is no whole number.
type CellError = (usize, Option<String>);

fn whole<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    read: impl Fn(T::Native) -> Option<u64>,
) -> Result<Vec<u64>, CellError>
where
    T::Native: ToString,
{
    let values = column.as_primitive::<T>();
    let at = |row: usize| {
        if values.is_null(row) {
            return Err((row, None));
        }
        let value = values.value(row);
        read(value).ok_or_else(|| (row, Some(value.to_string())))
    };
    (0..values.len()).map(at).collect()
}

/// A whole number that is written as a float.
fn of_float(value: f64) -> Option<u64> {
    let fits = value.fract() == 0.0 && (0.0..1.8e19).contains(&value);
    fits.then_some(value as u64)
}

/// The rows that each row waits for: one, several, or none where nothing stands.
fn rows(column: &ArrayRef, first: usize) -> Result<Vec<Vec<u32>>, Failure> {
    match column.data_type() {
        DataType::List(_) => of_lists::<i32>(column, first),
        DataType::LargeList(_) => of_lists::<i64>(column, first),
        _ => (0..column.len()).map(|row| row_numbers(&column.slice(row, 1), first + row)).collect(),
    }
}

fn of_lists<O: OffsetSizeTrait>(column: &ArrayRef, first: usize) -> Result<Vec<Vec<u32>>, Failure> {
    let lists = column.as_list::<O>();
    let at = |row: usize| match lists.is_null(row) {
        true => Ok(Vec::new()),
        false => row_numbers(&lists.value(row), first + row),
    };
    (0..lists.len()).map(at).collect()
}

/// The numbers of rows that stand in one row's cell.
fn row_numbers(cell: &ArrayRef, row: usize) -> Result<Vec<u32>, Failure> {
    if is_absent(cell) || cell.null_count() == cell.len() {
        return Ok(Vec::new());
    }
    let fits = |number: u64| {
        u32::try_from(number).map_err(|_| problem(Some(row), format!("there is no row {number}")))
    };
    let numbers = integers(cell, "after", 0).map_err(|failure| match failure {
        // The row is the table's, not the cell's.
        Failure::Input(problems) => {
            let text = problems.0.first().map_or(String::new(), |p| p.message.clone());
            let reason = text.split_once(": ").map_or(text.clone(), |(_, rest)| rest.to_owned());
            problem(Some(row), reason)
        }
        other => other,
    })?;
    numbers.into_iter().map(fits).collect()
}
