//! What a run costs the machine: clock, processor and memory. The only place that asks.

use std::time::Instant;

use cpu_time::{ProcessTime, ThreadTime};

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

/// The memory that is free for use; `None` where the system does not tell.
pub fn available_bytes() -> Option<u64> {
    let about = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = about.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes << 10)
}
