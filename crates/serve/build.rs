//! Packs the application: it is most of what the crate carries, and text packs well.

use std::path::Path;
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::ZlibEncoder;

fn main() -> io::Result<()> {
    for name in ["app.js", "app.css"] {
        let file = format!("assets/{name}");
        io::Write::write_fmt(&mut io::stdout(), format_args!("cargo::rerun-if-changed={file}\n"))?;
        let out = env::var_os("OUT_DIR").expect("Cargo sets it");
        let packed = fs::File::create(Path::new(&out).join(name))?;
        let mut packer = ZlibEncoder::new(packed, Compression::best());
        io::Write::write_all(&mut packer, &fs::read(file)?)?;
        packer.finish()?;
    }
    Ok(())
}
