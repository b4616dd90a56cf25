//! How often each kind of part fails, and which part of the lost time is whose.
//!
//! How it works. A scenario's rates are of causes, per GPU ([`Faults::rates`]). Servers, NICs and
//! software follow from them directly. What is called link and switch there is shared out over
//! cables, transceivers and switches in the proportion of published rates of parts, and scaled so
//! that a cluster with one link for each GPU and 16 GPUs to a leaf, which is where Llama 3's were
//! counted, has the scenario's rate. With Llama 3's table the scale is 1.22: two counts of others
//! say within a quarter what it says.
//!
//! Every failure that stops the job costs the same here: detection, restart and work done again.
//! So a part's share of the lost time is its share of the failures that stop the job.

use fabric::domains::PartKind;

use crate::faults::{Cause, Faults};

/// NIC-to-ToR links that fail in a year: 0.057 % a month (Alibaba HPN, SIGCOMM'24, section 2.3;
/// remembered, unchecked). A transceiver has half of it, a fibre none.
const LINKS_PER_YEAR: f64 = 0.000_57 * 12.0;

/// Switches that fail in a year: 2 % within three months, of 180,000 (Singh et al., "Surviving
/// switch failures in cloud datacenters", SIGCOMM CCR 51(2), 2021).
const SWITCHES_PER_YEAR: f64 = 0.02 * 4.0;

/// GPUs below a leaf of the cluster whose failures Llama 3's table counts (arXiv 2407.21783,
/// section 3.3.1: racks of 16 GPUs).
const OBSERVED_GPUS_PER_LEAF: f64 = 16.0;

/// How often one part fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartRate {
    /// In a year; nothing if nobody has published it.
    pub per_year: Option<f64>,
    /// Where that comes from.
    pub source: &'static str,
}

/// What a cluster has of GPUs for each NIC and server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// GPUs of a NIC.
    pub gpus_per_nic: f64,
    /// GPUs of a server.
    pub gpus_per_server: f64,
}

impl Faults {
    /// How often one GPU's share of some causes fails in a year.
    pub fn per_gpu_year(&self, causes: &[Cause]) -> f64 {
        let own = self.rates.iter().filter(|rate| causes.contains(&rate.cause));
        self.scale * own.map(|rate| rate.per_gpu_year).sum::<f64>()
    }

    /// How often one part of a kind fails.
    pub fn part_rate(&self, part: PartKind, shares: Shares) -> PartRate {
        let network = self.per_gpu_year(&[Cause::Link, Cause::Switch])
            / (LINKS_PER_YEAR + SWITCHES_PER_YEAR / OBSERVED_GPUS_PER_LEAF);
        let in_server = [Cause::Gpu, Cause::Host, Cause::SilentCorruption, Cause::Maintenance];
        let link = "reliability.rates of links and switches, shared out as Alibaba HPN \
                    (SIGCOMM'24) and Singh et al. (CCR 2021) count parts";
        let (per_year, source) = match part {
            PartKind::Cable => (Some(network * LINKS_PER_YEAR), link),
            PartKind::Transceiver => (Some(network * LINKS_PER_YEAR / 2.0), link),
            PartKind::Fibre => (Some(0.0), "counted with its transceivers"),
            PartKind::Switch => (Some(network * SWITCHES_PER_YEAR), link),
            PartKind::Nic => {
                let per_gpu = self.per_gpu_year(&[Cause::Nic]);
                (Some(per_gpu * shares.gpus_per_nic), "reliability.rates of NICs")
            }
            PartKind::Server => {
                let per_gpu = self.per_gpu_year(&in_server);
                let source = "reliability.rates of GPUs, hosts, silent corruption and maintenance";
                (Some(per_gpu * shares.gpus_per_server), source)
            }
            PartKind::Plane | PartKind::Rack => (None, "nobody has published a rate"),
        };
        PartRate { per_year, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: Shares = Shares { gpus_per_nic: 1.0, gpus_per_server: 8.0 };

    /// Oracle: the parts of Llama 3's cluster fail as often as its table says: 54 days of 16,384
    /// GPUs with a link each, and of 1,024 leaves.
    #[test]
    fn llama3s_parts_add_up_to_its_table() {
        let faults = Faults::default();
        let rate = |part| faults.part_rate(part, SHARES).per_year.unwrap();
        let years = 54.0 / 365.25;
        let network = 16_384.0 * rate(PartKind::Cable) + 1_024.0 * rate(PartKind::Switch);
        assert!((network * years - 35.0).abs() < 1e-9, "{}", network * years);
        assert_eq!(rate(PartKind::Transceiver), rate(PartKind::Cable) / 2.0);
        assert!((16_384.0 * rate(PartKind::Nic) * years - 7.0).abs() < 1e-9);
        let servers = 2_048.0 * rate(PartKind::Server) * years;
        // All of the table but 35 of the network, 7 NICs and 63 of software.
        assert!((servers - f64::from(419 - 35 - 7 - 63)).abs() < 1e-9, "{servers}");
        assert_eq!(faults.part_rate(PartKind::Rack, SHARES).per_year, None);
        let scale = rate(PartKind::Switch) / SWITCHES_PER_YEAR;
        assert!((scale - 1.22).abs() < 0.005, "{scale}");
    }
}
