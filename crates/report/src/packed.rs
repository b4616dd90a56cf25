//! Text that was packed when the crate was built.

use std::io::Read as _;

/// The text that a build script has packed.
///
/// # Panics
///
/// Panics if it is not what a build script packs.
pub fn unpacked(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::ZlibDecoder::new(bytes)
        .read_to_string(&mut text)
        .expect("what the build has packed is text");
    text
}
