//! Packs the scripts of a page: they are most of what the crate carries, and text packs well.

fn main() -> std::io::Result<()> {
    ["d3.min.js", "plot.min.js", "page.js"]
        .into_iter()
        .try_for_each(|name| embedded::pack(format!("assets/{name}")))
}
