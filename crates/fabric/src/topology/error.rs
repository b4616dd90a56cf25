//! What is wrong with a setting: where, why, and what to write instead.

use std::cmp::Reverse;
use std::fmt;

/// One mistake in the settings of a fabric.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    /// The key, from the top of the scenario: `fabric.oversubscription`.
    pub path: String,
    /// What is wrong with it, in words.
    pub reason: String,
    /// What would have worked, where there is something to suggest.
    pub suggestion: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " (try {suggestion})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Mistakes as they are found, so that all of them are told at once.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<ConfigError>);

impl Errors {
    pub(crate) fn push(&mut self, path: &str, reason: String, suggestion: &str) {
        let suggestion = (!suggestion.is_empty()).then(|| suggestion.to_owned());
        let error = ConfigError { path: path.to_owned(), reason, suggestion };
        if !self.0.contains(&error) {
            self.0.push(error);
        }
    }

    /// A name that nothing has; the nearest known one is suggested.
    pub(crate) fn unknown<'a>(
        &mut self,
        path: &str,
        name: &str,
        known: impl Iterator<Item = &'a String>,
    ) {
        let known: Vec<&str> = known.map(String::as_str).collect();
        let suggestion = nearest(name, &known).unwrap_or_default();
        self.push(path, format!("there is no `{name}` in the hardware catalogue"), suggestion);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `value` if nothing was wrong.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Vec<ConfigError>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }

    pub(crate) fn into_vec(self) -> Vec<ConfigError> {
        self.0
    }

    pub(crate) fn append(&mut self, mut others: Vec<ConfigError>) {
        self.0.append(&mut others);
    }
}

/// The known name that takes the fewest edits, if it is near enough to be meant. Of longer ones the
/// shortest, and of these the last by the alphabet (`h100-sxm` before `h100-nvl`).
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let longer = known.iter().filter(|other| 3 <= name.len() && other.starts_with(name));
    if let Some(longer) = longer.min_by_key(|other| (other.len(), Reverse(**other))) {
        return Some(longer);
    }
    // A product that is known without its form: `b200-sxm`.
    let is_product = |other: &&str| {
        let rest = name.to_lowercase().strip_prefix(*other).map(str::to_owned);
        other.contains(|c: char| c.is_ascii_digit()) && rest.is_some_and(|it| it.starts_with('-'))
    };
    if let Some(product) = known.iter().copied().filter(is_product).max_by_key(|it| it.len()) {
        return Some(product);
    }
    let scored = known.iter().map(|other| (edits(name, other), *other));
    let (distance, best) = scored.min()?;
    (distance <= name.chars().count().max(3) / 2).then_some(best)
}

/// Levenshtein's distance, without regard to case.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_nothing_far_fetched() {
        let known = ["connectx-6", "connectx-7", "thor2"];
        assert_eq!(nearest("conectx-7", &known), Some("connectx-7"));
        assert_eq!(nearest("Thor-2", &known), Some("thor2"));
        assert_eq!(nearest("connectx", &known), Some("connectx-7"));
        assert_eq!(nearest("h100", &["h100-nvl", "h100-pcie", "h100-sxm"]), Some("h100-sxm"));
        assert_eq!(nearest("pollara", &known), None);
        assert_eq!(nearest("B200-sxm", &["b200", "h200-sxm"]), Some("b200"));
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
