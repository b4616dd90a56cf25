//! Every statement of the five documents in their order, with what the claims behind it say.

use std::fmt::Write as _;

use serde::Deserialize;

use super::{Report, Row, page};

/// The list, as it stands in the tree.
fn text() -> String {
    embedded::text!("statements.toml")
}

/// A statement, table or recommendation of the documents.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    /// Which of the five documents.
    pub(super) document: u8,
    /// Its section, and the paragraph there.
    pub(super) paragraph: String,
    /// What is said, in short.
    pub(super) says: String,
    /// The claims that test it.
    #[serde(default)]
    pub(super) claims: Vec<String>,
    /// What answers it besides.
    pub(super) command: Option<String>,
    /// Why nothing tests it.
    pub(super) why: Option<String>,
}

#[derive(Deserialize)]
struct List {
    statement: Vec<Statement>,
}

/// All of them, in the order of the documents.
pub(super) fn all() -> Vec<Statement> {
    let list: List = toml::from_str(&text()).expect("a test reads the list");
    list.statement
}

impl Report {
    /// The page of the book that follows the documents paragraph by paragraph. Claims that were not
    /// asked for leave their verdicts out.
    pub fn statements(&self) -> String {
        let mut page = String::from(
            "# The documents, paragraph by paragraph\n\n\
             Every statement, table and recommendation of the five documents in their order: which \
             command answers it, the verdict and the figure. Made by `fatflow claims \
             --statements FILE`. 1 is the comparative analysis, 2 its summary, 3 the page on \
             RoCE, 4 InfiniBand against RoCEv2, 5 the whitepaper on networks for training; what \
             the claims are in full stands in [the claims](claims.md).\n\n\
             | document | paragraph | what is said | command | verdict | figure |\n\
             | --- | --- | --- | --- | --- | --- |\n",
        );
        for statement in all() {
            let rows: Vec<&Row> = statement
                .claims
                .iter()
                .filter_map(|id| self.claims.iter().find(|row| row.claim.id == *id))
                .collect();
            let tested = statement.claims.iter().map(|id| format!("`fatflow claims {id}`"));
            let commands: Vec<String> = statement
                .command
                .iter()
                .map(|command| format!("`{command}`"))
                .chain(tested)
                .collect();
            let verdicts: Vec<String> = rows.iter().map(|row| verdict(row)).collect();
            let figures: Vec<String> =
                rows.iter().map(|row| page::figures(row)).filter(|text| !text.is_empty()).collect();
            let told = match (&statement.why, verdicts.is_empty()) {
                (Some(why), true) => format!("cannot be tested: {why}"),
                _ => verdicts.join("; "),
            };
            let cells = [
                statement.document.to_string(),
                statement.paragraph,
                statement.says,
                commands.join(", "),
                told,
                figures.join("; "),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            writeln!(page, "| {} |", cells.join(" | ")).expect("writing to a String cannot fail");
        }
        page
    }
}

fn verdict(row: &Row) -> String {
    match &row.claim.contradicted {
        Some(source) if row.verdict == super::Verdict::ContradictedToo => {
            format!("{} ({source})", row.verdict.words())
        }
        _ => row.verdict.words().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::list;
    use super::*;

    /// No statement without a row, no row without an answer, and no claim without a statement.
    #[test]
    fn every_statement_is_answered_and_every_claim_stands_somewhere() {
        let claims: BTreeSet<String> = list::all().into_iter().map(|claim| claim.id).collect();
        let mut used: BTreeSet<String> = BTreeSet::new();
        let statements = all();
        for statement in &statements {
            let answered = !statement.claims.is_empty() || statement.why.is_some();
            assert!(answered, "{}: neither a claim nor a reason", statement.says);
            for id in &statement.claims {
                assert!(claims.contains(id), "{}: no claim {id}", statement.says);
                used.insert(id.clone());
            }
        }
        let left: Vec<&String> = claims.difference(&used).collect();
        assert!(left.is_empty(), "no statement for {left:?}");
        let order: Vec<u8> = statements.iter().map(|statement| statement.document).collect();
        assert!(order.is_sorted() && order.last() == Some(&5));
    }

    /// The page of the book has a row for each; `test.sh` compares the whole of it.
    #[test]
    fn the_page_of_the_book_has_every_statement() {
        let page = include_str!("../../../../docs/statements.md");
        for statement in all() {
            let row = format!(
                "\n| {} | {} | {} | ",
                statement.document, statement.paragraph, statement.says
            );
            assert!(page.contains(&row), "{row} is missing");
        }
    }
}
