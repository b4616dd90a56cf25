//! Where tokens go under expert parallelism: how many copies cross which boundary.
//!
//! A router picks `top_k` of the experts for each token, and may first restrict itself to the
//! experts of `node_limit` servers. A token is sent once to each server that has one of its
//! experts and once to each such GPU there, so what counts is the expected number of distinct
//! servers and GPUs. Experts are taken to be equally likely; a skewed load is a weight for each
//! destination.
//!
//! Source: DeepSeek-V3 (arXiv 2412.19437) section 2.1.2 for node-limited routing; the counting is
//! that of drawing without replacement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How tokens choose experts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// Routed experts in a layer.
    pub experts: u32,
    /// Experts for each token.
    pub top_k: u32,
    /// Servers that a token may go to at most; without it, any.
    pub node_limit: Option<u32>,
}

impl Default for Routing {
    /// DeepSeek-V3's (deepseek-ai/DeepSeek-V3 inference/configs/config_671B.json).
    fn default() -> Self {
        Self { experts: 256, top_k: 8, node_limit: Some(4) }
    }
}

/// What becomes of a token on so many servers with so many GPUs each, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copies {
    /// The chance that a given server gets a copy.
    pub to_node: f64,
    /// The chance that a given GPU gets a copy.
    pub to_gpu: f64,
}

impl Routing {
    /// The chances on `nodes` servers of `per_node` GPUs.
    pub fn copies(&self, nodes: u32, per_node: u32) -> Copies {
        let chosen = self.node_limit.unwrap_or(nodes).clamp(1, nodes);
        let experts = f64::from(self.experts.max(self.top_k));
        let on_node = experts / f64::from(nodes);
        let candidates = on_node * f64::from(chosen);
        let picked = f64::from(chosen) / f64::from(nodes);
        // The chance that none of top_k drawn from the candidates is among `own`.
        let missed = |own: f64| -> f64 {
            let draws = (0..self.top_k).map(f64::from);
            draws.map(|draw| ((candidates - own - draw) / (candidates - draw)).max(0.0)).product()
        };
        Copies {
            to_node: picked * (1.0 - missed(on_node)),
            to_gpu: picked * (1.0 - missed(on_node / f64::from(per_node))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle. One expert for each token: it goes to one server and one GPU.
    #[test]
    fn one_expert_means_one_copy() {
        let routing = Routing { experts: 64, top_k: 1, node_limit: None };
        let Copies { to_node, to_gpu } = routing.copies(4, 8);
        assert!((to_node - 0.25).abs() < 1e-12 && (to_gpu - 1.0 / 32.0).abs() < 1e-12);
    }

    /// Property. A limit of servers bounds the copies that leave a server; more experts for each
    /// token never mean fewer copies.
    #[test]
    fn the_node_limit_bounds_copies() {
        for nodes in [2, 4, 8, 32] {
            let mut before = 0.0;
            for top_k in 1..=16 {
                for limit in 1..=nodes {
                    let routing = Routing { experts: 512, top_k, node_limit: Some(limit) };
                    let free = Routing { node_limit: None, ..routing };
                    let copies = f64::from(nodes) * routing.copies(nodes, 8).to_node;
                    assert!(copies <= f64::from(limit.min(top_k)) + 1e-9);
                    let unlimited = f64::from(nodes) * free.copies(nodes, 8).to_node;
                    assert!(copies <= unlimited + 1e-9);
                    if limit == nodes {
                        assert!(before <= copies);
                        before = copies;
                    }
                }
            }
        }
    }
}
