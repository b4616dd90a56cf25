//! Failures, checkpoints, restarts; the share of the time that trains.
//!
//! How it works. Failures arrive as a Poisson process whose rate is the sum over components of a
//! published rate times how many there are. A run trains for an interval, writes a checkpoint,
//! and so on; a failure costs its detection, the restart, and the work since the last checkpoint.
//! With exponential failures the expected time of one interval `τ` with checkpoint cost `C` and
//! recovery `R` is `(1/λ + R)·(e^(λ(τ+C)) − 1)`; goodput is `τ` over it (Daly, "A higher order
//! estimate of the optimum checkpoint interval", FGCS 2006). [`campaign`](crate::campaign) plays
//! the same by dice, for what the closed form cannot say: spares that run out, failures while
//! others are mended, state that must be read again, copies that go on alone.
//!
//! Sources: interruptions by cause from Llama 3 (arXiv 2407.21783) table 5: 54 days on 16,384 H100;
//! those of parts are in [`parts`](crate::parts); detection and restart times from
//! MegaScale (arXiv 2402.15627) section 6.
//!
//! Where it departs from reality: failures are independent and memoryless; a bad batch of cables or
//! a hot week is not. Recovery is one number; nothing fails meanwhile.

use fabric::graph::RATES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Rate, Span, UnusedKeys};

/// What a failure comes from.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// GPU, its memory, its system processor, NVLink, heat.
    Gpu,
    /// Silent data corruption.
    SilentCorruption,
    /// CPU, memory, disk, power supply, chassis.
    Host,
    /// A network card.
    Nic,
    /// A cable, transceiver or switch port between a NIC and its switch.
    Link,
    /// A switch.
    Switch,
    /// A bug, a dependency, a watchdog.
    Software,
    /// Maintenance that could not wait.
    Maintenance,
}

/// How often one kind of component stops a job.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRate {
    /// What fails.
    pub cause: Cause,
    /// How often one GPU's share of it fails in a year (everything is counted per GPU, so that a
    /// cluster's rate is a product).
    pub per_gpu_year: f64,
}

/// Days of the observation behind Llama 3's table 5, and the GPUs in it.
const OBSERVED_GPU_YEARS: f64 = 16_384.0 * 54.0 / 365.25;

/// Llama 3's unexpected interruptions by cause (arXiv 2407.21783, table 5): 419 in 54 days on
/// 16,384 GPUs.
pub const LLAMA3_INTERRUPTIONS: [(Cause, &str, u32); 17] = [
    (Cause::Gpu, "faulty GPU (NVLink included)", 148),
    (Cause::Gpu, "GPU HBM3 memory", 72),
    (Cause::Software, "software bug", 54),
    (Cause::Link, "network switch or cable", 35),
    (Cause::Maintenance, "unplanned host maintenance", 32),
    (Cause::Gpu, "GPU SRAM memory", 19),
    (Cause::Gpu, "GPU system processor", 17),
    (Cause::Nic, "NIC", 7),
    (Cause::Software, "NCCL watchdog timeouts", 7),
    (Cause::SilentCorruption, "silent data corruption", 6),
    (Cause::Gpu, "GPU thermal interface and sensor", 6),
    (Cause::Host, "SSD", 3),
    (Cause::Host, "power supply", 3),
    (Cause::Host, "server chassis", 2),
    (Cause::Host, "IO expansion board", 2),
    (Cause::Software, "dependency", 2),
    (Cause::Host, "CPU and system memory", 4),
];

/// Which published rates of network failures a run is given.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkFaults {
    /// A link failure stops the job: one ToR per NIC, as in Llama 3's cluster.
    #[default]
    StopTheJob,
    /// Two ToRs per NIC, non-stacked (Alibaba HPN): the other port carries on.
    DualTor,
    /// The link retries by itself and only hard failures stop the job (Ultra Ethernet's link-level
    /// retry, InfiniBand's link-layer retransmission).
    LinkLevelRetry,
}

/// Share of network interruptions that remain with two ToRs: those of both at once, and of the
/// switch above them. HPN (SIGCOMM'24) section 9 tells of no job lost to a single ToR or link in
/// eight months; a tenth is an illustrative, cautious reading.
const DUAL_TOR_REMAINS: f64 = 0.1;

/// Share of network interruptions that are hard rather than flaps: illustrative. HPN (SIGCOMM'24)
/// section 2.3 counts 5,000 to 60,000 flaps a day against 0.057 % of links failing in a month.
const HARD_LINK_FAILURES: f64 = 0.5;

/// Failures, checkpoints and restarts of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// How often things fail, per GPU.
    pub rates: Vec<FaultRate>,
    /// All rates times this.
    pub scale: f64,
    /// What a network failure does.
    pub network: NetworkFaults,
    /// From the failure until it is known and the bad node is found.
    pub detection: Span,
    /// From there until training continues: scheduling, loading, opening connections.
    pub restart: Span,
    /// Time between checkpoints; absent: the best one.
    pub interval: Option<Span>,
    /// How checkpoints are written.
    pub checkpoint: Checkpoint,
    /// Nodes held in reserve.
    pub spare_nodes: u32,
    /// Until a failed node is mended, and a spare itself.
    pub repair: Span,
    /// What the job's copies do when one of them has lost a node.
    pub data_parallel: DataParallel,
    /// With elastic data parallelism, how long all copies wait when one is lost.
    pub stall: Span,
}

/// What the copies of a model do when one of them has lost a node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataParallel {
    /// All stop, and go on from the last checkpoint when the job is whole again.
    #[default]
    Fixed,
    /// The others go on without it, and it joins them when it has a node and their state again.
    Elastic,
}

impl Faults {
    /// Names what is not looked at by the closed form, by a campaign, or where faults that come or
    /// go may end the job.
    pub fn unused(&self, is_campaign: bool, may_end: bool, idle: &mut UnusedKeys) {
        let used_by = "`run --days`";
        let keys = ["spare_nodes", "repair", "data_parallel", "stall", "checkpoint.restore"];
        let of_an_end = |key: &&str| may_end && ["data_parallel", "stall"].contains(key);
        for key in keys.iter().filter(|key| !is_campaign && !of_an_end(key)) {
            idle.key(
                key,
                "goodput is a closed form, in which every failure costs the same",
                used_by,
            );
        }
        let is_elastic = self.data_parallel == DataParallel::Elastic;
        if (is_campaign || may_end) && !is_elastic {
            let why = "all copies stop";
            idle.key("stall", why, "reliability.data_parallel=elastic");
        }
        if self.checkpoint.mode == CheckpointMode::PeerMemory {
            let why = "checkpoints stay in the memory of other servers";
            for key in ["storage", "network", "restore"] {
                let used_by = "reliability.checkpoint.mode=two-stage";
                idle.key(&format!("checkpoint.{key}"), why, used_by);
            }
        } else if is_campaign && is_elastic {
            let why = "a lost copy gets its state from another";
            idle.key("checkpoint.restore", why, "reliability.data_parallel=fixed");
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            rates: llama3_rates(),
            scale: 1.0,
            network: NetworkFaults::default(),
            // MegaScale (arXiv 2402.15627) section 6.3: detection and diagnostics in less than 10
            // minutes on average; catching up from the last checkpoint within 15.
            detection: Span::from_ms(5 * 60_000),
            restart: Span::from_ms(5 * 60_000),
            interval: None,
            checkpoint: Checkpoint::default(),
            // Alibaba HPN (SIGCOMM'24): 64 of 1,088 GPUs of a segment are backup: 8 nodes.
            spare_nodes: 8,
            // Illustrative: a technician within a working day.
            repair: Span::from_ms(8 * 3_600_000),
            data_parallel: DataParallel::default(),
            // FT-HSDP (arXiv 2602.00277) on 100,000 GPUs: 3 minutes, where all stop for 10.
            stall: Span::from_ms(3 * 60_000),
        }
    }
}

/// Nobody waits longer than this for a cluster; the clock would end after seven times as long.
const LONGEST_WAIT: Span = Span::from_ms(30 * 24 * 3_600_000);

impl Ranged for Faults {
    fn ranges(&self, check: &mut Ranges) {
        for (at, FaultRate { per_gpu_year, .. }) in self.rates.iter().enumerate() {
            check.within(&format!("rates.{at}.per_gpu_year"), *per_gpu_year, [0.0, 1e6]);
        }
        check.within("scale", self.scale, [0.0, 1e6]);
        check.at_most("detection", self.detection, LONGEST_WAIT);
        check.at_most("restart", self.restart, LONGEST_WAIT);
        check.at_most("repair", self.repair, LONGEST_WAIT);
        check.at_most("stall", self.stall, LONGEST_WAIT);
        if let Some(interval) = self.interval {
            check.within("interval", interval, [Span::from_ms(1_000), LONGEST_WAIT]);
        }
        check.table("checkpoint", &self.checkpoint);
    }
}

/// How checkpoints are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// Bytes per parameter: bf16 weights and three fp32 copies (master, two moments).
    pub bytes_per_parameter: f64,
    /// What storage takes in, all nodes together.
    pub storage: Rate,
    /// From GPU memory into the host's, one GPU.
    pub to_host: Rate,
    /// What the job waits for besides the copy: all ranks at one place, a plan, serialisation.
    pub pause: Span,
    /// What the job waits for.
    pub mode: CheckpointMode,
    /// Which network carries it.
    pub network: CheckpointNetwork,
    /// How a restarted job gets its state back.
    pub restore: Restore,
}

/// How a restarted job gets its state back.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restore {
    /// One rank of each group of copies reads, and sends it to the others over the back-end
    /// (MegaScale, arXiv 2402.15627, section 4.4).
    #[default]
    Broadcast,
    /// Every rank reads what it needs from storage, copies of the same weights too.
    Storage,
}

/// What the job waits for when it writes a checkpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointMode {
    /// Until everything is stored.
    Blocking,
    /// Until it is copied into host memory; storage follows in the background (MegaScale's two
    /// stages).
    #[default]
    TwoStage,
    /// The same, and instead of storage the memory of another server takes it, over the back-end
    /// (GEMINI, SOSP'23).
    PeerMemory,
}

/// Which network carries a checkpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointNetwork {
    /// The front-end: the job does not notice the burst.
    #[default]
    FrontEnd,
    /// The back-end, which the job needs too: its communication slows while the burst lasts.
    BackEnd,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            // 2 bytes of weights and 12 of optimizer state: mixed-precision Adam (ZeRO, SC'20).
            bytes_per_parameter: 14.0,
            // Llama 3 (arXiv 2407.21783) section 3.3.1: 2 TB/s sustained from 7,500 servers.
            storage: Rate::from_bps_f64(2e12 * 8.0),
            // PCIe gen 5 x16 at about 0.8 of 63 GB/s: illustrative.
            to_host: Rate::from_bps_f64(50e9 * 8.0),
            // MegaScale (arXiv 2402.15627) section 4.4: the state is in host memory after "several
            // seconds", with pinned memory and tuned serialisation; the copy itself is a fraction.
            pause: Span::from_ms(3_000),
            mode: CheckpointMode::default(),
            network: CheckpointNetwork::default(),
            restore: Restore::default(),
        }
    }
}

impl Ranged for Checkpoint {
    fn ranges(&self, check: &mut Ranges) {
        check.within("bytes_per_parameter", self.bytes_per_parameter, [0.0, 1e3]);
        check.within("storage", self.storage, RATES);
        check.within("to_host", self.to_host, RATES);
        check.at_most("pause", self.pause, LONGEST_WAIT);
    }
}

/// Llama 3's table 5 as rates per GPU and year.
pub fn llama3_rates() -> Vec<FaultRate> {
    let mut rates: Vec<FaultRate> = Vec::new();
    for (cause, _, count) in LLAMA3_INTERRUPTIONS {
        let per_gpu_year = f64::from(count) / OBSERVED_GPU_YEARS;
        match rates.iter_mut().find(|rate| rate.cause == cause) {
            Some(rate) => rate.per_gpu_year += per_gpu_year,
            None => rates.push(FaultRate { cause, per_gpu_year }),
        }
    }
    rates
}

/// What faults do to a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// Mean time between failures of the whole job, in seconds.
    pub mtbf_s: f64,
    /// Time between checkpoints, in seconds.
    pub interval_s: f64,
    /// What a checkpoint makes the job wait for, in seconds.
    pub checkpoint_s: f64,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: f64,
    /// How long its burst loads the storage network, in seconds.
    pub burst_s: f64,
    /// Share of the time that trains.
    pub goodput: f64,
    /// Share lost to writing checkpoints.
    pub lost_to_checkpoints: f64,
    /// Share lost to work that is done again.
    pub lost_to_replay: f64,
    /// Share lost to detection and restart.
    pub lost_to_recovery: f64,
    /// Young's interval, √(2·C·MTBF), in seconds.
    pub young_s: f64,
    /// Daly's higher-order interval, in seconds.
    pub daly_s: f64,
}

const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;

/// What of a job the faults need to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSize {
    /// GPUs of the job.
    pub gpus: u64,
    /// Parameters of its model.
    pub parameters: f64,
    /// Share of a step that is exposed communication.
    pub exposed_communication: f64,
    /// Bytes per second that one GPU's NICs carry.
    pub nic_bytes_per_s: f64,
}

impl Faults {
    /// How often each cause stops one GPU's share of the job in a year, in the order in which they
    /// are written.
    pub fn stops(&self) -> Vec<FaultRate> {
        let network = match self.network {
            NetworkFaults::StopTheJob => 1.0,
            NetworkFaults::DualTor => DUAL_TOR_REMAINS,
            NetworkFaults::LinkLevelRetry => HARD_LINK_FAILURES,
        };
        let stop = |rate: &FaultRate| {
            let share = match rate.cause {
                Cause::Link | Cause::Switch => network,
                _ => 1.0,
            };
            FaultRate { per_gpu_year: self.scale * share * rate.per_gpu_year, ..*rate }
        };
        self.rates.iter().map(stop).collect()
    }

    /// Failures of the whole job in a second.
    pub fn rate_per_s(&self, gpus: u64) -> f64 {
        let per_gpu_year: f64 = self.stops().iter().map(|rate| rate.per_gpu_year).sum();
        per_gpu_year * gpus as f64 / SECONDS_PER_YEAR
    }

    /// Detection and restart together, in seconds.
    pub fn recovery_s(&self) -> f64 {
        self.detection.as_secs_f64() + self.restart.as_secs_f64()
    }

    /// What faults do to a run of this size.
    pub fn goodput(&self, run: RunSize) -> Goodput {
        let rate = self.rate_per_s(run.gpus).max(1e-15);
        let (bytes, burst, cost) = self.checkpoint.costs(run);
        let recovery = self.recovery_s();
        let interval = match self.interval {
            Some(interval) => interval.as_secs_f64().max(1e-9),
            None => best_interval(rate, cost, recovery),
        };
        let wall = expected_wall(rate, interval, cost, recovery);
        let failures = (wall - interval - cost) / wall; // share of the time that failures take
        let count = (rate * (interval + cost)).exp_m1(); // expected failures of one interval
        let lost_to_recovery = count * recovery / wall;
        Goodput {
            mtbf_s: 1.0 / rate,
            interval_s: interval,
            checkpoint_s: cost,
            checkpoint_bytes: bytes,
            burst_s: burst,
            goodput: interval / wall,
            lost_to_checkpoints: cost / wall,
            lost_to_replay: failures - lost_to_recovery,
            lost_to_recovery,
            young_s: young(rate, cost),
            daly_s: daly(rate, cost),
        }
    }
}

impl Faults {
    /// Goodput if something about faults were different, each with its words.
    pub fn variants(&self, run: RunSize) -> Vec<(&'static str, f64)> {
        let with = |change: fn(&mut Self)| {
            let mut other = self.clone();
            change(&mut other);
            other.goodput(run).goodput
        };
        vec![
            ("detection twice as long", with(|faults| faults.detection = faults.detection * 2)),
            ("detection half as long", with(|faults| faults.detection = faults.detection / 2)),
            ("restart twice as long", with(|faults| faults.restart = faults.restart * 2)),
            ("restart half as long", with(|faults| faults.restart = faults.restart / 2)),
            ("two ToRs for each NIC", with(|faults| faults.network = NetworkFaults::DualTor)),
            ("links that retry", with(|faults| faults.network = NetworkFaults::LinkLevelRetry)),
            ("waiting until checkpoints are stored", {
                with(|faults| faults.checkpoint.mode = CheckpointMode::Blocking)
            }),
            ("checkpoints over the back-end", {
                with(|faults| faults.checkpoint.network = CheckpointNetwork::BackEnd)
            }),
        ]
    }
}

impl Checkpoint {
    /// Bytes, seconds of the burst on the storage network, seconds that the job waits.
    fn costs(&self, run: RunSize) -> (f64, f64, f64) {
        let bytes = self.bytes_per_parameter * run.parameters;
        let in_peers = self.mode == CheckpointMode::PeerMemory;
        let stored = match in_peers {
            true => bytes / run.gpus as f64 / run.nic_bytes_per_s,
            false => bytes / self.storage.bytes_per_s(),
        };
        let copied = bytes / run.gpus as f64 / self.to_host.bytes_per_s();
        let paused = copied + self.pause.as_secs_f64();
        let wait = match self.mode {
            CheckpointMode::Blocking => paused + stored,
            CheckpointMode::TwoStage | CheckpointMode::PeerMemory => paused,
        };
        // Two streams share the back-end while the burst lasts: exposed communication doubles.
        let shared = match self.network {
            CheckpointNetwork::FrontEnd if !in_peers => 0.0,
            _ => stored * run.exposed_communication,
        };
        (bytes, stored, wait + shared)
    }

    /// Bytes of one checkpoint.
    pub fn size(&self, parameters: f64) -> Bytes {
        Bytes::new((self.bytes_per_parameter * parameters) as u64)
    }
}

/// Expected wall time of one interval of work and its checkpoint (Daly 2006, equation 13).
fn expected_wall(rate: f64, interval: f64, cost: f64, recovery: f64) -> f64 {
    (1.0 / rate + recovery) * (rate * (interval + cost)).exp_m1()
}

/// The interval with the highest goodput, by golden-section search on its logarithm.
pub fn best_interval(rate: f64, cost: f64, recovery: f64) -> f64 {
    let loss = |log: f64| {
        let interval = log.exp();
        (expected_wall(rate, interval, cost, recovery) / interval).ln()
    };
    let golden = (5_f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = ((cost * 1e-3).max(1e-6).ln(), (10.0 / rate).ln());
    while high - low > 1e-7 {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if loss(left) < loss(right) {
            high = right;
        } else {
            low = left;
        }
    }
    f64::midpoint(low, high).exp()
}

/// Young's first-order interval (CACM 1974).
pub fn young(rate: f64, cost: f64) -> f64 {
    (2.0 * cost / rate).sqrt()
}

/// Daly's higher-order interval (FGCS 2006, equation 37).
pub fn daly(rate: f64, cost: f64) -> f64 {
    let mtbf = 1.0 / rate;
    if 2.0 * mtbf <= cost {
        return mtbf;
    }
    let ratio = (cost / (2.0 * mtbf)).sqrt();
    (2.0 * cost * mtbf).sqrt() * (1.0 + ratio / 3.0 + ratio * ratio / 9.0) - cost
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA3: RunSize = RunSize {
        gpus: 16_384,
        parameters: 405e9,
        exposed_communication: 0.2,
        nic_bytes_per_s: 50e9,
    };

    /// Golden: facts about Llama 3's run that follow from its table.
    #[test]
    fn llama3s_table_gives_its_interruptions() {
        let total: u32 = LLAMA3_INTERRUPTIONS.iter().map(|(_, _, count)| count).sum();
        assert_eq!(total, 419);
        let faults = Faults::default();
        let mtbf_hours = 1.0 / faults.rate_per_s(16_384) / 3600.0;
        assert!((mtbf_hours - 54.0 * 24.0 / 419.0).abs() < 0.01, "{mtbf_hours}");
    }

    #[test]
    fn llama3_trains_more_than_nine_tenths_of_the_time() {
        let goodput = Faults::default().goodput(LLAMA3);
        assert!((0.90..0.99).contains(&goodput.goodput), "{goodput:?}");
        let blocking = Checkpoint { mode: CheckpointMode::Blocking, ..Checkpoint::default() };
        let slow = Faults { checkpoint: blocking, ..Faults::default() }.goodput(LLAMA3);
        assert!(slow.goodput < goodput.goodput);
        assert!(0.9 < slow.goodput, "{slow:?}");
    }

    /// Property: the shares are all of the time.
    #[test]
    fn nothing_of_the_time_is_lost_twice() {
        for gpus in [64, 1024, 16_384, 200_000] {
            for recovery in [60_000, 600_000, 3_600_000] {
                let faults = Faults { detection: Span::from_ms(recovery), ..Faults::default() };
                let goodput = faults.goodput(RunSize { gpus, ..LLAMA3 });
                let sum = goodput.goodput
                    + goodput.lost_to_checkpoints
                    + goodput.lost_to_replay
                    + goodput.lost_to_recovery;
                assert!((sum - 1.0).abs() < 1e-9, "{goodput:?}");
                assert!(0.0 <= goodput.lost_to_replay, "{goodput:?}");
            }
        }
    }

    /// Oracle: where a checkpoint is short against the time between failures, the best interval is
    /// Young's and Daly's.
    #[test]
    fn the_best_interval_is_youngs_and_dalys_where_they_hold() {
        for mtbf in [3_600.0, 11_124.0, 86_400.0] {
            for cost in [1.0, 5.0, 30.0] {
                let best = best_interval(1.0 / mtbf, cost, 300.0);
                let (young, daly) = (young(1.0 / mtbf, cost), daly(1.0 / mtbf, cost));
                assert!((best / young - 1.0).abs() < 0.1, "{best} {young}");
                assert!((best / daly - 1.0).abs() < 0.02, "{best} {daly}");
            }
        }
    }

    #[test]
    fn dual_tors_fail_less_and_all_rates_scale() {
        let single = Faults::default().rate_per_s(16_384);
        let dual = Faults { network: NetworkFaults::DualTor, ..Faults::default() };
        let expected = 1.0 - 0.9 * 35.0 / 419.0;
        assert!((dual.rate_per_s(16_384) / single - expected).abs() < 1e-9);
        let twice = Faults { scale: 2.0, ..Faults::default() };
        assert!((twice.rate_per_s(16_384) / single - 2.0).abs() < 1e-9);
    }

    /// A peer's memory is nearer than storage: the burst is short, and on the back-end.
    #[test]
    fn a_peers_memory_takes_a_checkpoint_in_milliseconds() {
        let mode = CheckpointMode::PeerMemory;
        let checkpoint = Checkpoint { mode, ..Checkpoint::default() };
        let peers = Faults { checkpoint, ..Faults::default() }.goodput(LLAMA3);
        // 14 bytes of 405e9 parameters over 16,384 GPUs at 50 GB/s.
        let burst = 14.0 * 405e9 / 16_384.0 / 50e9;
        assert!((peers.burst_s / burst - 1.0).abs() < 1e-9, "{peers:?}");
        let two_stage = Faults::default().goodput(LLAMA3);
        let more = peers.checkpoint_s - two_stage.checkpoint_s;
        assert!((more - 0.2 * burst).abs() < 1e-12, "{more}");
    }

    /// The variants move goodput the way that their words say.
    #[test]
    fn what_would_be_different_is() {
        let faults = Faults::default();
        let now = faults.goodput(LLAMA3);
        // Some seconds for the plan and the copy of 350 MB; minutes between checkpoints.
        assert!((3.0..4.0).contains(&now.checkpoint_s), "{now:?}");
        assert!((200.0..300.0).contains(&now.interval_s), "{now:?}");
        for (words, goodput) in faults.variants(LLAMA3) {
            let better = ["half", "two ToRs", "retry"].iter().any(|word| words.contains(word));
            assert_eq!(now.goodput < goodput, better, "{words}: {goodput}");
        }
    }
}
