//! Files that people give to `observe` and that it does not read: what they are, by their content.

use memchr::memmem::find;

/// What a text is that no reader knows, if its first bytes tell.
pub fn kind(head: &str) -> Option<&'static str> {
    let has = |part: &str| find(head.as_bytes(), part.as_bytes()).is_some();
    let begins = head.trim_start().trim_start_matches('\u{feff}');
    Some(match () {
        () if begins.starts_with("#!") && has("#SBATCH") => "a Slurm job script",
        () if begins.starts_with("#!") => "a script",
        () if has("SwitchName=") || has("BlockName=") => {
            "a Slurm topology.conf (a scenario reads it: fabric.file)"
        }
        () if has("kueue.x-k8s.io") => "a Kueue manifest",
        () if has("apiVersion:") && has("kind:") => "a Kubernetes manifest",
        () if has("\"BUFFER_PG\"") || has("\"BUFFER_POOL\"") => "a SONiC buffer configuration",
        () if has("\"PORT_QOS_MAP\"") || has("\"WRED_PROFILE\"") || has("\"DSCP_TO_TC_MAP\"") => {
            "a SONiC QoS configuration"
        }
        () if has("\"DEVICE_METADATA\"") => "a SONiC configuration",
        () if has("zero_optimization") => "a DeepSpeed configuration",
        () if has("switchguid=") || has("caguid=") => {
            "ibnetdiscover output (a scenario reads it: fabric.file)"
        }
        () if has("<system version=") => "an NCCL topology (a scenario reads it)",
        () if has("\"num_hidden_layers\"") => "a model's config.json (a scenario reads it)",
        () if begins.starts_with('{') || begins.starts_with('[') => "JSON of an unknown kind",
        () if begins.starts_with("<?xml") || begins.starts_with('<') => "XML of an unknown kind",
        () => return None,
    })
}
