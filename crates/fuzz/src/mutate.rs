//! How an input is changed: bits, bytes, blocks, numbers, words of its format, parts of another.

use units::Random;

/// Numbers at which readers break.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "1e-320",
    "nan",
    "inf",
    "00000000000000000000000000000000",
    "0.1",
    "1e18",
];

/// Changes an input a few times.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    let times = 1 + random.below(4);
    for _ in 0..times {
        once(input, other, words, random);
    }
}

fn once(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    let place = |random: &mut Random, length: usize| random.below(length as u64 + 1) as usize;
    let at = place(random, input.len());
    match random.below(12) {
        0 => flip(input, random),
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.below(256) as u8;
            }
        }
        2 => input.insert(at, random.below(256) as u8),
        3 => {
            let end = (at + place(random, 16)).min(input.len());
            input.drain(at..end);
        }
        4 => input.truncate(at),
        // The same again, or many times: lists, nesting, long lines.
        5 => {
            let end = (at + place(random, 64)).min(input.len());
            let block = input[at..end].to_vec();
            let times = [1, 2, 8, 100, 1000][random.below(5) as usize];
            let times = times.min(crate::MAX_BYTES / block.len().max(1));
            insert(input, at, &block.repeat(times));
        }
        6 | 7 => {
            if let Some(word) = words.get(random.below(words.len().max(1) as u64) as usize) {
                insert(input, at, word.as_bytes());
            }
        }
        8 => replace_number(input, at, random),
        9 => {
            let from = place(random, other.len());
            let end = (from + place(random, 256)).min(other.len());
            insert(input, at, &other[from..end]);
        }
        10 => {
            let from = place(random, other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        // Two blocks in each other's place.
        _ => {
            let half = input.len() / 2;
            let (one, two) = (place(random, half), half + place(random, half));
            let length = place(random, 32).min(half.saturating_sub(one));
            let length = length.min(input.len().saturating_sub(two));
            for step in 0..length {
                input.swap(one + step, two + step);
            }
        }
    }
}

fn flip(input: &mut [u8], random: &mut Random) {
    if !input.is_empty() {
        let at = random.below(input.len() as u64) as usize;
        input[at] ^= 1 << random.below(8);
    }
}

fn insert(input: &mut Vec<u8>, at: usize, block: &[u8]) {
    input.splice(at..at, block.iter().copied());
}

/// Puts a number at which readers break in place of the next one.
fn replace_number(input: &mut Vec<u8>, from: usize, random: &mut Random) {
    let number = NUMBERS[random.below(NUMBERS.len() as u64) as usize].as_bytes();
    let Some(start) = input[from..].iter().position(u8::is_ascii_digit) else {
        return insert(input, from, number);
    };
    let start = from + start;
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    input.splice(start..start + length, number.iter().copied());
}
