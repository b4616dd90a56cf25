//! What a run costs the machine: clock, processor and memory. The only place that asks.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use cpu_time::{ProcessTime, ThreadTime};
use units::Bytes;

/// A stopwatch for clock and processor.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    wall: Instant,
    cpu: ProcessTime,
}

impl Meter {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "what a run cost is told beside its result")]
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: ProcessTime::now() }
    }

    /// Seconds on the clock since then.
    pub fn wall_s(&self) -> f64 {
        self.wall.elapsed().as_secs_f64()
    }

    /// Seconds of the processor since then, over all threads.
    pub fn cpu_s(&self) -> f64 {
        self.cpu.elapsed().as_secs_f64()
    }
}

/// A stopwatch for the clock and for the processor as far as one thread has it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadMeter {
    wall: Instant,
    cpu: ThreadTime,
}

impl ThreadMeter {
    /// Starts now, on this thread.
    #[expect(clippy::disallowed_methods, reason = "what a case cost is told beside its result")]
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: ThreadTime::now() }
    }

    /// Seconds on the clock since then.
    pub fn wall_s(&self) -> f64 {
        self.wall.elapsed().as_secs_f64()
    }

    /// Seconds of the processor since then, on the thread that started it.
    pub fn cpu_s(&self) -> f64 {
        self.cpu.elapsed().as_secs_f64()
    }
}

/// The most memory that this process has used; 0 where the system does not tell.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kilobytes.map_or(0, |kilobytes: u64| kilobytes << 10)
}

/// Memory that this process can still have, and what bounds it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Left {
    /// So many bytes.
    pub bytes: u64,
    /// Of what, with the place where it is set.
    pub of: &'static str,
    /// So many of them a run leaves, to end in order: who finds none of its address space is ended
    /// by an abort, of a group's memory by a signal, and a machine that has none helps nobody.
    pub reserve: u64,
    /// Who takes more is ended at once, without a word.
    pub aborts: bool,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there are {:.1} {}", Bytes::new(self.bytes), self.of)
    }
}

/// The memory that is free for use; `None` where the system does not tell.
pub fn available_bytes() -> Option<u64> {
    left().map(|left| left.bytes)
}

/// The same, with what bounds it: the machine, the process's own limits, or those of the groups of
/// processes (control groups) that it is in.
pub fn left() -> Option<Left> {
    of_machine(&["MemAvailable:"])
        .into_iter()
        .chain(of_limits())
        .chain(of_groups())
        .min_by_key(size)
}

/// The same for a run that has begun: what other processes keep in memory may be put aside.
pub fn left_to_a_run() -> Option<Left> {
    let machine = of_machine(&["MemAvailable:", "SwapFree:"]);
    machine.into_iter().chain(of_limits()).chain(of_groups()).min_by_key(size)
}

fn size(left: &Left) -> u64 {
    left.bytes.saturating_sub(left.reserve)
}

fn of_machine(kinds: &[&str]) -> Option<Left> {
    let about = std::fs::read_to_string("/proc/meminfo").ok()?;
    // Systems without swap may not name it; of the first there is always something.
    let bytes = kinds.iter().filter_map(|kind| kilobytes(&about, kind)).reduce(u64::saturating_add);
    Some(Left { bytes: bytes?, of: "on this machine", reserve: 64 << 20, aborts: false })
}

/// What a line of a list of kilobytes says, in bytes.
fn kilobytes(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// What is left of the limits that this process runs under.
fn of_limits() -> Vec<Left> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (limits, status) = (read("/proc/self/limits"), read("/proc/self/status"));
    within_limits(&limits, &status)
}

fn within_limits(limits: &str, status: &str) -> Vec<Left> {
    let kinds = [
        ("Max address space", "VmSize:", "of address space (`ulimit -v`)"),
        ("Max data size", "VmData:", "of data (`ulimit -d`)"),
    ];
    let left = |(name, used, of)| {
        let limit = limits.lines().find_map(|line| line.strip_prefix(name))?;
        // "unlimited" is no number.
        let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
        let bytes = limit.saturating_sub(kilobytes(status, used)?);
        // Threads and allocators take address space by tens of megabytes.
        Some(Left { bytes, of, reserve: (limit / 32).clamp(8 << 20, 32 << 20), aborts: true })
    };
    kinds.into_iter().filter_map(left).collect()
}

/// What is left to the groups of processes that this one is in, of both kinds that Linux has.
fn of_groups() -> Vec<Left> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    within_groups(&groups, Path::new("/sys/fs/cgroup"), &read)
}

fn within_groups(groups: &str, root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Vec<Left> {
    let mut all = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, most, used) = match kinds {
            "" => (root.to_owned(), "memory.max", "memory.current"),
            _ if kinds.split(',').any(|kind| kind == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        // A group is bound by those around it too.
        let inner = root.join(path.trim_start_matches('/'));
        for folder in inner.ancestors().take_while(|folder| folder.starts_with(&root)) {
            let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
            let (Some(most), Some(used)) = (number(most), number(used)) else { continue };
            // What files left in memory goes when memory is wanted.
            let stat = read(&folder.join("memory.stat")).unwrap_or_default();
            let of_files = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
            let of_files: u64 = of_files.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
            all.push(Left {
                bytes: most.saturating_sub(used.saturating_sub(of_files)),
                of: "of memory in its control group",
                reserve: (most / 32).clamp(8 << 20, 32 << 20),
                aborts: true,
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_process_are_read() {
        let status = "Name:\tx\nVmSize:\t  102400 kB\nVmData:\t  51200 kB\n";
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         1073741824           unlimited            bytes\n";
        let of = "of address space (`ulimit -v`)";
        let expected = Left { bytes: (1 << 30) - (100 << 20), of, reserve: 32 << 20, aborts: true };
        assert_eq!(within_limits(limits, status), std::slice::from_ref(&expected));
        assert_eq!(expected.to_string(), "there are 968.9MB of address space (`ulimit -v`)");
        let limits = "Max data size  20971520  unlimited  bytes\n";
        let found = within_limits(limits, status);
        assert_eq!((found[0].bytes, found[0].of), (0, "of data (`ulimit -d`)"));
        assert_eq!(within_limits("", ""), []);
    }

    #[test]
    fn control_groups_and_those_around_them_bound_a_process() {
        let files = [
            ("/r/a/memory.max", "1000"),
            ("/r/a/memory.current", "700"),
            ("/r/a/memory.stat", "anon 1\ninactive_file 200\n"),
            ("/r/a/b/memory.max", "max"),
            ("/r/a/b/memory.current", "100"),
            ("/r/memory/c/memory.limit_in_bytes", "50\n"),
            ("/r/memory/c/memory.usage_in_bytes", "60\n"),
        ];
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| path == Path::new(name));
            found.map(|(_, text)| (*text).to_owned())
        };
        let left = |groups| {
            let all = within_groups(groups, Path::new("/r"), &read);
            all.into_iter().map(|left| left.bytes).collect::<Vec<_>>()
        };
        assert_eq!(left("0::/a/b\n"), [500]);
        assert_eq!(left("5:cpu,memory:/c\n3:freezer:/a\n"), [0]);
        assert_eq!(left("0::/\n"), [0; 0]);
        assert_eq!(left("nonsense\n"), [0; 0]);
    }
}
