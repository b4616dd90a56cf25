//! The ranges of the settings.
//!
//! The engines take what they are given: a period of zero never ends, a probability of 7 is
//! nonsense that looks like a result. So every setting that has a range is held against it before
//! anything runs. Ranges stand beside the fields that they bound (`impl Ranged`); here they are
//! asked for, with the key of each table.

use std::fmt::Display;

use traffic::nccl;
use units::Ranges;

use crate::file::ScenarioFile;
use crate::meaning::Finding;

/// Settings outside their range.
pub(crate) fn check(scenario: &ScenarioFile) -> Vec<Finding> {
    let mut limits = Limits::default();
    let network = Ranges::of("network", &scenario.network.settings);
    limits.findings.extend(network.into_iter().map(Finding::from));
    limits.library(&scenario.library);
    limits.findings
}

/// What a channel's number allows (`MAXCHANNELS` of NCCL is 64).
const MOST_CHANNELS: u32 = 1024;

#[derive(Default)]
struct Limits {
    findings: Vec<Finding>,
}

impl Limits {
    fn refuse(&mut self, keys: &[&str], value: impl Display, range: &str) {
        self.findings.push(Finding {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            depends_on: Vec::new(),
            message: format!("`{}` is {value}, but must be {range}", keys[0]),
            help: None,
        });
    }

    /// From `least` to `most`, both allowed.
    fn within<T: Display + PartialOrd>(&mut self, key: &str, value: T, [least, most]: [T; 2]) {
        if !(least <= value && value <= most) {
            self.refuse(&[key], value, &format!("from {least} to {most}"));
        }
    }

    /// A weight or a share that cannot be nothing.
    fn weight(&mut self, key: &str, value: f64) {
        if !(0.0 < value && value <= 1.0) {
            self.refuse(&[key], value, "above 0 and at most 1");
        }
    }

    /// A period or a size that cannot be nothing.
    fn some<T: Default + Display + PartialEq>(&mut self, key: &str, value: T) {
        if value == T::default() {
            self.refuse(&[key], value, "above 0");
        }
    }

    fn library(&mut self, library: &nccl::Settings) {
        if let Some(channels) = library.channels {
            self.within("library.channels", channels, [1, MOST_CHANNELS]);
        }
        self.some("library.buffer", library.buffer);
        self.some("library.p2p_net_chunk", library.p2p_net_chunk);
        self.some("library.p2p_scale_up_chunk", library.p2p_scale_up_chunk);
        if let Some(share) = library.scale_up_efficiency {
            self.weight("library.scale_up_efficiency", share);
        }
    }
}
