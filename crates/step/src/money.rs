//! Energy by phase, capital, and what a trained token costs.
//!
//! How it works. A GPU draws a share of its board power that depends on what it does: dense
//! computation, moving data, or waiting. The shares were measured on one H200 (`data/README.md` of
//! the job crate): idle 78 W, device copies 169 W, back-to-back transformer layers up to 690 W of
//! 700 W. Hosts, switches and optics draw their power all the time. Capital is written off in equal
//! parts over the years of use. Every amount of money has two ends: all hardware at the least that
//! sources say it costs, and at the most ([`fabric::cost`]); the step itself and the price of
//! electricity are held.
//!
//! Where it departs from reality: a GPU that waits inside a collective spins and draws more than an
//! idle one; how much more was not measured, and the copy's power stands in for it.

use fabric::cost::Dollars;
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

/// Prices of electricity, and how capital is written off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Board power by what the GPU does.
    pub shares: PowerShares,
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
            // aiinframap.com for new sites; hyperscale sites say 1.07 to 1.15, the mean of the
            // world is 1.58 (Uptime Institute, 2023).
            pue: 1.2,
            // NADDOD's study of 100,000 H100 takes 0.078; others 0.05 to 0.25.
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
    /// Rated power of a GPU in watts.
    pub gpu_w: f64,
    /// Price of a GPU.
    pub gpu_usd: Dollars,
    /// Power of the server around one GPU in watts.
    pub host_w: f64,
    /// Price of the server around one GPU.
    pub host_usd: Dollars,
    /// Power of NICs, switches and optics that serve the job, in watts.
    pub network_w: f64,
    /// Price of NICs, switches, optics and cables that serve the job.
    pub network_usd: Dollars,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bill {
    /// Capital of the job's machines, in US dollars.
    pub capital_usd: f64,
    /// With every price at the least that sources say.
    pub capital_low_usd: f64,
    /// With every price at the most.
    pub capital_high_usd: f64,
    /// Of which the network.
    pub network_capital_usd: f64,
    /// The network at the lowest prices.
    pub network_capital_low_usd: f64,
    /// The network at the highest.
    pub network_capital_high_usd: f64,
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
    /// The same at the lowest prices of hardware, and with the shortest step where one is known.
    pub step_low_usd: f64,
    /// The same at the highest.
    pub step_high_usd: f64,
    /// Cost of a million trained tokens, failures included, in US dollars.
    pub usd_per_million_tokens: f64,
    /// The same at the lowest prices of hardware.
    pub usd_per_million_tokens_low: f64,
    /// The same at the highest.
    pub usd_per_million_tokens_high: f64,
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
    let board = |share: f64, seconds: f64| share * machines.gpu_w * gpus * seconds;
    let step_s = phases.total_s();
    let compute_j = board(prices.shares.compute, phases.compute_s);
    let communicate_j = board(prices.shares.communicate, phases.communicate_s);
    let idle_j = board(prices.shares.idle, phases.idle_s);
    let host_j = machines.host_w * gpus * step_s;
    let network_j = machines.network_w * step_s;
    let joules = prices.pue * (compute_j + communicate_j + idle_j + host_j + network_j);

    let network = machines.network_usd;
    let capital = (machines.gpu_usd + machines.host_usd) * gpus + network;
    let lifetime_s = prices.years * 365.25 * 86_400.0 * prices.in_use;
    let electricity = Dollars::exactly(joules / 3.6e6 * prices.usd_per_kwh);
    let step = capital * (step_s / lifetime_s) + electricity;
    let tokens = step * (1e6 / goodput.max(1e-9) / tokens_per_step.max(1.0));
    Bill {
        capital_usd: capital.value,
        capital_low_usd: capital.low,
        capital_high_usd: capital.high,
        network_capital_usd: network.value,
        network_capital_low_usd: network.low,
        network_capital_high_usd: network.high,
        power_w: joules / step_s.max(1e-12),
        compute_j,
        communicate_j,
        idle_j,
        host_j,
        network_j,
        step_usd: step.value,
        step_low_usd: step.low,
        step_high_usd: step.high,
        usd_per_million_tokens: tokens.value,
        usd_per_million_tokens_low: tokens.low,
        usd_per_million_tokens_high: tokens.high,
    }
}

impl Bill {
    /// With a step that may be `low` to `high` times as long. Prices and the step are off by
    /// themselves, so their logarithms add up as squares.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64) -> Self {
        let further = |value: f64, end: f64, step: f64| match value {
            0.0 => 0.0,
            _ => (end / value).ln().hypot(step.ln()).exp(),
        };
        let (step, tokens) = (self.step_usd, self.usd_per_million_tokens);
        self.step_low_usd = step / further(step, self.step_low_usd, low).max(1.0);
        self.step_high_usd = step * further(step, self.step_high_usd, high);
        let (least, most) = (self.usd_per_million_tokens_low, self.usd_per_million_tokens_high);
        self.usd_per_million_tokens_low = tokens / further(tokens, least, low).max(1.0);
        self.usd_per_million_tokens_high = tokens * further(tokens, most, high);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: Machines = Machines {
        gpus: 16,
        gpu_w: 700.0,
        gpu_usd: Dollars::exactly(30_000.0),
        host_w: 322.0,
        host_usd: Dollars { low: 6_000.0, value: 7_000.0, high: 9_000.0 },
        network_w: 1_000.0,
        network_usd: Dollars { low: 40_000.0, value: 50_000.0, high: 80_000.0 },
    };

    /// Oracle, by hand: 16 GPUs for one second of computing and one of waiting.
    #[test]
    fn energy_is_power_times_time_of_each_phase() {
        let prices = Prices { pue: 1.0, ..Prices::default() };
        let phases = Phases { compute_s: 1.0, communicate_s: 0.0, idle_s: 1.0 };
        let bill = bill(&prices, &MACHINES, &phases, 1e6, 1.0);
        assert!((bill.host_j - 16.0 * 322.0 * 2.0).abs() < 1e-6);
        assert!((bill.compute_j - 16.0 * 690.0).abs() < 1e-6);
        assert!((bill.idle_j - 16.0 * 78.0).abs() < 1e-6);
        assert!((bill.power_w - (16.0 * (690.0 + 78.0 + 644.0) + 2_000.0) / 2.0).abs() < 1e-6);
    }

    /// Oracle, by hand: what a machine costs in a step of its lifetime, and no electricity.
    #[test]
    fn every_amount_has_the_ends_of_its_prices() {
        let prices = Prices { usd_per_kwh: 0.0, years: 1.0, in_use: 1.0, ..Prices::default() };
        let phases = Phases { compute_s: 1.0, communicate_s: 0.0, idle_s: 0.0 };
        let bill = bill(&prices, &MACHINES, &phases, 1e6, 0.5);
        let capital = [616_000.0, 642_000.0, 704_000.0];
        let year_s = 365.25 * 86_400.0;
        let shown = [bill.capital_low_usd, bill.capital_usd, bill.capital_high_usd];
        assert_eq!(shown, capital);
        let steps = [bill.step_low_usd, bill.step_usd, bill.step_high_usd];
        let tokens = [
            bill.usd_per_million_tokens_low,
            bill.usd_per_million_tokens,
            bill.usd_per_million_tokens_high,
        ];
        for ((capital, step), tokens) in capital.iter().zip(steps).zip(tokens) {
            assert!((step - capital / year_s).abs() < 1e-9);
            assert!((tokens - 2.0 * step).abs() < 1e-9, "half of the work is done again");
        }
        assert_eq!(bill.network_capital_low_usd, 40_000.0);
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
        let dear = Dollars::exactly(80_000.0);
        assert!(base < cost(&Machines { network_usd: dear, ..MACHINES }, &phases, 0.95));
        assert!(base < cost(&MACHINES, &phases, 0.90));
        assert!(base < cost(&MACHINES, &Phases { idle_s: 0.3, ..phases }, 0.95));
    }

    /// Oracle, by hand: prices of a factor e^0.03 and a step of e^0.04 are e^0.05 together.
    #[test]
    fn ends_of_prices_and_of_the_step_add_up_as_squares() {
        let bill = Bill {
            step_usd: 2.0,
            step_low_usd: 2.0 * (-0.03_f64).exp(),
            step_high_usd: 2.0 * 0.03_f64.exp(),
            ..Bill::default()
        };
        let wider = bill.within((-0.04_f64).exp(), 0.04_f64.exp());
        assert!((wider.step_low_usd / 2.0 - (-0.05_f64).exp()).abs() < 1e-12);
        assert!((wider.step_high_usd / 2.0 - 0.05_f64.exp()).abs() < 1e-12);
        assert_eq!(wider.usd_per_million_tokens_low, 0.0);
    }
}
