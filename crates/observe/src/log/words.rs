//! Small pieces of text: words, and numbers after words.

/// For each byte how rare it is in logs of real clusters: 255 is the rarest.
const RARITY: [u8; 256] = {
    let common = b" 0e1n:at23Cri4c6587-soN/l9][Ip\"mdLb,.hO_uF>PvxfgAkTyEMDRGB()=Uw";
    let mut rarity = [u8::MAX; 256];
    let mut at = 0;
    while at < common.len() {
        rarity[common[at] as usize] = at as u8;
        at += 1;
    }
    rarity
};

/// Where the first `key` begins. Lines are short: to look for the rarest byte of the key and
/// compare there is several times faster than what the standard library prepares for long texts.
/// Inlined, so that the compiler knows that byte where the key is written out.
#[inline(always)]
pub fn find(text: &str, key: &str) -> Option<usize> {
    let (text, key) = (text.as_bytes(), key.as_bytes());
    let rarest = (0..key.len()).max_by_key(|at| RARITY[usize::from(key[*at])])?;
    let mut begin = 0;
    loop {
        let at = begin + memchr::memchr(key[rarest], text.get(begin + rarest..)?)?;
        if text[at..].starts_with(key) {
            return Some(at);
        }
        begin = at + 1;
    }
}

/// Whether `key` stands anywhere.
#[inline(always)]
pub fn has(text: &str, key: &str) -> bool {
    find(text, key).is_some()
}

/// What stands before and behind the first `key`.
#[inline(always)]
pub fn split<'a>(text: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
    find(text, key).map(|at| (&text[..at], &text[at + key.len()..]))
}

/// What stands directly behind the first `key`.
#[inline(always)]
pub fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    find(text, key).map(|at| &text[at + key.len()..])
}

/// The word behind the first `key`, up to a blank, comma or end.
#[inline]
pub fn word<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let rest = after(text, key)?.trim_start();
    let end = rest.find([' ', ',', '\t', ';', ')']).unwrap_or(rest.len());
    (0 < end).then(|| &rest[..end])
}

/// The number at the beginning, as far as its digits go.
pub fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The number behind the first `key`.
#[inline]
pub fn number<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    digits(after(text, key)?.trim_start())
}

/// The number behind the first `key`, with a sign, a point or an exponent.
pub fn decimal(text: &str, key: &str) -> Option<f64> {
    let rest = after(text, key)?.trim_start();
    let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let end = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_looked_for_is_found_where_the_standard_library_finds_it(
            text in "[ab:é ]{0,40}",
            key in "[ab:é ]{1,4}",
        ) {
            prop_assert_eq!(find(&text, &key), text.find(&key));
            prop_assert_eq!(split(&text, &key), text.split_once(&key));
        }
    }
}
