//! Small pieces of text: numbers after words.

/// What stands directly behind the first `key`.
pub fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.find(key).map(|at| &text[at + key.len()..])
}

/// The word behind the first `key`, up to a blank, comma or end.
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
