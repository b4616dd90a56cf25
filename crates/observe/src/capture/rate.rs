//! Bytes over time in a fixed number of bins, whatever the length of the capture.

/// Bins that are kept.
const BINS: usize = 4096;
/// The width of the narrowest.
const FIRST_NS: u64 = 10_000;

/// Bytes over time.
#[derive(Debug)]
pub(super) struct Rate {
    start_ns: Option<u64>,
    /// The width of a bin: it doubles when time runs beyond the last.
    pub width_ns: u64,
    bins: Vec<u64>,
}

impl Default for Rate {
    fn default() -> Self {
        Self { start_ns: None, width_ns: FIRST_NS, bins: Vec::new() }
    }
}

impl Rate {
    /// Adds bytes at a time. What came before the first counts with the first.
    pub(super) fn add(&mut self, time_ns: u64, bytes: u64) {
        let start = *self.start_ns.get_or_insert(time_ns);
        let since = time_ns.saturating_sub(start);
        while (BINS as u64) <= since / self.width_ns {
            let pairs = self.bins.chunks(2).map(|pair| pair.iter().sum());
            self.bins = pairs.collect();
            self.width_ns = self.width_ns.saturating_mul(2);
        }
        let bin = (since / self.width_ns) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += bytes;
    }

    /// Bits per second of every bin, with its beginning in seconds.
    pub(super) fn series(&self) -> Vec<(f64, f64)> {
        let width = self.width_ns as f64 * 1e-9;
        let point = |(bin, bytes): (usize, &u64)| (bin as f64 * width, *bytes as f64 * 8.0 / width);
        self.bins.iter().enumerate().map(point).collect()
    }

    /// The busiest bin over the mean, the share of bins that are not empty, and runs of them.
    pub(super) fn bursts(&self) -> Option<(f64, f64, u64)> {
        let total: u64 = self.bins.iter().sum();
        let most = *self.bins.iter().max()?;
        if total == 0 {
            return None;
        }
        let mean = total as f64 / self.bins.len() as f64;
        let busy = self.bins.iter().filter(|bytes| 0 < **bytes).count();
        let begins = |pair: &&[u64]| pair[0] == 0 && 0 < pair[1];
        let runs = self.bins.windows(2).filter(begins).count() + usize::from(0 < self.bins[0]);
        Some((most as f64 / mean, busy as f64 / self.bins.len() as f64, runs as u64))
    }
}
