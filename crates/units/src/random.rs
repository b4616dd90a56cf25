//! Seeded randomness: one generator, one stream for each (seed, component).
//!
//! The generator is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators", 2019), seeded by SplitMix64 as its authors advise. It is written out here so that
//! no upgrade of a crate can change a published number. A component (a switch, a flow, a fault
//! campaign) has a stream of its own: adding one does not shift everybody else's dice.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of one component of a run, named by a word and a number.
    ///
    /// ```
    /// use units::Random;
    /// let mut marks = Random::new(1, "mark", 7);
    /// let mut again = Random::new(1, "mark", 7);
    /// assert_eq!(marks.next_u64(), again.next_u64());
    /// assert_ne!(marks.next_u64(), Random::new(1, "mark", 8).next_u64());
    /// ```
    pub fn new(seed: u64, component: &str, number: u64) -> Self {
        // FNV-1a of the word: stable, and different words are all that is asked of it.
        let word = component.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut mixer = mix(seed) ^ mix(word).rotate_left(21) ^ mix(!number).rotate_left(42);
        let mut next = || {
            mixer = mixer.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(mixer)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number below `bound`, which must not be zero; every one equally likely.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(0 < bound, "no number is below zero");
        // Lemire's multiplication with rejection: exact, and almost never loops.
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            let low = product as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A draw from the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A draw from the exponential distribution with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Puts `items` into a random order, every one equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// SplitMix64's finaliser.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: the first outputs for the state 1, 2, 3, 4, as the authors' C code prints them.
    #[test]
    fn the_generator_is_xoshiro256_plus_plus() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let outputs: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
        assert_eq!(outputs, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    /// Golden: what a second implementation draws, in another language. Every result depends on it.
    #[test]
    fn streams_stay_as_they_are() {
        let draws = |take: &mut dyn FnMut(&mut Random) -> u64, count: usize| {
            let mut random = Random::new(1, "mark", 7);
            (0..count).map(|_| take(&mut random)).collect::<Vec<u64>>()
        };
        let all = draws(&mut Random::next_u64, 3);
        assert_eq!(all, [0xe985_b471_47a1_b85e, 0x28c2_41ac_0224_ebf4, 0x1349_9bc4_fa4b_4080]);
        // A bound of which a quarter of all draws is rejected.
        let below = [
            12_620_290_486_024_358_470,
            2_825_392_689_004_297_934,
            5_692_411_876_109_158_329,
            11_238_271_345_351_263_557,
            2_790_889_622_940_444_941,
            4_381_389_578_862_618_940,
        ];
        assert_eq!(draws(&mut |random| random.below(3 << 62), 6), below);
        // The authors' SplitMix64, whose first state is its seed and the golden ratio.
        let first = 1_234_567_u64.wrapping_add(0x9e37_79b9_7f4a_7c15);
        assert_eq!(mix(first), 6_457_827_717_110_365_317);
    }

    #[test]
    fn draws_have_the_moments_they_should() {
        let mut random = Random::new(7, "test", 0);
        let n = 100_000;
        let mean = |draws: &mut dyn FnMut() -> f64| (0..n).map(|_| draws()).sum::<f64>() / n as f64;
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.005);
        assert!(mean(&mut || random.normal()).abs() < 0.02);
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!((mean(&mut || random.below(10) as f64) - 4.5).abs() < 0.05);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(1, "shuffle", 0).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
