//! Reading and writing quantities as people write them: `400Gbps`, `4MiB`, `1.5us`, `2m`, `1.2TB`.
//!
//! A quantity is a decimal number and a unit, with or without a blank between them. A bare number
//! is an error, because nobody can tell later what it meant. Printing picks the largest unit that
//! fits and writes every digit, so that reading it back gives the same value; with a precision
//! (`{:.2}`) it rounds instead.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::size::{Bytes, Length, Rate};
use crate::time::{Span, Time};

/// Why a quantity could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuantityError {
    /// What was expected: "a rate", "a size", …
    pub expected: &'static str,
    /// The word that was found.
    pub found: String,
    /// What is wrong with it, in words.
    pub reason: String,
    /// A spelling that would have worked.
    pub example: &'static str,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, found, reason, example } = self;
        write!(f, "`{found}` is not {expected}: {reason} (write it like \"{example}\")")
    }
}

impl std::error::Error for QuantityError {}

/// A unit: its spelling and how many base units it is.
type Unit = (&'static str, u64);

struct Kind {
    expected: &'static str,
    example: &'static str,
    /// Every spelling that is read; matched without regard to case if nothing matches exactly.
    read: &'static [Unit],
    /// The units that are printed, largest first.
    print: &'static [Unit],
}

const SPAN: Kind = Kind {
    expected: "a time",
    example: "1.5us",
    read: &[
        ("ps", 1),
        ("ns", 1_000),
        ("us", 1_000_000),
        ("µs", 1_000_000),
        ("μs", 1_000_000),
        ("ms", 1_000_000_000),
        ("s", 1_000_000_000_000),
        ("min", 60_000_000_000_000),
        ("h", 3_600_000_000_000_000),
        ("d", 86_400_000_000_000_000),
    ],
    print: &[
        ("s", 1_000_000_000_000),
        ("ms", 1_000_000_000),
        ("us", 1_000_000),
        ("ns", 1_000),
        ("ps", 1),
    ],
};

const BYTES: Kind = Kind {
    expected: "a size",
    example: "4MiB",
    read: &[
        ("B", 1),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("PB", 1_000_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("PiB", 1 << 50),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("T", 1 << 40),
    ],
    print: &[
        ("PB", 1_000_000_000_000_000),
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
        ("B", 1),
    ],
};

const BINARY: &[Unit] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

const RATE: Kind = Kind {
    expected: "a rate",
    example: "400Gbps",
    read: &[
        ("bps", 1),
        ("kbps", 1_000),
        ("Mbps", 1_000_000),
        ("Gbps", 1_000_000_000),
        ("Tbps", 1_000_000_000_000),
        ("b/s", 1),
        ("kb/s", 1_000),
        ("Mb/s", 1_000_000),
        ("Gb/s", 1_000_000_000),
        ("Tb/s", 1_000_000_000_000),
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
        ("B/s", 8),
        ("kB/s", 8_000),
        ("MB/s", 8_000_000),
        ("GB/s", 8_000_000_000),
        ("TB/s", 8_000_000_000_000),
    ],
    print: &[
        ("Tbps", 1_000_000_000_000),
        ("Gbps", 1_000_000_000),
        ("Mbps", 1_000_000),
        ("kbps", 1_000),
        ("bps", 1),
    ],
};

const LENGTH: Kind = Kind {
    expected: "a length",
    example: "2m",
    read: &[("mm", 1), ("cm", 10), ("m", 1_000), ("km", 1_000_000)],
    print: &[("km", 1_000_000), ("m", 1_000), ("mm", 1)],
};

fn read(kind: &Kind, text: &str) -> Result<u64, QuantityError> {
    let fail = |reason: String| QuantityError {
        expected: kind.expected,
        found: text.to_owned(),
        reason,
        example: kind.example,
    };
    let word = text.trim();
    let end =
        word.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(word.len());
    let (number, unit) = (&word[..end], word[end..].trim_start());
    if number.is_empty() {
        return Err(fail("it does not begin with a number".to_owned()));
    }
    if unit.is_empty() {
        return Err(fail("the unit is missing".to_owned()));
    }
    let exact = kind.read.iter().find(|(name, _)| *name == unit);
    let mut loose = kind.read.iter().filter(|(name, _)| name.eq_ignore_ascii_case(unit));
    // `B/s` and `b/s` differ only in case: without an exact match they are ambiguous, not guessed.
    let factor = match (exact, loose.next(), loose.next()) {
        (Some((_, factor)), _, _) | (None, Some((_, factor)), None) => *factor,
        (None, Some((_, a)), Some((_, b))) if a == b => *a,
        (None, Some(_), Some(_)) => {
            return Err(fail(format!("`{unit}` could be bits or bytes")));
        }
        (None, None, _) => {
            let known: Vec<&str> = kind.read.iter().map(|(name, _)| *name).collect();
            return Err(fail(format!("`{unit}` is none of {}", known.join(", "))));
        }
    };
    scale(number, factor).ok_or_else(|| fail("the number is malformed or too large".to_owned()))
}

/// `number` times `factor`, rounded to the nearest; `None` if malformed or above 64 bits.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let mut digits: u128 = 0;
    let mut divisor: u128 = 1;
    let mut after_point = false;
    for c in number.chars() {
        match c {
            '_' => {}
            '.' if !after_point => after_point = true,
            _ => {
                let digit = u128::from(c.to_digit(10)?);
                if divisor >= 1_000_000_000_000_000_000 {
                    continue; // digits beyond 10⁻¹⁸ of a unit change nothing
                }
                digits = digits.checked_mul(10)?.checked_add(digit)?;
                if after_point {
                    divisor *= 10;
                }
            }
        }
    }
    let scaled = digits.checked_mul(u128::from(factor))?;
    u64::try_from((scaled + divisor / 2) / divisor).ok()
}

fn print(units: &[Unit], value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (name, factor) = units
        .iter()
        .find(|(_, factor)| *factor <= value)
        .copied()
        .unwrap_or(units[units.len() - 1]);
    let text = match f.precision() {
        Some(digits) => format!("{:.*}{name}", digits, value as f64 / factor as f64),
        None => {
            let (whole, rest) = (value / factor, value % factor);
            let width = factor.ilog10() as usize;
            let decimals = format!("{rest:0width$}");
            let decimals = decimals.trim_end_matches('0');
            let point = if rest == 0 { "" } else { "." };
            format!("{whole}{point}{}{name}", if rest == 0 { "" } else { decimals })
        }
    };
    // `pad` would cut at the precision, which has been used already.
    match f.width() {
        Some(width) if f.align() == Some(fmt::Alignment::Left) => write!(f, "{text:<width$}"),
        Some(width) => write!(f, "{text:>width$}"),
        None => f.write_str(&text),
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(SPAN.print, self.as_ps(), f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(SPAN.print, self.as_ps(), f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 1 MiB is not written as 1.048576MB, nor 1 GB as 976562.5KiB.
        let whole = |(_, factor): &&Unit| {
            self.get().is_multiple_of(*factor) && (1..10 << 10).contains(&(self.get() / factor))
        };
        match BINARY.iter().find(whole) {
            Some(unit) if f.precision().is_none() => {
                print(std::slice::from_ref(unit), self.get(), f)
            }
            _ => print(BYTES.print, self.get(), f),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(RATE.print, self.as_bps(), f)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(LENGTH.print, self.as_mm(), f)
    }
}

/// Reading, writing and the schema of one quantity, all from its [`Kind`].
macro_rules! quantity {
    ($type:ident, $kind:ident, $from:expr) => {
        impl FromStr for $type {
            type Err = QuantityError;
            fn from_str(text: &str) -> Result<Self, QuantityError> {
                let value = read(&$kind, text)?;
                let make: fn(u64) -> Result<Self, &'static str> = $from;
                make(value).map_err(|reason| QuantityError {
                    expected: $kind.expected,
                    found: text.to_owned(),
                    reason: reason.to_owned(),
                    example: $kind.example,
                })
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let expected = format!("{} with its unit", $kind.expected);
                json_schema!({
                    "type": "string",
                    "format": stringify!($type),
                    "description": expected,
                    "examples": [$kind.example],
                })
            }
        }
    };
}

quantity!(Span, SPAN, |ps| Ok(Self::from_ps(ps)));
quantity!(Bytes, BYTES, |bytes| Ok(Self::new(bytes)));
quantity!(Length, LENGTH, |mm| Ok(Self::from_mm(mm)));
quantity!(Rate, RATE, |bps| if bps == 0 {
    Err("a rate cannot be zero")
} else {
    Ok(Self::from_bps(bps))
});

/// Checks `text` as the quantity that a JSON Schema's `format` names; other formats always pass.
pub fn check_format(format: &str, text: &str) -> Result<(), QuantityError> {
    match format {
        "Span" => text.parse::<Span>().map(drop),
        "Bytes" => text.parse::<Bytes>().map(drop),
        "Rate" => text.parse::<Rate>().map(drop),
        "Length" => text.parse::<Length>().map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_read_as_people_write_them() {
        assert_eq!("400Gbps".parse(), Ok(Rate::from_gbps(400)));
        assert_eq!("400 Gb/s".parse(), Ok(Rate::from_gbps(400)));
        assert_eq!("50GB/s".parse(), Ok(Rate::from_gbps(400)));
        assert_eq!("1.6tbps".parse(), Ok(Rate::from_gbps(1_600)));
        assert_eq!("4MiB".parse(), Ok(Bytes::from_mib(4)));
        assert_eq!("1.2TB".parse(), Ok(Bytes::new(1_200_000_000_000)));
        assert_eq!("1_000 B".parse(), Ok(Bytes::new(1_000)));
        assert_eq!("1.5us".parse(), Ok(Span::from_ns(1_500)));
        assert_eq!("2m".parse(), Ok(Length::from_metres(2)));
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_would_work() {
        let error = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert_eq!(
            error("400"),
            "`400` is not a rate: the unit is missing (write it like \"400Gbps\")"
        );
        assert_eq!(
            error("fast"),
            "`fast` is not a rate: it does not begin with a number (write it like \"400Gbps\")"
        );
        assert!(error("400 parsecs").contains("`parsecs` is none of bps, kbps, Mbps, Gbps"));
        assert!(error("400gB/S").contains("could be bits or bytes"));
        assert!(error("0Gbps").contains("cannot be zero"));
        assert!(error("1.2.3Gbps").contains("malformed or too large"));
        assert!(error("99999999999999999999Gbps").contains("malformed or too large"));
        assert!("".parse::<Bytes>().is_err());
    }

    #[test]
    fn printing_picks_the_unit_that_people_would() {
        assert_eq!(Rate::from_gbps(400).to_string(), "400Gbps");
        assert_eq!(Rate::from_gbps(1_600).to_string(), "1.6Tbps");
        assert_eq!(Bytes::from_mib(4).to_string(), "4MiB");
        assert_eq!(Bytes::new(1_200_000_000_000).to_string(), "1.2TB");
        assert_eq!(Bytes::ZERO.to_string(), "0B");
        assert_eq!(Span::from_ns(1_500).to_string(), "1.5us");
        assert_eq!(format!("{:.1}", Span::from_ns(1_234_567)), "1.2ms");
        assert_eq!(format!("{:>8.1}|", Bytes::new(1_234_567)), "   1.2MB|");
        assert_eq!(Length::from_mm(2_500).to_string(), "2.5m");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_the_same(value in any::<u64>()) {
            prop_assert_eq!(Span::from_ps(value).to_string().parse(), Ok(Span::from_ps(value)));
            prop_assert_eq!(Bytes::new(value).to_string().parse(), Ok(Bytes::new(value)));
            prop_assert_eq!(Length::from_mm(value).to_string().parse(), Ok(Length::from_mm(value)));
            let rate = Rate::from_bps(value.max(1));
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        #[test]
        fn no_text_makes_reading_panic(text in ".*") {
            let _ = text.parse::<Rate>();
            let _ = text.parse::<Span>();
        }
    }
}
