//! The bytes of a rank: what it begins with, what others write into it, and their sums.
//!
//! Elements have one byte and sums wrap round (NCCL's `ncclUint8`), so a message may be cut
//! anywhere.

use roce::queue_pair::Memory;

use crate::plan::{Check, ReceivePlan};

/// What a rank begins with, and what it sends of an all-to-all.
pub const INPUT: u32 = 1;
/// What it works on, and ends with.
pub const DATA: u32 = 2;
/// What others wrote and is still to be added.
pub const STAGING: u32 = 3;
/// How far receivers have cleared: a number of eight bytes for each queue pair of the run.
pub const CLEARED: u32 = 4;
/// The same at the receiver that clears.
pub const CLEARS: u32 = 5;

/// The regions of a rank.
#[derive(Clone, Debug)]
pub struct Regions {
    regions: [Vec<u8>; 5],
}

/// The byte of a rank at a place before anything is sent: differs from place to place, rank to
/// rank, and neighbours differ too.
pub fn initial(rank: u32, at: u64) -> u8 {
    let mixed = (at ^ (at >> 8) ^ (at >> 16)).wrapping_mul(0x9e37_79b1) >> 16;
    (mixed as u8).wrapping_mul(2 * rank as u8 + 1).wrapping_add(17 * rank as u8)
}

impl Regions {
    /// Of so many bytes each, with so many for staging, in a run with so many queue pairs.
    pub fn new(rank: u32, bytes: u64, staging: u64, pairs: u32) -> Self {
        let input: Vec<u8> = (0..bytes).map(|at| initial(rank, at)).collect();
        let zeros = |bytes: u64| vec![0; bytes as usize];
        let numbers = 8 * u64::from(pairs);
        let regions = [input.clone(), input, zeros(staging), zeros(numbers), zeros(numbers)];
        Self { regions }
    }

    /// How far a queue pair of this rank was cleared.
    pub fn cleared(&self, pair: u32) -> u64 {
        let at = 8 * pair as usize;
        u64::from_le_bytes(self.regions[3][at..at + 8].try_into().expect("eight bytes"))
    }

    /// Clears packets of a queue pair: what a WRITE will tell its sender.
    pub fn clear(&mut self, pair: u32, packets: u64) {
        let at = 8 * pair as usize;
        self.regions[4][at..at + 8].copy_from_slice(&packets.to_le_bytes());
    }

    /// A message has arrived in full: adds it where it belongs, if that is what it is for.
    pub fn arrived(&mut self, message: &ReceivePlan) {
        let Some(staged) = message.adds else { return };
        let range = |from: u64| from as usize..(from + message.bytes) as usize;
        let [_, data, staging, ..] = &mut self.regions;
        let sums = data[range(message.address)].iter_mut();
        for (sum, one) in sums.zip(&staging[range(staged)]) {
            *sum = sum.wrapping_add(*one);
        }
    }

    /// How many bytes are not what they should be.
    pub fn wrong(&self, checks: &[Check], ranks: u32) -> u64 {
        let wrong = |check: &Check| {
            let data = &self.regions[1][check.address as usize..][..check.bytes as usize];
            let right = |at: u64| match check.from {
                Some((rank, from)) => initial(rank, from + at),
                None => (0..ranks)
                    .fold(0_u8, |sum, rank| sum.wrapping_add(initial(rank, check.address + at))),
            };
            (0..).zip(data).filter(|(at, byte)| right(*at) != **byte).count() as u64
        };
        checks.iter().map(wrong).sum()
    }

    fn region(&self, key: u32) -> Option<&Vec<u8>> {
        self.regions.get((key as usize).checked_sub(1)?)
    }
}

impl Memory for Regions {
    fn read(&self, key: u32, address: u64, length: usize, to: &mut Vec<u8>) -> bool {
        let part =
            self.region(key).and_then(|region| region.get(address as usize..)?.get(..length));
        part.map(|part| to.extend_from_slice(part)).is_some()
    }

    fn write(&mut self, key: u32, address: u64, bytes: &[u8]) -> bool {
        // Nobody writes what a rank begins with, or what it clears.
        if !(DATA..=CLEARED).contains(&key) {
            return false;
        }
        let region = self.regions.get_mut(key as usize - 1);
        let part =
            region.and_then(|region| region.get_mut(address as usize..)?.get_mut(..bytes.len()));
        part.map(|part| part.copy_from_slice(bytes)).is_some()
    }
}
