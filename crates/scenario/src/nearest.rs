//! The known word that somebody probably meant.

use std::cmp::Reverse;

/// The nearest of the known words, if one is near enough to be worth proposing.
///
/// A word is near if few letters differ (a third of them, two at least for words of four letters
/// and more), or if one is the beginning of the other, which is nearer than any slip if it is the
/// known word's, or that of a product that is known without its form (`b200-sxm`). Of words as near
/// as each other it is the shortest, and of those the last by the alphabet (`h100-sxm` before
/// `h100-nvl`). Case and the choice between `-` and `_` do not count.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    let length = word.chars().count();
    if 64 < length {
        return None;
    }
    // In half letters.
    let allowed = 2 * if length < 4 { 1 } else { (length / 3).max(2) };
    let near = known.into_iter().filter_map(|candidate| {
        let other = plain(candidate);
        let mut distance = 2 * strsim::damerau_levenshtein(&word, &other);
        let is_begun = 3 <= length && other.starts_with(&word);
        if is_begun || (is_product(&other) && word.starts_with(&format!("{other}_"))) {
            distance = distance.min(1);
        } else if 3 <= length && word.starts_with(&other) {
            distance = distance.min(allowed);
        }
        let near = distance <= allowed.min(2 * length.saturating_sub(1));
        near.then_some((distance, candidate.len(), Reverse(candidate)))
    });
    near.min().map(|(_, _, Reverse(candidate))| candidate)
}

/// Whether it is one word with a number in it.
fn is_product(word: &str) -> bool {
    !word.contains('_') && word.contains(|c: char| c.is_ascii_digit())
}

fn plain(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_find_their_word_and_strangers_do_not() {
        let known = [
            "gpus",
            "gpus_per_node",
            "nic",
            "nics_per_node",
            "rail-optimized",
            "b200",
            "h200-nvl4",
            "h200-sxm",
        ];
        let cases = [
            ("gpu", Some("gpus")),
            ("gpus_pernode", Some("gpus_per_node")),
            ("gpu_per_node", Some("gpus_per_node")),
            ("rail", Some("rail-optimized")),
            ("nci", Some("nic")),
            ("rail_optimised", Some("rail-optimized")),
            ("RAIL-OPTIMIZED", Some("rail-optimized")),
            ("H200", Some("h200-sxm")),
            ("b200-sxm", Some("b200")),
            ("h200-sxn", Some("h200-sxm")),
            ("temperature", None),
            ("", None),
        ];
        for (word, expected) in cases {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
