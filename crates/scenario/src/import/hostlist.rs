//! Slurm's host lists: `tux[0-3,12,18-20]`, `rack[1-2]-node[01-16]`.
//!
//! Several brackets multiply, the last one varying fastest; a number keeps the zeros it is written
//! with. Source: Slurm's `hostlist.c` and the man page of `scontrol show hostnames`.

use super::MAX_ITEMS;

/// All hosts of a list, in order.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
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
                return Err(format!("`{word}` has a `[` without `]`"));
            };
            let inside = ranges(&rest[open + 1..open + length], word)?;
            if MAX_ITEMS < partial.len().saturating_mul(inside.len()).saturating_add(hosts.len()) {
                return Err(format!("`{word}` names more than {MAX_ITEMS} hosts"));
            }
            let before = &rest[..open];
            let each = |start: &String| -> Vec<String> {
                inside.iter().map(|number| format!("{start}{before}{number}")).collect()
            };
            partial = partial.iter().flat_map(each).collect();
            rest = &rest[open + length + 1..];
        }
        if rest.contains(']') {
            return Err(format!("`{word}` has a `]` without `[`"));
        }
        hosts.extend(partial.into_iter().map(|start| format!("{start}{rest}")));
    }
    Ok(hosts)
}

/// The words between commas that are not inside brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let (mut start, mut is_inside) = (0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if is_inside => return Err(format!("`{list}` has a `[` inside of brackets")),
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
fn ranges(inside: &str, word: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for part in inside.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim(), last.trim());
        let parse = |digits: &str| match digits.bytes().all(|digit| digit.is_ascii_digit()) {
            true => digits.parse::<usize>().ok(),
            false => None,
        };
        let (Some(low), Some(high)) = (parse(first), parse(last)) else {
            return Err(format!("`{word}`: `{part}` is not a number or a range"));
        };
        if high < low {
            return Err(format!("`{word}`: `{part}` counts backwards"));
        }
        if MAX_ITEMS < (high - low).saturating_add(numbers.len()) {
            return Err(format!("`{word}` names more than {MAX_ITEMS} hosts"));
        }
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
        assert_eq!(told("n[1-"), "`n[1-` has a `[` without `]`");
        assert_eq!(told("n1]"), "`n1]` has a `]` without `[`");
        assert_eq!(told("n[3-1]"), "`n[3-1]`: `3-1` counts backwards");
        assert_eq!(told("n[a]"), "`n[a]`: `a` is not a number or a range");
        assert!(told("n[0-99999999999]").contains("more than"));
        assert!(told("n[0-9999][0-9999]").contains("more than"));
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
