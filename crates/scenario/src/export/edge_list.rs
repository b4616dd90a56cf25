//! The cables as a table, one line each: its ends, what they are, rate, delay and length.

use fabric::{Fabric, NodeKind};

use super::{cables, name};

/// The cables of the back-end as CSV.
pub fn edge_list(fabric: &Fabric) -> String {
    let mut text = String::from("a,a_kind,a_model,b,b_kind,b_model,rate,delay,length\n");
    for cable in cables(fabric) {
        let link = fabric.links()[cable];
        for end in [link.from, link.to] {
            let node = fabric.nodes()[end];
            let (kind, model) = match node.kind {
                NodeKind::Switch => {
                    ("switch", fabric.tiers()[usize::from(node.tier)].model.as_str())
                }
                _ => ("nic", ""),
            };
            text.push_str(&quoted(&name(fabric, end)));
            text.push_str(&format!(",{kind},{},", quoted(model)));
        }
        let class = fabric.class(cable);
        text.push_str(&format!("{},{},{}\n", class.rate, class.delay, class.length));
    }
    text
}

/// A field of a CSV file, in quotes where it needs them (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r', '#']) || field.trim() != field {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
