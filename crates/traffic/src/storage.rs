//! Traffic to and from storage servers: checkpoints, what is read back of them, and data.
//!
//! Every NIC of a client has an equal part of a checkpoint and cuts it over `stripes` NICs of
//! storage servers, which are taken in turn. All begin at once, so that what one storage server
//! takes in is an incast. A checkpoint is what a model's parameters come to with their optimizer
//! state (`reliability.checkpoint.bytes_per_parameter`); data is `bytes` for each NIC.

use units::Bytes;

use crate::collective::part;
use crate::pattern::{Flow, Load, MAX_FLOWS, Pattern, Surroundings, Unfit, messages};

/// How many NICs of clients take part.
fn hosts(load: &Load, around: &Surroundings) -> u32 {
    load.hosts.unwrap_or((around.clients.len() as u32).saturating_sub(load.first))
}

/// Whether there is storage, and so much of it.
pub(crate) fn check(load: &Load, around: &Surroundings) -> Result<(), Unfit> {
    let (hosts, stripes) = (hosts(load, around), load.stripes);
    let left = (around.clients.len() as u32).saturating_sub(load.first);
    let servers = around.storage.len() as u32;
    if servers == 0 {
        let reason = "there are no storage servers; `cluster.storage.servers` above 0 would";
        return Err(("pattern", reason.to_owned()));
    }
    if hosts == 0 || left < hosts {
        return Err(("hosts", format!("{hosts} hosts, but there are {left}; 1 to {left} would")));
    }
    if !(1..=servers).contains(&stripes) {
        let reason =
            format!("{stripes} of {servers} NICs of storage servers; 1 to {servers} would");
        return Err(("stripes", reason));
    }
    let (key, least) = match load.pattern {
        Pattern::DatasetRead => ("bytes", load.bytes),
        _ => ("model", Bytes::new(around.checkpoint.get() / u64::from(hosts))),
    };
    if least.get() < u64::from(stripes) {
        return Err((key, format!("leaves {least} for each NIC, which has {stripes} stripes")));
    }
    let flows = u64::from(hosts) * u64::from(stripes);
    if MAX_FLOWS < flows {
        return Err(("stripes", format!("{flows} flows are more than {MAX_FLOWS}")));
    }
    messages(load, flows)
}

/// The flows of a load that fits.
pub(crate) fn flows(load: &Load, around: &Surroundings) -> Vec<Flow> {
    let Load { messages, stripes, start, .. } = *load;
    let hosts = hosts(load, around);
    let servers = around.storage.len() as u64;
    let mut flows = Vec::new();
    for host in 0..hosts {
        let client = around.clients.start + load.first + host;
        let whole = match load.pattern {
            Pattern::DatasetRead => load.bytes.get(),
            _ => part(around.checkpoint.get(), hosts.into(), host.into()),
        };
        for stripe in 0..stripes {
            let turn = u64::from(host) * u64::from(stripes) + u64::from(stripe);
            let server = around.storage.start + (turn % servers) as u32;
            let bytes = Bytes::new(part(whole, stripes.into(), stripe.into()));
            let (src, dst) = match load.pattern {
                Pattern::Checkpoint => (client, server),
                _ => (server, client),
            };
            flows.push(Flow { src, dst, bytes, start, messages });
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        let checkpoint = Bytes::new(1_000_003);
        Surroundings { clients: 16..32, storage: 32..36, checkpoint, ..Surroundings::default() }
    }

    fn load(pattern: Pattern, stripes: u32) -> Load {
        Load { pattern, stripes, ..Load::default() }
    }

    /// Oracle: a checkpoint is written once, and read back the other way; every server gets as
    /// much as the others.
    #[test]
    fn a_checkpoint_is_written_once_and_evenly() {
        for stripes in [1, 2, 4] {
            let write = load(Pattern::Checkpoint, stripes);
            assert_eq!(check(&write, &around()), Ok(()));
            let flows = flows(&write, &around());
            assert_eq!(flows.len() as u32, 16 * stripes);
            assert_eq!(flows.iter().map(|flow| flow.bytes.get()).sum::<u64>(), 1_000_003);
            for server in 32..36 {
                let own = flows.iter().filter(|flow| flow.dst == server);
                let got: u64 = own.map(|flow| flow.bytes.get()).sum();
                assert!(got.abs_diff(250_000) < 20, "{got}");
            }
            let back = super::flows(&load(Pattern::Restore, stripes), &around());
            let reversed = flows.iter().map(|flow| (flow.dst, flow.src, flow.bytes));
            assert!(back.iter().map(|flow| (flow.src, flow.dst, flow.bytes)).eq(reversed));
        }
    }

    /// Oracle: everybody reads its own bytes.
    #[test]
    fn data_is_read_by_everybody() {
        let read =
            Load { bytes: Bytes::new(1_000), hosts: Some(4), ..load(Pattern::DatasetRead, 2) };
        let flows = flows(&read, &around());
        assert_eq!(
            flows.iter().map(|flow| flow.dst).collect::<Vec<_>>(),
            [16, 16, 17, 17, 18, 18, 19, 19]
        );
        assert!(flows.iter().all(|flow| flow.bytes.get() == 500));
    }

    #[test]
    fn storage_that_does_not_fit_is_refused() {
        let key = |load: Load| check(&load, &around()).unwrap_err().0;
        assert_eq!(key(load(Pattern::Checkpoint, 5)), "stripes");
        assert_eq!(key(load(Pattern::Checkpoint, 0)), "stripes");
        assert_eq!(key(Load { hosts: Some(17), ..load(Pattern::Checkpoint, 1) }), "hosts");
        assert_eq!(key(Load { bytes: Bytes::ZERO, ..load(Pattern::DatasetRead, 1) }), "bytes");
        let nowhere = Surroundings { storage: 0..0, ..around() };
        assert_eq!(check(&load(Pattern::Restore, 1), &nowhere).unwrap_err().0, "pattern");
    }
}
