//! Text that is part of the binary: packed by build scripts, unpacked when it is wanted.
//!
//! A build script calls [`pack`], the crate has `embedded::text!("NAME")`.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::{env, fs, io};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// For a build script: packs a file for [`text!`], which knows it by its own name without folders.
pub fn pack(file: impl AsRef<Path>) -> io::Result<()> {
    let file = file.as_ref();
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    pack_as(file, &name.to_string_lossy())
}

/// The same under another name, where two files of a crate have the same.
pub fn pack_as(file: &Path, name: &str) -> io::Result<()> {
    watch(file)?;
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let packed = fs::File::create(Path::new(&out).join(name))?;
    let mut packer = ZlibEncoder::new(packed, Compression::best());
    packer.write_all(&fs::read(file)?)?;
    packer.finish()?;
    Ok(())
}

/// For a build script: runs it again when the file or folder changes.
pub fn watch(path: &Path) -> io::Result<()> {
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", path.display())
}

/// The text of a file that the crate's build script has packed.
#[macro_export]
macro_rules! text {
    ($name:expr) => {
        $crate::unpacked(include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))
    };
}

/// What [`pack`] packed.
///
/// # Panics
///
/// Panics if it is something else.
pub fn unpacked(bytes: &[u8]) -> String {
    let mut text = String::new();
    let read = ZlibDecoder::new(bytes).read_to_string(&mut text);
    read.expect("what a build has packed is text");
    text
}
