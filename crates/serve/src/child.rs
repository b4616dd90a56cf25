//! What a child process may use, and that it ends with its server.
//!
//! The server says it in a hidden flag, `--bounds`; the child puts itself under it as the first
//! thing it does. So nothing has to be done between fork and exec, and a server that is killed with
//! signal 9 leaves nothing running.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use rustix::process::set_parent_process_death_signal;
use rustix::process::{Resource, Rlimit, Signal, getppid, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What a child may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Bytes of address space.
    pub memory: u64,
    /// Seconds of processor time, of all its threads together.
    pub cpu_s: u64,
    /// Processors.
    pub processors: usize,
    /// How much it gives way to others: 0 to 19.
    pub nice: u8,
    /// The process that it ends with.
    pub parent: u32,
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, cpu_s, processors, nice, parent } = self;
        write!(f, "{memory},{cpu_s},{processors},{nice},{parent}")
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write it like MEMORY,CPU-SECONDS,PROCESSORS,NICE,PARENT".to_owned();
        let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
        let &[memory, cpu_s, processors, nice, parent] = numbers.map_err(|_| wrong())?.as_slice()
        else {
            return Err(wrong());
        };
        let parent = u32::try_from(parent).map_err(|_| wrong())?;
        let processors = usize::try_from(processors).map_err(|_| wrong())?.max(1);
        let nice = u8::try_from(nice).ok().filter(|nice| *nice < 20).ok_or_else(wrong)?;
        Ok(Self { memory, cpu_s, processors, nice, parent })
    }
}

impl Bounds {
    /// Puts this process under them. It cannot be taken back.
    pub fn obey(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        if u32::try_from(parent) != Ok(self.parent) {
            return Err(io::Error::other("the server has ended"));
        }
        // The server and its short answers come before runs.
        rustix::process::nice(self.nice.into())?;
        let limits =
            [(Resource::As, self.memory), (Resource::Cpu, self.cpu_s), (Resource::Core, 0)];
        for (resource, limit) in limits {
            setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
        }
        self.take_processors()
    }

    /// So many of the processors that this process has, others in every process.
    fn take_processors(&self) -> io::Result<()> {
        let mine = sched_getaffinity(None)?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| mine.is_set(*cpu)).collect();
        if all.len() <= self.processors {
            return Ok(());
        }
        let first = std::process::id() as usize * self.processors;
        let mut chosen = CpuSet::new();
        for next in 0..self.processors {
            chosen.set(all[(first + next) % all.len()]);
        }
        Ok(sched_setaffinity(None, &chosen)?)
    }
}

/// Bytes that can still be written below a folder, if the system says.
pub(crate) fn room(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Bytes of memory that this machine has; a guess of 4 GiB where it does not say.
pub(crate) fn machine_memory() -> u64 {
    let about = rustix::system::sysinfo();
    let bytes = u64::from(about.mem_unit).saturating_mul(about.totalram as u64);
    if bytes == 0 { 4 << 30 } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_and_read() {
        let bounds = Bounds { memory: 1 << 30, cpu_s: 60, processors: 2, nice: 10, parent: 77 };
        assert_eq!(bounds.to_string().parse(), Ok(bounds));
        for wrong in
            ["", "1,2,3,4", "1,2,3,4,5,6", "a,b,c,d,e", "1,2,3,4,99999999999", "1,2,3,20,5"]
        {
            assert!(wrong.parse::<Bounds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_process_without_its_server_refuses_to_begin() {
        let bounds =
            Bounds { memory: u64::MAX, cpu_s: 1000, processors: 64, nice: 0, parent: u32::MAX };
        assert_eq!(bounds.obey().unwrap_err().to_string(), "the server has ended");
    }
}
