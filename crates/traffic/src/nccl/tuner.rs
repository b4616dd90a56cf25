//! A vendor's tuner plug-in: lines that overrule NCCL's table.
//!
//! NCCL asks a tuner plug-in before it takes the least entry of its table. The one that comes with
//! it as an example reads lines of a CSV file, and vendors publish such files:
//!
//! ```text
//! collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks[,pipe_ops[,registered]]
//! allreduce,0,65536,tree,ll,2,2,-1
//! ```
//!
//! −1 stands for any number, or for NCCL's own choice of channels. The first line that fits and
//! whose algorithm can run is taken. `nodes` are scale-up domains here.
//!
//! Source: NCCL `plugins/tuner/example` (README and `plugin.c`, 2.30).

use serde::{Deserialize, Serialize};

use super::Protocol;
use crate::collective::{Algorithm, Ask, Collective, algorithm};

/// One line of a tuner's table.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct TunerLine {
    collective: Collective,
    bytes: [u64; 2],
    algorithm: String,
    protocol: Protocol,
    channels: Option<u32>,
    nodes: Option<u32>,
    ranks: Option<u32>,
    /// As it was written.
    text: String,
}

impl TunerLine {
    /// Whether it is about this collective on these ranks.
    fn fits(&self, ask: &Ask<'_>) -> bool {
        let shape = ask.shape();
        let [least, most] = self.bytes;
        let sized = (least..=most).contains(&ask.bytes.get());
        let any_or = |wanted: Option<u32>, is: u32| wanted.is_none_or(|wanted| wanted == is);
        self.collective == ask.collective
            && sized
            && any_or(self.nodes, shape.domains)
            && any_or(self.ranks, shape.ranks)
    }
}

/// What the tuner's first fitting line says: algorithm, protocol, and channels where it has them.
pub(super) fn chosen(ask: &Ask<'_>) -> Option<(&'static dyn Algorithm, Protocol, Option<u32>)> {
    let lines = ask.settings.tuner.iter().filter(|line| line.fits(ask));
    let mut runs = lines.filter_map(|line| {
        let algorithm = algorithm(&line.algorithm).filter(|algorithm| algorithm.serves(ask))?;
        let offered = algorithm.offer(ask, line.protocol).is_some();
        let usable = super::constants::has_protocol(ask.settings, ask.shape(), line.protocol);
        (offered && usable).then_some((algorithm, line.protocol, line.channels))
    });
    runs.next()
}

impl TryFrom<String> for TunerLine {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if !(8..=10).contains(&fields.len()) {
            return Err(format!(
                "`{text}` has {} fields; a line of a tuner has 8 to 10: collective, least and most \
                 bytes, algorithm, protocol, channels, nodes, ranks, operations, registered",
                fields.len()
            ));
        }
        let number = |at: usize| {
            let word = fields[at];
            word.parse::<u64>().map_err(|_| format!("`{word}` in `{text}` is not a number"))
        };
        let any = |at: usize| match fields[at] {
            "-1" => Ok(None),
            word => match word.parse::<u32>() {
                Ok(number) if 0 < number => Ok(Some(number)),
                _ => Err(format!("`{word}` in `{text}` is neither a number nor -1")),
            },
        };
        if let Some(word) = fields.iter().skip(8).find(|word| !matches!(**word, "-1" | "0" | "1")) {
            return Err(format!("`{word}` in `{text}` is none of -1, 0 and 1"));
        }
        let known = |at: usize, names: &[&str]| {
            let all = names.join(", ");
            format!("`{}` in `{text}` is none of {all}", fields[at])
        };
        let name = |at: usize| fields[at].to_lowercase();
        let collective = COLLECTIVES.iter().find(|(known, _)| *known == name(0));
        let algorithm = ALGORITHM_NAMES.iter().find(|(known, _)| *known == name(3));
        let protocol = PROTOCOLS.iter().find(|(known, _)| *known == name(4));
        let (_, collective) = collective.ok_or_else(|| known(0, &COLLECTIVES.map(|(n, _)| n)))?;
        let (_, algorithm) = algorithm.ok_or_else(|| known(3, &ALGORITHM_NAMES.map(|(n, _)| n)))?;
        let (_, protocol) = protocol.ok_or_else(|| known(4, &PROTOCOLS.map(|(n, _)| n)))?;
        Ok(Self {
            collective: *collective,
            bytes: [number(1)?, number(2)?],
            algorithm: (*algorithm).to_owned(),
            protocol: *protocol,
            channels: any(5)?,
            nodes: any(6)?,
            ranks: any(7)?,
            text: text.clone(),
        })
    }
}

impl From<TunerLine> for String {
    fn from(line: TunerLine) -> Self {
        line.text
    }
}

const COLLECTIVES: [(&str, Collective); 5] = [
    ("broadcast", Collective::Broadcast),
    ("reduce", Collective::Reduce),
    ("allgather", Collective::AllGather),
    ("reducescatter", Collective::ReduceScatter),
    ("allreduce", Collective::AllReduce),
];

/// The plug-in's names and ours.
const ALGORITHM_NAMES: [(&str, &str); 7] = [
    ("tree", "tree"),
    ("ring", "ring"),
    ("collnet_direct", "sharp"),
    ("collnet_chain", "collnet-chain"),
    ("nvls", "nvls"),
    ("nvls_tree", "nvls_tree"),
    ("pat", "pat"),
];

const PROTOCOLS: [(&str, Protocol); 3] =
    [("ll", Protocol::Ll), ("ll128", Protocol::Ll128), ("simple", Protocol::Simple)];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<TunerLine, String> {
        TunerLine::try_from(text.to_owned())
    }

    /// Lines of NCCL's README are read, others refused with what is wrong.
    #[test]
    fn lines_are_read_or_refused() {
        let read = line("allreduce,65537,1048576,ring,simple,4,4,32,1,0").unwrap();
        assert_eq!((read.bytes, read.channels), ([65_537, 1_048_576], Some(4)));
        assert_eq!((read.nodes, read.ranks), (Some(4), Some(32)));
        assert_eq!(line("broadcast,0,32768,ring,simple,-1,1,-1").unwrap().channels, None);
        let wrong = [
            ("allreduce,0,1", "fields"),
            ("sum,0,1,ring,simple,1,1,1", "allreduce"),
            ("allreduce,0,1,star,simple,1,1,1", "nvls_tree"),
            ("allreduce,0,1,ring,simple,many,1,1", "-1"),
            ("allreduce,0,x,ring,simple,1,1,1", "number"),
        ];
        for (text, part) in wrong {
            let reason = line(text).unwrap_err();
            assert!(reason.contains(part), "{text}: {reason}");
        }
    }
}
