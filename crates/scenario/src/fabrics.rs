//! Fabrics that are built once for all scenarios that have the same network.

use std::sync::{Arc, Mutex, OnceLock};

use fabric::Fabric;
use fabric::hardware::Catalogue;
use fabric::topology::{self, ClusterConfig, ConfigError, FabricConfig};

/// So many are kept; of a study of many networks the last ones.
const KEPT: usize = 16;

/// What a fabric was built from, and what came out.
#[derive(Debug)]
struct CachedFabric {
    cluster: ClusterConfig,
    fabric: FabricConfig,
    catalogue: Catalogue,
    built: OnceLock<Result<Arc<Fabric>, Vec<ConfigError>>>,
}

/// Fabrics by what they were built from. Threads that want the same one wait for it.
#[derive(Debug, Default)]
pub struct Fabrics {
    kept: Mutex<Vec<Arc<CachedFabric>>>,
}

impl Fabrics {
    /// The fabric of a cluster: the one that is there, or else a new one.
    pub fn get(
        &self,
        cluster: &ClusterConfig,
        fabric: &FabricConfig,
        catalogue: &Catalogue,
    ) -> Result<Arc<Fabric>, Vec<ConfigError>> {
        let entry = self.entry(cluster, fabric, catalogue);
        let build = || topology::build(cluster, fabric, catalogue).map(Arc::new);
        entry.built.get_or_init(build).clone()
    }

    fn entry(
        &self,
        cluster: &ClusterConfig,
        fabric: &FabricConfig,
        catalogue: &Catalogue,
    ) -> Arc<CachedFabric> {
        let mut kept = self.kept.lock().expect("nobody panics with it");
        let is_same = |entry: &Arc<CachedFabric>| {
            entry.cluster == *cluster && entry.fabric == *fabric && entry.catalogue == *catalogue
        };
        let entry = match kept.iter().position(is_same) {
            Some(at) => kept.remove(at),
            None => Arc::new(CachedFabric {
                cluster: cluster.clone(),
                fabric: fabric.clone(),
                catalogue: catalogue.clone(),
                built: OnceLock::new(),
            }),
        };
        kept.push(Arc::clone(&entry));
        if KEPT < kept.len() {
            kept.remove(0);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_networks_are_one_and_the_oldest_go() {
        let fabrics = Fabrics::default();
        let get = |gpus: u64| {
            let cluster = ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() };
            let (fabric, catalogue) = (FabricConfig::default(), Catalogue::default());
            fabrics.get(&cluster, &fabric, &catalogue).unwrap()
        };
        let first = get(8);
        assert!(Arc::ptr_eq(&first, &get(8)));
        assert_eq!(get(16).gpus(), 16);
        (3..3 + KEPT as u64).for_each(|servers| drop(get(8 * servers)));
        assert!(!Arc::ptr_eq(&first, &get(8)));
    }
}
