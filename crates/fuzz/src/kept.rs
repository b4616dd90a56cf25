//! What fatflow or another tool has kept: databases, sweep stores, the file of users.
//!
//! Such files are large and begin whole, so an input is a list of patches: of five bytes four say
//! where, the fifth what stands there.

use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use scenario::Request;
use serve::store::{Run, Status, Store};
use sweep::{Grid, Options, Plan, Selection};

use crate::targets::{SCENARIO, as_file, observed, said, text, texts};

/// Some patches.
pub(crate) fn patches() -> Vec<Vec<u8>> {
    vec![vec![], vec![0, 0, 0, 0, 0], vec![9, 0, 0, 0, 2], vec![64, 0, 0, 0, 1, 0, 16, 0, 0, 255]]
}

fn patched(whole: &[u8], input: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for patch in input.chunks_exact(5) {
        let at = u32::from_le_bytes([patch[0], patch[1], patch[2], patch[3]]) as usize;
        let at = at % bytes.len();
        bytes[at] = patch[4];
    }
    // What is left over says where the file ends.
    if let Some([a, b]) = input.chunks_exact(5).remainder().get(..2) {
        bytes.truncate(usize::from(u16::from_le_bytes([*a, *b])));
    }
    bytes
}

/// A database with a few runs, as the server leaves it.
fn database() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let folder = tempfile::tempdir().expect("there is a place for files");
        let path = folder.path().join("a.redb");
        let store = Store::open(&path).expect("an empty folder takes one");
        for name in ["one", "two", "three"] {
            let run = Run {
                id: 0,
                owner: String::new(),
                name: name.to_owned(),
                command: "run".to_owned(),
                engine: String::new(),
                status: Status::Done,
                message: String::new(),
                asked_at: 7,
                took_s: 1.5,
            };
            store.add(run, &[("scenario.toml".into(), SCENARIO.into())]).expect("there is room");
        }
        drop(store);
        std::fs::read(&path).expect("it was written")
    })
}

/// The server's database.
pub(crate) fn runs(input: &[u8]) -> String {
    as_file("a.redb", &patched(database(), input), |path| match Store::open(path) {
        Ok(store) => said(store.runs()),
        Err(error) => error.to_string().replace(&path.display().to_string(), ""),
    })
}

/// A sweep of two cases that was executed: its plan, and its one file of results.
fn swept() -> &'static (String, Vec<u8>) {
    static SWEPT: OnceLock<(String, Vec<u8>)> = OnceLock::new();
    SWEPT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("there is a place for files");
        let grid = "from = \"small-16\"\nengine = \"analytic\"\n[axes]\nseed = [1, 2]\n\
                    [keep]\nmeasures = [\"step_s\"]\n";
        let grid = Grid::parse(grid, Path::new("."), &Request::default()).expect("a good grid");
        let plan = grid.plan(1).expect("it has cases");
        let options = Options { threads: 1, progress: &|_| {}, interrupt: &AtomicBool::new(false) };
        sweep::exec(&grid, &plan, &Selection::ALL, folder.path(), options).expect("they run");
        let (_, bytes) = sweep::store::only_file(folder.path()).expect("one file");
        (plan.text().expect("it can be written"), bytes)
    })
}

/// A sweep's folder, whose file of results was changed by whoever also knows its checksum.
pub(crate) fn sweep(input: &[u8]) -> String {
    let (plan, whole) = swept();
    let bytes = patched(whole, input);
    let folder = tempfile::tempdir().expect("there is a place for files");
    let shards = folder.path().join("shards");
    let name = format!("0-of-1.x.{}.parquet", scenario::hash::hash_bytes(&bytes));
    let written = std::fs::create_dir(&shards)
        .and_then(|()| std::fs::write(folder.path().join("plan.jsonl"), plan))
        .and_then(|()| std::fs::write(shards.join(name), &bytes));
    written.expect("there is room");
    match sweep::status(folder.path()) {
        Ok(status) => {
            let why = status.damaged.first().map(|damaged| damaged.why.clone());
            format!("{} done, {} failed, {why:?}", status.done, status.failed)
        }
        Err(failure) => failure.to_string(),
    }
}

/// A database of a profiler.
pub(crate) fn rocpd(input: &[u8]) -> String {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        let packed = &include_bytes!("../../observe/tests/data/rocpd.db.gz")[..];
        let mut whole = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut whole).expect("it is gzip");
        whole
    });
    observed(&patched(whole, input))
}

/// People of a server.
pub(crate) fn user_seeds() -> Vec<Vec<u8>> {
    let token = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    texts(&[
        &format!("[[users]]\nname = \"ana\"\ntoken = \"{token}\"\nrole = \"run\"\n"),
        &format!(
            "[[users]]\nname = \"bob\"\ntoken = \"{token}\"\nexpires = 2027-01-31\nwaiting = 4\n\
             memory = \"8GiB\"\nprivate = true\n"
        ),
    ])
}

/// The file of users, and somebody with a token of theirs.
pub(crate) fn users(input: &[u8]) -> String {
    as_file("users.toml", input, |path| match serve::users::Users::open(path) {
        Ok(users) => format!("{:?}", users.who("", 1 << 40)),
        Err(error) => error.to_string().replace(&path.display().to_string(), ""),
    })
}

/// A plan, read back.
pub(crate) fn plan(input: &[u8]) -> String {
    said(Plan::parse(&text(input), "plan.jsonl"))
}
