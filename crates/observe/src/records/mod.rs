//! Records: benchmarks, profilers and flight recorders that write objects rather than lines.

mod flight_recorder;
mod flows;
mod inspector;
pub mod lenient;
mod pickle;
mod tests_json;

pub use flight_recorder::{JSON as FLIGHT_RECORDER, PICKLE as FLIGHT_RECORDER_PICKLE};
pub use flows::FLOWS;
pub use inspector::{EXAMPLE as EXAMPLE_PROFILER, INSPECTOR, PROFILER};
pub use tests_json::{
    NCCL as NCCL_TESTS_JSON, RCCL as RCCL_TESTS_JSON, RCCL_CSV as RCCL_TESTS_CSV,
};

use std::io::Read;

use crate::input::{Input, ReadError};

/// The largest file of records that is read whole.
const MAX_BYTES: u64 = 1 << 30;

/// All of a file that has to be read whole.
pub(crate) fn whole(input: &mut Input<'_>) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    input.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    match MAX_BYTES < bytes.len() as u64 {
        true => Err(ReadError::new(format!("has more than {MAX_BYTES} bytes"))),
        false => Ok(bytes),
    }
}

/// Bytes of an element, by any name that NCCL or PyTorch has for its type.
pub fn type_bytes(name: &str) -> Option<u64> {
    let name = name.to_ascii_lowercase();
    let name = name.trim_start_matches("nccl").trim_start_matches("torch.");
    Some(match name {
        "int8" | "uint8" | "char" | "byte" | "bool" => 1,
        name if name.contains("float8") || name.starts_with("fp8") => 1,
        "half" | "float16" | "bfloat16" | "fp16" | "bf16" | "short" | "int16" => 2,
        "float" | "float32" | "fp32" | "int" | "int32" | "uint32" => 4,
        "double" | "float64" | "int64" | "uint64" | "long" | "complexfloat" => 8,
        _ => return None,
    })
}
