//! Versions of NCCL whose source was read: what its tables and rules were in each.
//!
//! The tables of [`constants`](super::constants) are those of the newest; here is what was
//! different before. Source: NCCL `src/graph/tuning.cc`, `src/enqueue.cc` and
//! `src/transport/nvls.cc` at the last tag of each minor version (2.18.6 to 2.30.7).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A minor version of NCCL, at its last patch.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
pub enum Version {
    /// 2.18.6.
    #[serde(rename = "2.18")]
    V2_18,
    /// 2.19.4.
    #[serde(rename = "2.19")]
    V2_19,
    /// 2.20.5.
    #[serde(rename = "2.20")]
    V2_20,
    /// 2.21.5.
    #[serde(rename = "2.21")]
    V2_21,
    /// 2.22.3.
    #[serde(rename = "2.22")]
    V2_22,
    /// 2.23.4.
    #[serde(rename = "2.23")]
    V2_23,
    /// 2.24.3.
    #[serde(rename = "2.24")]
    V2_24,
    /// 2.25.1.
    #[serde(rename = "2.25")]
    V2_25,
    /// 2.26.6.
    #[serde(rename = "2.26")]
    V2_26,
    /// 2.27.7.
    #[serde(rename = "2.27")]
    V2_27,
    /// 2.28.9.
    #[serde(rename = "2.28")]
    V2_28,
    /// 2.29.7.
    #[serde(rename = "2.29")]
    V2_29,
    /// 2.30.7.
    #[default]
    #[serde(rename = "2.30")]
    V2_30,
}

impl Version {
    /// All of them, oldest first, by name.
    pub const ALL: [(&str, Self); 13] = [
        ("2.18", Self::V2_18),
        ("2.19", Self::V2_19),
        ("2.20", Self::V2_20),
        ("2.21", Self::V2_21),
        ("2.22", Self::V2_22),
        ("2.23", Self::V2_23),
        ("2.24", Self::V2_24),
        ("2.25", Self::V2_25),
        ("2.26", Self::V2_26),
        ("2.27", Self::V2_27),
        ("2.28", Self::V2_28),
        ("2.29", Self::V2_29),
        ("2.30", Self::V2_30),
    ];

    /// The version that a text tells of, as logs, packages and their readers write it:
    /// "NCCL 2.18.5", "NCCL version 2.21.5+cuda12.4", `nccl-2.27.3-1`. Of a version whose source was
    /// not read the nearest that was.
    pub fn in_text(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        lower.match_indices("nccl").find_map(|(at, name)| {
            let after = lower[at + name.len()..].trim_start_matches([' ', '-', '_', '=', ':']);
            let after = after.strip_prefix("version").unwrap_or(after);
            let after = after.trim_start_matches([' ', '=', ':', 'v']).strip_prefix("2.")?;
            let digits = after.split(|letter: char| !letter.is_ascii_digit()).next()?;
            // Minor numbers have two digits at most.
            let minor: usize = digits.parse().ok().filter(|minor| *minor < 100)?;
            let known = minor.clamp(OLDEST, OLDEST + Self::ALL.len() - 1) - OLDEST;
            Some(Self::ALL[known].1)
        })
    }
}

/// The minor number of the oldest in [`Version::ALL`].
const OLDEST: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are found with and without a patch number, and no other number is taken for one.
    #[test]
    fn a_version_is_found_in_text() {
        assert_eq!(Version::in_text("NCCL 2.18.5, aws-ofi-nccl 1.7.3"), Some(Version::V2_18));
        assert_eq!(Version::in_text("(GB200 NVL72, NCCL 2.26)"), Some(Version::V2_26));
        assert_eq!(Version::in_text("NCCL 2.180"), None);
        assert_eq!(Version::in_text("2.26.2, RCCL 2.22"), None);
        assert_eq!(Version::in_text("NCCL_ALGO=Ring, nccl-2.27.3-1"), Some(Version::V2_27));
        assert_eq!(Version::in_text("NCCL version 2.21.5+cuda12.4"), Some(Version::V2_21));
        // The nearest that was read.
        assert_eq!(Version::in_text("NCCL 2.9.6"), Some(Version::V2_18));
        assert_eq!(Version::in_text("NCCL 2.99"), Some(Version::V2_30));
        let name = |of: usize| Version::ALL[of].0;
        assert_eq!((name(0), name(12)), ("2.18", "2.30"));
    }
}
