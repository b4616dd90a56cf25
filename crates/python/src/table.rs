//! Tables as Arrow: what pyarrow, polars, pandas and DuckDB read through the PyCapsule interface.
//!
//! A table is one record batch. Handing it out hands out its buffers: nobody copies them.

use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray, RecordBatch,
    RecordBatchIterator, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use commands::Failure;
use commands::files::flows;
use commands::work::Work;
use exports::Column;
use exports::table::Table as Columns;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyFloat, PyInt, PyList};
use traffic::pattern::Flow;
use traffic::{OpKind, OpTimes, Outcome, Transfers};
use units::{Bytes, Span, Time};

use crate::watched::watched;

/// Columns with names, which any reader of Arrow streams takes without copying.
#[pyclass(frozen, module = "fatflow._native")]
#[derive(Clone, Debug)]
pub(crate) struct Table {
    batch: RecordBatch,
}

impl Table {
    /// A table of results as Arrow.
    pub(crate) fn of(columns: Columns) -> Result<Self, Failure> {
        let named = columns.into_columns().into_iter().map(|(name, column)| {
            let may_miss = matches!(column, Column::SomeNumbers(_) | Column::SomeWords(_));
            let array: ArrayRef = match column {
                Column::Integers(values) => Arc::new(UInt64Array::from(values)),
                Column::Numbers(values) => Arc::new(Float64Array::from(values)),
                Column::SomeNumbers(values) => Arc::new(Float64Array::from(values)),
                Column::Words(values) => Arc::new(LargeStringArray::from_iter_values(values)),
                Column::SomeWords(values) => Arc::new(LargeStringArray::from_iter(values)),
            };
            (Field::new(name, array.data_type().clone(), may_miss), array)
        });
        Self::with(named.collect()).map_err(|error| Failure::Run(error.to_string()))
    }

    fn with(columns: Vec<(Field, ArrayRef)>) -> Result<Self, ArrowError> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
        Ok(Self { batch })
    }
}

#[pymethods]
impl Table {
    /// The table as an Arrow stream; a schema that is asked for is not obeyed, as the interface
    /// allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let (batch, schema) = (self.batch.clone(), self.batch.schema());
        let reader = RecordBatchIterator::new([Ok(batch)], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The names and types of its columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref());
        let schema = schema.map_err(|error| PyTypeError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The names of its columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        let columns = self.column_names().join(", ");
        format!("<fatflow table of {} rows: {columns}>", self.batch.num_rows())
    }
}

/// A table from Python's lists: of whole numbers, numbers, words or truths; `None` is missing.
#[pyfunction]
pub(crate) fn table(columns: Vec<(String, Bound<'_, PyList>)>) -> PyResult<Table> {
    let mut named = Vec::new();
    for (name, values) in columns {
        let array = array(&values)?;
        let field = Field::new(name, array.data_type().clone(), true);
        named.push((field, array));
    }
    Table::with(named).map_err(|error| PyTypeError::new_err(error.to_string()))
}

fn array(values: &Bound<'_, PyList>) -> PyResult<ArrayRef> {
    let given = || values.iter().filter(|value| !value.is_none());
    let all = |is: fn(&Bound<'_, PyAny>) -> bool| given().all(|value| is(&value));
    let is_truth = |value: &Bound<'_, PyAny>| value.is_instance_of::<PyBool>();
    if 0 < given().count() && all(is_truth) {
        return Ok(Arc::new(BooleanArray::from(values.extract::<Vec<Option<bool>>>()?)));
    }
    if 0 < given().count() && all(|value| value.is_instance_of::<PyInt>()) {
        return Ok(Arc::new(Int64Array::from(values.extract::<Vec<Option<i64>>>()?)));
    }
    if all(|value| value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>()) {
        return Ok(Arc::new(Float64Array::from(values.extract::<Vec<Option<f64>>>()?)));
    }
    let words = values.extract::<Vec<Option<String>>>()?;
    Ok(Arc::new(LargeStringArray::from(words)))
}

/// A table of flows as `run` makes it, of so many rows; for tests of size.
#[pyfunction]
pub(crate) fn flows_for_tests(py: Python<'_>, rows: u32) -> PyResult<Table> {
    watched(py, |_| {
        let mut transfers = Transfers::new();
        let label = transfers.label("flows");
        let (mut flows_of, mut ends, mut ops) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let start = Span::from_ns(u64::from(row));
            ends.push(transfers.add(OpKind::Wait { span: start }, label, &[]));
            let (src, dst, bytes) = (row % 1_024, (row + 1) % 1_024, Bytes::new(u64::from(row)));
            flows_of.push(Flow { src, dst, bytes, start, messages: 1 });
            let [begun, received, finish] =
                [0, 2, 3].map(|ns| Time::ZERO + start + Span::from_ns(ns));
            ops.push((row % 7 != 6).then_some(OpTimes { start: begun, received, finish }));
        }
        let work = Work { transfers, flows: flows_of, ends, parts: Vec::new() };
        let outcome = Outcome { ops: ops.into(), ..Outcome::default() };
        Table::of(flows(&work, &outcome))
    })
}

/// What a column's type is called in complaints.
pub(crate) fn type_name(kind: &DataType) -> String {
    format!("{kind}").to_lowercase()
}
