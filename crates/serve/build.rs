//! Packs the application: it is most of what the crate carries, and text packs well.

fn main() -> std::io::Result<()> {
    ["app.js", "app.css"].into_iter().try_for_each(|name| embedded::pack(format!("assets/{name}")))
}
