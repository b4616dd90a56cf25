//! Slurm's host lists: `tux[0-3,12,18-20]`, `rack[1-2]-node[01-16]`.
//!
//! Several brackets multiply, the last one varying fastest; a number keeps the zeros it is written
//! with. Source: Slurm's `hostlist.c` and the man page of `scontrol show hostnames`.

use units::Budget;

/// Digits of a number in a list; Slurm's own numbers have fewer.
const MAX_DIGITS: usize = 18;
/// What a name takes in memory besides its letters.
const EACH: u64 = 32;

/// What one list may come to: more hosts than any cluster has, in names as people give them.
pub const BUDGET: Budget =
    Budget { bytes: 64 << 20, items: 1 << 18, depth: 1, expansion: 64 << 20 };

/// All hosts of a list, in order.
pub fn expand(list: &str, budget: &mut Budget) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for word in split(list)? {
        let word = word.trim();
        if word.is_empty() {
            continue;
        }
        let mut partial = vec![String::new()];
        let mut rest = word;
        while let Some(open) = rest.find('[') {
            let Some(length) = rest[open..].find(']') else {
                return Err(told(word, "`[` without `]`"));
            };
            let inside = ranges(&rest[open + 1..open + length], word, budget)?;
            let before = &rest[..open];
            let count = partial.len().saturating_mul(inside.len());
            let letters = |names: &[String]| names.iter().map(String::len).max().unwrap_or(0);
            let each = letters(&partial) + before.len() + letters(&inside);
            written(budget, word, count, each)?;
            let each = |start: &String| -> Vec<String> {
                inside.iter().map(|number| format!("{start}{before}{number}")).collect()
            };
            partial = partial.iter().flat_map(each).collect();
            rest = &rest[open + length + 1..];
        }
        if rest.contains(']') {
            return Err(told(word, "`]` without `[`"));
        }
        let each = partial.iter().map(String::len).max().unwrap_or(0) + rest.len();
        budget.spend_items(partial.len() as u64).map_err(|over| told(word, over))?;
        written(budget, word, partial.len(), each)?;
        hosts.extend(partial.into_iter().map(|start| format!("{start}{rest}")));
    }
    Ok(hosts)
}

/// Takes what so many names of so many letters take, and refuses more than there may be in all.
fn written(budget: &mut Budget, word: &str, count: usize, letters: usize) -> Result<(), String> {
    let bytes = (letters as u64 + EACH).saturating_mul(count as u64);
    let items = Budget { ..*budget }.spend_items(count as u64);
    items.and_then(|()| budget.spend_expansion(bytes)).map_err(|over| told(word, over))
}

/// What is wrong with a list, without quoting megabytes of it.
fn told(word: &str, reason: impl std::fmt::Display) -> String {
    match word.char_indices().nth(60) {
        Some((end, _)) => format!("`{}…`: {reason}", &word[..end]),
        None => format!("`{word}`: {reason}"),
    }
}

/// The words between commas that are not inside brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let (mut start, mut is_inside) = (0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if is_inside => return Err(told(list, "`[` inside of brackets")),
            '[' => is_inside = true,
            ']' => is_inside = false,
            ',' if !is_inside => {
                words.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&list[start..]);
    Ok(words)
}

/// The numbers of `0-3,12,018-020`, as they are written.
fn ranges(inside: &str, word: &str, budget: &mut Budget) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for part in inside.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim(), last.trim());
        let parse = |digits: &str| match digits.bytes().all(|digit| digit.is_ascii_digit()) {
            true if digits.len() <= MAX_DIGITS => digits.parse::<usize>().ok(),
            _ => None,
        };
        let (Some(low), Some(high)) = (parse(first), parse(last)) else {
            return Err(told(word, told(part, "not a number or a range")));
        };
        if high < low {
            return Err(told(word, told(part, "counts backwards")));
        }
        written(budget, word, (high - low).saturating_add(1), MAX_DIGITS)?;
        let width = first.len();
        numbers.extend((low..=high).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// The shortest list of these hosts that keeps their order: runs of one prefix become ranges.
pub fn compress(hosts: &[String]) -> String {
    let mut list = String::new();
    let mut at = 0;
    while at < hosts.len() {
        let (prefix, _) = parts(&hosts[at]);
        let alike = |host: &&String| parts(host).0 == prefix && parts(host).1.is_some();
        let count = hosts[at..].iter().take_while(alike).count().max(1);
        if !list.is_empty() {
            list.push(',');
        }
        if count == 1 {
            list.push_str(&hosts[at]);
        } else {
            let numbers: Vec<&str> =
                hosts[at..at + count].iter().filter_map(|host| parts(host).1).collect();
            list.push_str(&format!("{prefix}[{}]", runs(&numbers)));
        }
        at += count;
    }
    list
}

/// A name cut before its last number.
fn parts(host: &str) -> (&str, Option<&str>) {
    let digits = host.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, number) = host.split_at(host.len() - digits);
    // Numbers that would overflow, or be split by brackets in the name, stay words.
    let is_plain = (1..=18).contains(&digits) && !host.contains(['[', ']', ',']);
    (prefix, is_plain.then_some(number))
}

fn runs(numbers: &[&str]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < numbers.len() {
        let value = |at: usize| numbers[at].parse::<u64>().unwrap_or(u64::MAX);
        let mut end = at;
        while end + 1 < numbers.len()
            && value(end + 1) == value(end) + 1
            && numbers[end + 1] == format!("{:0width$}", value(end + 1), width = numbers[at].len())
        {
            end += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(numbers[at]);
        if at < end {
            text.push('-');
            text.push_str(numbers[end]);
        }
        at = end + 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expand(list: &str) -> Result<Vec<String>, String> {
        super::expand(list, &mut { BUDGET })
    }

    #[test]
    fn lists_expand_as_slurm_does() {
        let expanded = |list: &str| expand(list).unwrap().join(" ");
        assert_eq!(expanded("tux[0-3,12,18-20]"), "tux0 tux1 tux2 tux3 tux12 tux18 tux19 tux20");
        assert_eq!(expanded("n[08-11],login"), "n08 n09 n10 n11 login");
        assert_eq!(expanded("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        assert_eq!(expanded(""), "");
    }

    #[test]
    fn mistakes_and_bombs_are_refused() {
        let told = |list: &str| expand(list).unwrap_err();
        assert_eq!(told("n[1-"), "`n[1-`: `[` without `]`");
        assert_eq!(told("n1]"), "`n1]`: `]` without `[`");
        assert_eq!(told("n[3-1]"), "`n[3-1]`: `3-1`: counts backwards");
        assert_eq!(told("n[a]"), "`n[a]`: `a`: not a number or a range");
        assert!(told("n[0-99999999999]").contains("too many items"));
        assert!(told("n[0-9999][0-9999]").contains("too many items"));
        assert!(told("s[0-999999]").contains("too many items"));
        assert!(told(&["s[0-99999]"; 8].join(",")).contains("too many items"));
        // Once a panic: more zeros than a width can have.
        let zeros = told(&format!("n[{}-3]", "0".repeat(70_000)));
        assert!(zeros.contains("not a number") && zeros.len() < 300, "{zeros}");
        // A long name times many hosts.
        let long = format!("{}[0-99999]", "x".repeat(10_000));
        assert!(told(&long).contains("too many bytes once it is written out"));
    }

    proptest! {
        /// What is compressed expands to the same, in order.
        #[test]
        fn compressing_loses_nothing(
            hosts in prop::collection::vec("[a-c]{0,2}-?[0-9]{1,4}|[a-z]{1,4}", 0..40)
        ) {
            prop_assert_eq!(expand(&compress(&hosts)).unwrap(), hosts);
        }

        #[test]
        fn nothing_panics(list in "[a-z0-9,\\[\\]-]{0,40}") {
            let _ = expand(&list);
        }
    }
}
