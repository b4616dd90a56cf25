//! Numbers as people read them: digits in groups, large ones with a unit.

/// A whole number with its digits in groups of three: `24,576`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if 0 < index && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three significant digits and a prefix: `1.23 G`, `45.6 k`, `7 `.
fn scaled(number: f64) -> String {
    const PREFIXES: [(f64, &str); 5] =
        [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (factor, prefix) =
        PREFIXES.into_iter().find(|(factor, _)| *factor <= number.abs()).unwrap_or((1.0, ""));
    format!("{} {prefix}", significant(number / factor))
}

/// A number with at least three significant digits and no superfluous zeros.
pub fn significant(number: f64) -> String {
    significant_to(number, 3)
}

/// The same with at least so many significant digits; three is the least.
pub fn significant_to(number: f64, digits: usize) -> String {
    let text = to_digits(number, digits);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// The same with its zeros, for figures that stand below each other; nothing is 0.
pub fn to_digits(number: f64, digits: usize) -> String {
    let decimals = match number.abs() {
        size if 100.0 <= size => 0,
        size if 10.0 <= size => 1,
        size if 1.0 <= size => 2,
        _ => 3,
    } + digits.saturating_sub(3);
    if number == 0.0 { "0".to_owned() } else { format!("{number:.decimals$}") }
}

/// Bits per second: `400 Gb/s`.
pub fn bits_per_second(number: f64) -> String {
    format!("{}b/s", scaled(number))
}

/// Bytes: `1.2 GB`.
pub fn bytes(number: f64) -> String {
    format!("{}B", scaled(number))
}

/// Watts: `1.2 MW`.
pub fn watts(number: f64) -> String {
    format!("{}W", scaled(number))
}

/// US dollars: `$1.2 M`, `$850`.
pub fn dollars(number: f64) -> String {
    match number {
        number if number.abs() < 1e5 => format!("${}", grouped(number.round().max(0.0) as u64)),
        number if 1e9 <= number => format!("${} billion", significant(number / 1e9)),
        number => format!("${} M", significant(number / 1e6)),
    }
}

/// A figure with its ends behind it, "$4.8 M ($4.1 M to $6.2 M)"; alone if they do not differ from
/// it as written.
pub fn with_ends(value: f64, low: f64, high: f64, write: impl Fn(f64) -> String) -> String {
    let [value, low, high] = [value, low, high].map(write);
    if low == value && high == value { value } else { format!("{value} ({low} to {high})") }
}

/// Two ends, "$4.1–6.2 M": sign and unit stand once where both have the same.
pub fn between(low: f64, high: f64, write: impl Fn(f64) -> String) -> String {
    let (low, high) = (write(low), write(high));
    let parts = |text: &str| {
        let digits = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let from = text.find(digits).unwrap_or(0);
        let to = text.rfind(digits).map_or(0, |at| at + 1);
        [&text[..from], &text[from..to.max(from)], &text[to.max(from)..]].map(str::to_owned)
    };
    let ([sign, least, unit], [other, most, last]) = (parts(&low), parts(&high));
    match (sign == other, unit == last) {
        (true, true) if least == most => low,
        (true, true) => format!("{sign}{least}–{most}{unit}"),
        _ => format!("{low}–{high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_share_sign_and_unit() {
        assert_eq!(between(541e6, 983e6, dollars), "$541–983 M");
        assert_eq!(between(541e6, 1.2e9, dollars), "$541 M–$1.2 billion");
        assert_eq!(between(7e6, 7e6, dollars), "$7 M");
        assert_eq!(between(5.0, 10.0, |number| format!("{number} %")), "5–10 %");
        assert_eq!(with_ends(2e6, 1e6, 3e6, dollars), "$2 M ($1 M to $3 M)");
        assert_eq!(with_ends(2e6, 2e6, 2e6, dollars), "$2 M");
    }

    #[test]
    fn numbers_look_as_people_write_them() {
        assert_eq!([0, 7, 999, 1_000, 24_576, 1_048_576].map(grouped).join(" "), {
            "0 7 999 1,000 24,576 1,048,576"
        });
        let numbers = [0.0, 0.1236, 1.0, 9.875, 45.62, 1234.5];
        assert_eq!(numbers.map(significant).join(" "), "0 0.124 1 9.88 45.6 1234");
        assert_eq!([0.0, 17.0, 6.2, 100.0].map(|n| to_digits(n, 3)).join(" "), "0 17.0 6.20 100");
        assert_eq!(bits_per_second(400e9), "400 Gb/s");
        assert_eq!(bits_per_second(1.2288e15), "1.23 Pb/s");
        assert_eq!(watts(950.0), "950 W");
        assert_eq!([850.0, 25_500.0, 1.26e6, 3.5e9].map(dollars), {
            ["$850", "$25,500", "$1.26 M", "$3.5 billion"]
        });
    }
}
