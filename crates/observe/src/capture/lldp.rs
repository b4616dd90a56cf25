//! LLDP (IEEE 802.1AB) with DCBX: who is at the other end of a cable, and what was agreed on.

use std::net::Ipv4Addr;

use crate::observed::Neighbour;

/// The organisations whose TLVs are read: IEEE 802.1, and CEE's DCBX.
const IEEE: [u8; 3] = [0x00, 0x80, 0xc2];
const CEE: [u8; 3] = [0x00, 0x1b, 0x21];

/// Reads what follows the EtherType.
pub(super) fn read(mut bytes: &[u8]) -> Neighbour {
    let mut found = Neighbour::default();
    while let [first, second, rest @ ..] = bytes {
        let kind = first >> 1;
        let length = usize::from(first & 1) << 8 | usize::from(*second);
        let value = &rest[..rest.len().min(length)];
        match kind {
            0 => break,
            1 => found.chassis = id(value, 4, 5),
            2 => found.port = id(value, 3, 4),
            4 => found.description = text(value),
            5 => found.system = text(value),
            127 => organisation(value, &mut found),
            _ => {}
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
    found
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}

/// An identifier: its kind, and a MAC address, an IP address or a name.
fn id(value: &[u8], mac: u8, address: u8) -> String {
    match value {
        [kind, octets @ ..] if *kind == mac && octets.len() == 6 => {
            let parts: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            parts.join(":")
        }
        [kind, 1, a, b, c, d] if *kind == address => Ipv4Addr::new(*a, *b, *c, *d).to_string(),
        [_, name @ ..] => text(name),
        [] => String::new(),
    }
}

fn organisation(value: &[u8], found: &mut Neighbour) {
    let Some((owner, [subtype, rest @ ..])) = value.split_at_checked(3) else { return };
    match (owner == IEEE, *subtype, rest) {
        (true, 0x08, _) => found.has_qcn = true,
        (true, 0x09, [flags, table @ ..]) => {
            found.is_willing = Some(flags & 0x80 != 0);
            found.bandwidths = table.get(4..12).map_or(Vec::new(), <[u8]>::to_vec);
        }
        (true, 0x0b, [_, enabled, ..]) => found.pfc = Some(classes(*enabled)),
        (true, 0x0c, [_, table @ ..]) => table.chunks_exact(3).for_each(|entry| {
            let protocol = u16::from_be_bytes([entry[1], entry[2]]);
            found.applications.push((entry[0] >> 5, entry[0] & 7, protocol));
        }),
        _ if owner == CEE && *subtype == 2 => cee(rest, found),
        _ => {}
    }
}

/// CEE's DCBX: TLVs of its own inside; a feature has four bytes before its content.
fn cee(mut bytes: &[u8], found: &mut Neighbour) {
    while let [first, second, rest @ ..] = bytes {
        let length = usize::from(first & 1) << 8 | usize::from(*second);
        let value = &rest[..rest.len().min(length)];
        match (first >> 1, value) {
            (2, [_, _, flags, _, content @ ..]) => {
                found.is_willing = Some(flags & 0x40 != 0);
                found.bandwidths = content.get(4..12).map_or(Vec::new(), <[u8]>::to_vec);
            }
            (3, [_, _, _, _, enabled, ..]) => found.pfc = Some(classes(*enabled)),
            (4, [_, _, _, _, table @ ..]) => table.chunks_exact(6).for_each(|entry| {
                let protocol = u16::from_be_bytes([entry[0], entry[1]]);
                let priority = 7 - entry[5].leading_zeros().min(7) as u8;
                found.applications.push((priority, entry[2] & 3, protocol));
            }),
            _ => {}
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
}

fn classes(mask: u8) -> Vec<u8> {
    (0..8).filter(|class| mask >> class & 1 == 1).collect()
}
