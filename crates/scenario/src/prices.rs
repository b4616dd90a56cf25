//! A price list as CSV: what somebody's vendor asks, over the catalogue's prices.
//!
//! Columns: `kind` (gpu, nic, switch, cable), `name` as the catalogue has it, `usd`, and where the
//! list has them `low` and `high`. A cable's price is that of its two ends together. Without `low`
//! and `high` a price is exact. The list becomes the catalogue file that somebody could have
//! written.

use crate::problem::Problem;
use crate::source::Source;

/// Reads a list.
pub(crate) fn read(file: &Source) -> Result<Source, Problem> {
    let wrong = |line: u64, reason: &str| {
        Problem::error(format!("{}:{line}: {reason}", file.name))
            .with_help("a price list has the columns kind,name,usd and perhaps low,high")
    };
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(file.text.as_bytes());
    let headers = reader.headers().map_err(|error| wrong(1, &error.to_string()))?.clone();
    let known = ["kind", "name", "usd", "low", "high"];
    if let Some(other) = headers.iter().find(|header| !known.contains(header)) {
        return Err(wrong(1, &format!("no column is called `{other}`")));
    }
    let mut text = String::new();
    for record in reader.records() {
        let line = |error: &csv::Error| error.position().map_or(0, csv::Position::line);
        let record = record.map_err(|error| wrong(line(&error), &error.to_string()))?;
        // A record begins with the comments above it, as the library sees it.
        let line = record.position().map_or(0, |at| {
            let rest = file.text.get(at.byte() as usize..).unwrap_or_default();
            let comments = rest.lines().take_while(|line| line.starts_with('#')).count();
            at.line() + comments as u64
        });
        let field = |name: &str| {
            let at = headers.iter().position(|header| header == name)?;
            record.get(at).filter(|field| !field.is_empty())
        };
        let (kind, name) = (field("kind").unwrap_or_default(), field("name").unwrap_or_default());
        let key = match kind {
            "gpu" | "nic" | "switch" => "price_usd",
            "cable" => "ends_usd",
            other => {
                let reason = format!("`{other}` is no kind: gpu, nic, switch or cable");
                return Err(wrong(line, &reason));
            }
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(wrong(line, &format!("`{name}` is no name of the catalogue")));
        }
        let number = |column: &str| {
            let Some(word) = field(column) else { return Ok(None) };
            let price = word.replace(['$', '_'], "").parse::<f64>().ok();
            let price = price.filter(|price| (0.0..1e12).contains(price));
            let reason = || wrong(line, &format!("`{word}` is no price ({column})"));
            price.map(Some).ok_or_else(reason)
        };
        let usd = number("usd")?.ok_or_else(|| wrong(line, "there is no price (usd)"))?;
        let (low, high) = (number("low")?.unwrap_or(usd), number("high")?.unwrap_or(usd));
        if usd < low || high < usd {
            return Err(wrong(line, "the price is not between low and high"));
        }
        text += &format!(
            "{kind}.\"{name}\".{key} = {{ value = {usd:?}, low = {low:?}, high = {high:?}, \
             source = {}, trust = \"P\" }}\n",
            toml::Value::from(format!("{}:{line}", file.name))
        );
    }
    Ok(Source { text: text.into(), ..file.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_becomes_a_catalogue_and_mistakes_are_named_with_their_line() {
        let of = |text: &str| read(&Source::new("list.csv", text));
        let good =
            of("kind,name,usd,low,high\n# offers\nswitch,tomahawk-5,$38000,30000,\n").unwrap();
        assert!(
            good.text
                .starts_with("switch.\"tomahawk-5\".price_usd = { value = 38000.0, low = 30000.0")
        );
        assert!(good.text.contains("list.csv:3"), "{}", good.text);
        assert!(of("kind,name,usd\ncable,dr4-400,900\n").unwrap().text.contains("ends_usd"));
        let wrong = [
            ("kind,name,euro\n", "no column is called `euro`"),
            ("kind,name,usd\nrouter,x,1\n", "list.csv:2: `router` is no kind"),
            ("kind,name,usd\ngpu,,1\n", "is no name"),
            ("kind,name,usd\ngpu,a b,1\n", "is no name"),
            ("kind,name,usd\ngpu,x,dear\n", "`dear` is no price"),
            ("kind,name,usd\ngpu,x,-1\n", "is no price"),
            ("kind,name,usd\ngpu,x,nan\n", "is no price"),
            ("kind,name,usd\ngpu,x,\n", "there is no price"),
            ("kind,name,usd,low\ngpu,x,1,2\n", "not between"),
            ("kind,name,usd\ngpu,x\n", "list.csv:2"),
        ];
        for (text, reason) in wrong {
            let problem = of(text).unwrap_err().to_string();
            assert!(problem.contains(reason), "{text}: {problem}");
        }
    }
}
