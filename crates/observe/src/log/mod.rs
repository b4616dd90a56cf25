//! Text logs, line by line: each line is offered to the readers of lines.
//!
//! A job's log holds everything that anybody wrote: the library, benchmarks, the training program.
//! So there is one reader for logs, and what a log is called follows from what was found in it.

mod groups;
mod nccl;
mod nccl_tests;
mod prefix;
mod training;
pub mod words;

pub(crate) use nccl::type_bytes;
pub(crate) use nccl_tests::add as add_benchmark;

use crate::format::{Format, Reading, unread};
use crate::input::{Input, ReadError};

/// Any text; what is in it shows while it is read.
pub const FORMAT: Format = Format { name: "text", unit: "lines", recognises: is_text, read };

/// Whether the first bytes look like text: no zero bytes, and hardly any control characters.
pub fn is_text(input: &Input<'_>) -> bool {
    let odd = |byte: &&u8| **byte < 0x20 && !matches!(**byte, b'\n' | b'\r' | b'\t' | 0x1b | 0x0c);
    let head = input.head();
    !head.contains(&0) && head.iter().filter(odd).count() * 50 <= head.len()
}

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let head = input.head_text();
    let result = read_lines(input, reading);
    if reading.source.read == 0 {
        let kind = unread::kind(&head);
        reading.source.kind = kind.unwrap_or("text of an unknown kind").to_owned();
        let file = &reading.source.file;
        reading.source.problems.push(format!("{file}: observe does not read this"));
    }
    result
}

fn read_lines(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut nccl = nccl::Nccl::default();
    let mut tests = nccl_tests::NcclTests::default();
    let mut training = training::Training::default();
    let result = loop {
        let (number, line) = match input.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        };
        // Nearly all lines are UTF-8, and to see that is faster than to replace what is not.
        let text = match std::str::from_utf8(line) {
            Ok(text) => std::borrow::Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(line),
        };
        let is_read = nccl.line(&text, number, reading)
            || tests.line(&text, number, reading)
            || training.line(&text, number, reading);
        match is_read {
            true => reading.source.read += 1,
            false => reading.source.skipped += 1,
        }
    };
    nccl.finish(reading);
    tests.finish(reading);
    training.finish(reading);
    result
}

/// Adds a name to what the source is called.
fn also(reading: &mut Reading<'_>, name: &str) {
    let kind = &mut reading.source.kind;
    match kind.as_str() {
        "text" => *kind = name.to_owned(),
        _ => *kind += &format!(" with {name}"),
    }
}
