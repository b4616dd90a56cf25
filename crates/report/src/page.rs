//! A self-contained HTML page: sections of text, figures, tables and charts.
//!
//! The page carries its data as JSON and draws it with Observable Plot and D3, whose minified files
//! are embedded (see `assets/LICENSES.txt`). It loads nothing: its content security policy forbids
//! every request. Each chart names its columns and shows its data as CSV on demand.

use std::sync::OnceLock;

use serde::Serialize;

use crate::chart::{Chart, Fact};
use crate::sheet::{Part, Sheet};
use crate::table::Align;

/// A whole page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// Short name, used for the files that readers download.
    pub name: String,
    /// What the page is about.
    #[serde(skip)]
    pub title: String,
    /// Lines under the title: scenario, engine, seed, version.
    #[serde(skip)]
    pub subtitle: Vec<String>,
    /// In the order in which people look.
    pub sections: Vec<Section>,
    /// The last line: how this page was made.
    #[serde(skip)]
    pub footer: String,
}

/// A heading with what belongs to it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// The heading; the first section may stand under the page's own.
    pub title: String,
    /// Paragraphs, figures, tables, charts.
    pub blocks: Vec<Block>,
}

/// Something to look at.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Block {
    /// A paragraph.
    Text {
        /// The paragraph.
        text: String,
    },
    /// A few numbers, large.
    Facts {
        /// The numbers.
        items: Vec<Fact>,
    },
    /// Rows and columns.
    Table {
        /// Names of the columns.
        columns: Vec<String>,
        /// The rows.
        rows: Vec<Vec<String>>,
        /// To which side each column leans.
        sides: Vec<Align>,
    },
    /// A paragraph that should not be missed.
    Note {
        /// The paragraph.
        text: String,
    },
    /// Text whose lines stay as they are.
    Verbatim {
        /// The lines.
        text: String,
    },
    /// A chart.
    Chart(Box<Chart>),
}

impl Page {
    /// The page that shows a sheet: its first heading is the page's, each other begins a section.
    pub fn of(sheet: &Sheet) -> Self {
        let mut page = Self::default();
        for part in sheet.all_parts() {
            if let Part::Heading(title) = part {
                if page.title.is_empty() && page.sections.is_empty() {
                    page.title.clone_from(title);
                } else {
                    page.sections.push(Section { title: title.clone(), ..Section::default() });
                }
                continue;
            }
            if page.sections.is_empty() {
                page.sections.push(Section::default());
            }
            let section = page.sections.last_mut().expect("one was pushed");
            section.blocks.extend(block(part));
        }
        page
    }

    /// The whole page as one file.
    pub fn html(&self) -> String {
        let data = serde_json::to_string(self).expect("plain data serialises");
        // Inside a script element only `</` and `<!--` could end or confuse it.
        let data = data.replace('<', "\\u003c");
        let subtitle: Vec<String> =
            self.subtitle.iter().map(|line| format!("<p>{}</p>", escape(line))).collect();
        let scripts = scripts();
        let parts = [
            ("{{title}}", escape(&self.title)),
            ("{{subtitle}}", subtitle.concat()),
            ("{{footer}}", escape(&self.footer)),
            ("{{style}}", include_str!("../assets/page.css").to_owned()),
            ("{{d3}}", scripts[0].clone()),
            ("{{plot}}", scripts[1].clone()),
            ("{{script}}", scripts[2].clone()),
            ("{{data}}", data),
            ("{{scripts}}", allowed_scripts().to_owned()),
        ];
        fill(include_str!("../assets/page.html"), &parts)
    }
}

/// A page's scripts: two libraries and its own.
fn scripts() -> &'static [String; 3] {
    static SCRIPTS: OnceLock<[String; 3]> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        [embedded::text!("d3.min.js"), embedded::text!("plot.min.js"), embedded::text!("page.js")]
    })
}

/// The scripts that a page may run, as its policy names them: its own three and no others.
fn allowed_scripts() -> &'static str {
    static ALLOWED: OnceLock<String> = OnceLock::new();
    ALLOWED
        .get_or_init(|| scripts().each_ref().map(|script| crate::digest::source(script)).join(" "))
}

fn block(part: &Part) -> Option<Block> {
    Some(match part {
        Part::Heading(_) | Part::OnPage(_) | Part::Hint(_) => return None,
        Part::Text(text) => Block::Text { text: text.clone() },
        Part::Note(text) => Block::Note { text: text.clone() },
        Part::Verbatim(lines) => Block::Verbatim { text: lines.clone() },
        Part::Facts(items) => Block::Facts { items: items.clone() },
        Part::Chart(chart) => {
            Block::Chart(Box::new(Chart { data: Some(chart.table()), ..Chart::clone(chart) }))
        }
        Part::Table(table) => {
            let table = table.filled();
            Block::Table {
                columns: table.columns.iter().map(|(name, _)| name.clone()).collect(),
                sides: table.columns.iter().map(|(_, side)| *side).collect(),
                rows: table.rows,
            }
        }
    })
}

/// Replaces each place holder once, without looking into what was put in.
fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut out =
        String::with_capacity(template.len() + parts.iter().map(|p| p.1.len()).sum::<usize>());
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        out.push_str(&rest[..start]);
        let end = start + rest[start..].find("}}").expect("place holders are closed") + 2;
        let (_, text) = parts
            .iter()
            .find(|(holder, _)| *holder == &rest[start..end])
            .expect("every place holder of the template is filled");
        out.push_str(text);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_escapes_what_it_carries_and_loads_nothing() {
        let section = Section {
            title: "</script><script>alert(1)</script>".to_owned(),
            blocks: vec![Block::Note { text: "{{plot}}".to_owned() }],
        };
        let page = Page { title: "a < b".to_owned(), sections: vec![section], ..Page::default() };
        let html = page.html();
        assert!(html.contains("<h1>a &lt; b</h1>"));
        assert!(!html.contains("<script>alert(1)"));
        assert!(html.contains("default-src 'none'"));
        // Every script that it carries is named by its digest; nothing else may run.
        let parts: Vec<&str> = html.split("<script>").skip(1).collect();
        let scripts: Vec<&str> =
            parts.iter().map(|p| p.split("</script>").next().unwrap()).collect();
        assert_eq!(scripts.len(), 3);
        assert!(scripts.iter().all(|script| html.contains(&crate::digest::source(script))));
        let policy = html.split("script-src").nth(1).unwrap().split(';').next().unwrap();
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
        assert!(html.len() < 700_000, "an empty page has {} bytes", html.len());
    }
}
