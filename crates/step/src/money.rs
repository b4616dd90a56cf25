//! Energy by phase, capital, and what a trained token costs.
//!
//! How it works. A GPU draws a share of its board power that depends on what it does: dense
//! computation, moving data, or waiting. The shares were measured on one H200 (`data/README.md` of
//! the job crate): idle 78 W, device copies 169 W, back-to-back transformer layers up to 690 W of
//! 700 W. Hosts, switches and optics draw their power all the time. Capital is written off in equal
//! parts over the years of use.
//!
//! Where it departs from reality: a GPU that waits inside a collective spins and draws more than an
//! idle one; how much more was not measured, and the copy's power stands in for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Ranged, Ranges};

/// Board power by what the GPU does, as shares of its rated power.
///
/// Measured on one H200 of 700 W (driver 580.159, CUDA 13.0).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PowerShares {
    /// Back-to-back transformer layers.
    pub compute: f64,
    /// Moving data: copies, communication kernels, and the wait inside them.
    pub communicate: f64,
    /// Waiting with nothing to do.
    pub idle: f64,
}

impl Default for PowerShares {
    fn default() -> Self {
        Self { compute: 690.0 / 700.0, communicate: 169.0 / 700.0, idle: 78.0 / 700.0 }
    }
}

impl Ranged for PowerShares {
    fn ranges(&self, check: &mut Ranges) {
        check.within("compute", self.compute, [0.0, 10.0]);
        check.within("communicate", self.communicate, [0.0, 10.0]);
        check.within("idle", self.idle, [0.0, 10.0]);
    }
}

/// Prices, and what stands around the GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Board power by what the GPU does.
    pub shares: PowerShares,
    /// Power of a server beside its GPUs and NICs, in watts.
    pub host_w: f64,
    /// Price of a server beside its GPUs and NICs, in US dollars.
    pub host_usd: f64,
    /// Power that the building draws for each watt of the machines.
    pub pue: f64,
    /// Price of electricity.
    pub usd_per_kwh: f64,
    /// Years over which capital is written off.
    pub years: f64,
    /// Share of the time that the cluster is in use.
    pub in_use: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            shares: PowerShares::default(),
            // A DGX H100 is rated 10.2 kW (NVIDIA data sheet; remembered); its GPUs are 5.6 kW, its
            // NICs 0.25 kW; the rest at about half load. Illustrative.
            host_w: 2_200.0,
            // Illustrative: a server of 8 GPUs without them.
            host_usd: 60_000.0,
            // Illustrative; new sites report 1.1 to 1.3.
            pue: 1.2,
            // Illustrative industrial price.
            usd_per_kwh: 0.08,
            // Illustrative: usual book-keeping of accelerators.
            years: 4.0,
            // Illustrative.
            in_use: 0.9,
        }
    }
}

impl Ranged for Prices {
    fn ranges(&self, check: &mut Ranges) {
        check.table("shares", &self.shares);
        check.within("host_w", self.host_w, [0.0, 1e6]);
        check.within("host_usd", self.host_usd, [0.0, 1e9]);
        check.within("pue", self.pue, [1.0, 10.0]);
        check.within("usd_per_kwh", self.usd_per_kwh, [0.0, 1e3]);
        check.within("years", self.years, [1e-3, 100.0]);
        check.weight("in_use", self.in_use);
    }
}

/// What a cluster is made of, as money and power see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    /// GPUs of the job.
    pub gpus: u64,
    /// GPUs of one server.
    pub gpus_per_node: u64,
    /// Rated power of a GPU in watts.
    pub gpu_w: f64,
    /// Price of a GPU in US dollars.
    pub gpu_usd: f64,
    /// Power of NICs, switches and optics that serve the job, in watts.
    pub network_w: f64,
    /// Price of NICs, switches, optics and cables that serve the job, in US dollars.
    pub network_usd: f64,
}

/// How long a GPU does what in a step, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phases {
    /// Computing.
    pub compute_s: f64,
    /// Communicating, and nothing else.
    pub communicate_s: f64,
    /// Waiting: the bubble, jitter, the loop.
    pub idle_s: f64,
}

impl Phases {
    /// The whole step.
    pub fn total_s(&self) -> f64 {
        self.compute_s + self.communicate_s + self.idle_s
    }
}

/// What a step or a run costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bill {
    /// Capital of the job's machines, in US dollars.
    pub capital_usd: f64,
    /// Of which the network.
    pub network_capital_usd: f64,
    /// Mean power with the building's share, in watts.
    pub power_w: f64,
    /// Energy of one step by phase, in joules, machines only: computing GPUs.
    pub compute_j: f64,
    /// Communicating GPUs.
    pub communicate_j: f64,
    /// Waiting GPUs.
    pub idle_j: f64,
    /// Hosts.
    pub host_j: f64,
    /// Switches, NICs and optics.
    pub network_j: f64,
    /// Cost of one step: capital written off and electricity, in US dollars.
    pub step_usd: f64,
    /// Cost of a million trained tokens, failures included, in US dollars.
    pub usd_per_million_tokens: f64,
}

/// What a step of these phases costs on these machines.
pub fn bill(
    prices: &Prices,
    machines: &Machines,
    phases: &Phases,
    tokens_per_step: f64,
    goodput: f64,
) -> Bill {
    let gpus = machines.gpus as f64;
    let nodes = gpus / machines.gpus_per_node.max(1) as f64;
    let board = |share: f64, seconds: f64| share * machines.gpu_w * gpus * seconds;
    let step_s = phases.total_s();
    let compute_j = board(prices.shares.compute, phases.compute_s);
    let communicate_j = board(prices.shares.communicate, phases.communicate_s);
    let idle_j = board(prices.shares.idle, phases.idle_s);
    let host_j = prices.host_w * nodes * step_s;
    let network_j = machines.network_w * step_s;
    let joules = prices.pue * (compute_j + communicate_j + idle_j + host_j + network_j);

    let capital_usd = machines.gpu_usd * gpus + prices.host_usd * nodes + machines.network_usd;
    let lifetime_s = prices.years * 365.25 * 86_400.0 * prices.in_use;
    let step_usd = capital_usd / lifetime_s * step_s + joules / 3.6e6 * prices.usd_per_kwh;
    Bill {
        capital_usd,
        network_capital_usd: machines.network_usd,
        power_w: joules / step_s.max(1e-12),
        compute_j,
        communicate_j,
        idle_j,
        host_j,
        network_j,
        step_usd,
        usd_per_million_tokens: step_usd / goodput.max(1e-9) / tokens_per_step.max(1.0) * 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: Machines = Machines {
        gpus: 16,
        gpus_per_node: 8,
        gpu_w: 700.0,
        gpu_usd: 30_000.0,
        network_w: 1_000.0,
        network_usd: 50_000.0,
    };

    /// Oracle, by hand: 16 GPUs for one second of computing and one of waiting.
    #[test]
    fn energy_is_power_times_time_of_each_phase() {
        let prices = Prices { pue: 1.0, host_w: 0.0, ..Prices::default() };
        let phases = Phases { compute_s: 1.0, communicate_s: 0.0, idle_s: 1.0 };
        let bill = bill(&prices, &MACHINES, &phases, 1e6, 1.0);
        assert!((bill.compute_j - 16.0 * 690.0).abs() < 1e-6);
        assert!((bill.idle_j - 16.0 * 78.0).abs() < 1e-6);
        assert!((bill.power_w - (16.0 * (690.0 + 78.0) + 2_000.0) / 2.0).abs() < 1e-6);
    }

    /// Property: a dearer network, a worse goodput and a longer step never make tokens cheaper.
    #[test]
    fn tokens_get_dearer_with_everything_that_is_worse() {
        let prices = Prices::default();
        let phases = Phases { compute_s: 1.0, communicate_s: 0.2, idle_s: 0.1 };
        let cost = |machines: &Machines, phases: &Phases, goodput: f64| {
            bill(&prices, machines, phases, 1e6, goodput).usd_per_million_tokens
        };
        let base = cost(&MACHINES, &phases, 0.95);
        assert!(base < cost(&Machines { network_usd: 80_000.0, ..MACHINES }, &phases, 0.95));
        assert!(base < cost(&MACHINES, &phases, 0.90));
        assert!(base < cost(&MACHINES, &Phases { idle_s: 0.3, ..phases }, 0.95));
    }
}
