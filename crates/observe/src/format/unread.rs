//! Files that people give to `observe` and that it does not read: what they are, by their content.

use memchr::memmem::find;

/// What a text is that no reader knows, if its first bytes tell.
pub fn kind(head: &str) -> Option<&'static str> {
    let has = |part: &str| find(head.as_bytes(), part.as_bytes()).is_some();
    let begins = head.trim_start().trim_start_matches('\u{feff}');
    Some(match () {
        () if begins.starts_with("#!") && has("#SBATCH") => "a Slurm job script",
        () if begins.starts_with("#!") => "a script",
        () if has("kueue.x-k8s.io") => "a Kueue manifest",
        () if has("apiVersion:") && has("kind:") => "a Kubernetes manifest",
        () if has("\"BUFFER_PG\"") || has("\"BUFFER_POOL\"") => "a SONiC buffer configuration",
        () if has("\"PORT_QOS_MAP\"") || has("\"WRED_PROFILE\"") || has("\"DSCP_TO_TC_MAP\"") => {
            "a SONiC QoS configuration"
        }
        () if has("\"DEVICE_METADATA\"") => "a SONiC configuration",
        () if begins.starts_with("Profile:") && has("ecn") => {
            "SONiC's show ecn (a configuration, no counters)"
        }
        () if has("\"chunk_bytes\"") && has("\"dest_rank\"") => "a summary of an incast run",
        () if has("\"compounded_links\"") => "a NetQ topology graph",
        () if has("part number") && has("PSID") => "ibswinfo output (what a switch is made of)",
        () if begins.lines().next().is_some_and(|line| {
            line.contains(',') && line.to_ascii_lowercase().contains("busbw")
        }) =>
        {
            "a summary of nccl-tests as CSV"
        }
        () if begins.starts_with("VM_hostname") => "a map from hosts to GUIDs",
        () if has("zero_optimization") => "a DeepSpeed configuration",
        () if has("<system version=") => "an NCCL topology (a scenario reads it)",
        () if has("\"num_hidden_layers\"") => "a model's config.json (a scenario reads it)",
        () if begins.starts_with('{') || begins.starts_with('[') => "JSON of an unknown kind",
        () if begins.starts_with("<?xml") || begins.starts_with('<') => "XML of an unknown kind",
        () => return None,
    })
}

/// What data are that are no text, if their first bytes tell.
pub fn binary_kind(head: &[u8]) -> Option<&'static str> {
    let has = |part: &[u8]| find(head, part).is_some();
    Some(match () {
        () if head.starts_with(b"SQLite format 3\0") => "an SQLite database",
        () if head.starts_with(b"TRSNIFF data") => "a Network General Sniffer capture",
        () if head.starts_with(&[0xd4, 0xcd, 0xb2, 0xa1]) => "a pcap capture of an old variant",
        () if head.starts_with(&[0, 5, 0x16, 7]) => "an AppleDouble file of macOS",
        () if head.starts_with(b"PAR1") => "a Parquet table",
        () if head.starts_with(b"NSYS") || has(b"QDSTRM") => "an Nsight Systems report",
        () if head.starts_with(b"PK\x03\x04") => "a ZIP archive",
        () if head.starts_with(b"\x7fELF") => "a program",
        () => return None,
    })
}
