//! How packets leave a rank and reach it: UDP sockets, or datagrams of a local switch.
//!
//! UDP sockets are never connected and forbid fragments (`IP_PMTUDISC_DO`): then IPv4's
//! identification is 0 and the ICRC is known beforehand. Over IPv6 automatic flow labels are off,
//! or Linux's routers would hash a random one. Queue pairs with the same source port share a
//! socket.
//!
//! Segmentation offload ([`RankPlan::offload`]) hands the kernel up to 64 packets as one. It is for
//! IPv6 alone: over IPv4 the kernel numbers the segments in the identification, which the ICRC
//! covers and a receiving socket is not shown.
//!
//! A switch in user space gets whole IP packets in datagrams of a Unix socket; where it has no
//! room, the sender waits. Transfers inside a server go to the other rank's socket directly.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use fabric::hash::ROCE_V2_PORT;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg,
    sendmmsg, sendmsg, setsockopt, sockopt,
};
use nix::{setsockopt_impl, sockopt_impl};
use roce::Envelope;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    set_ipv6_v6only,
};

use crate::plan::{RankPlan, WirePlan};

/// Packets in one system call.
const BATCH: usize = 32;

/// The largest packet: 4,096 bytes of payload and every header.
const LARGEST: usize = 4096 + 256;

/// What the kernel takes as one: so many packets (`UDP_MAX_SEGMENTS`), and so many bytes.
const MOST_SEGMENTS: usize = 64;
const MOST_BYTES: usize = 65_000;

/// What a receiving socket is given room for, where that is allowed.
const ROOM: usize = 8 << 20;

/// `IPV6_AUTOFLOWLABEL` of Linux's `include/uapi/linux/in6.h`.
const IPV6_AUTOFLOWLABEL: libc::c_int = 70;

sockopt_impl!(
    /// Whether the kernel makes up flow labels.
    AutoFlowLabel,
    SetOnly,
    libc::IPPROTO_IPV6,
    IPV6_AUTOFLOWLABEL,
    bool
);

/// A packet that waits for its socket.
#[derive(Debug)]
struct Waiting {
    to: SocketAddr,
    class: u8,
    bytes: Vec<u8>,
}

/// Sockets for sending, by source port.
#[derive(Debug)]
struct Outlet {
    socket: UdpSocket,
    waiting: VecDeque<Waiting>,
}

/// The wire of a rank.
#[derive(Debug)]
pub struct Wire {
    address: IpAddr,
    inlet: Option<UdpSocket>,
    outlets: BTreeMap<u16, Outlet>,
    local: UnixDatagram,
    /// Whole IP packets that wait, and where they go.
    local_waiting: VecDeque<(UnixAddress, Vec<u8>)>,
    switch: Option<UnixAddress>,
    run: String,
    offload: bool,
    buffers: Vec<Vec<u8>>,
}

/// The abstract name of a rank's socket in a run.
pub fn rank_name(run: &str, rank: u32) -> String {
    format!("{run}/{rank}")
}

/// An abstract address: it vanishes with its socket.
pub fn abstract_address(name: &str) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(name)
}

/// An unconnected socket that forbids fragments.
pub(crate) fn socket(address: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, port))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv4() {
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
    } else {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
        setsockopt(&socket, AutoFlowLabel, &false)?;
        // It is an error only to change this after binding, and nobody needs it then.
        let _ = set_ipv6_v6only(&socket, true);
    }
    Ok(socket)
}

/// The socket that a rank receives by: it is told DSCP and marks, and has room.
pub(crate) fn inlet(address: IpAddr) -> io::Result<UdpSocket> {
    let inlet = socket(address, ROCE_V2_PORT)?;
    match address {
        IpAddr::V4(_) => setsockopt(&inlet, sockopt::IpRecvTos, &true)?,
        IpAddr::V6(_) => setsockopt(&inlet, sockopt::Ipv6RecvTClass, &true)?,
    }
    if setsockopt(&inlet, sockopt::RcvBufForce, &ROOM).is_err() {
        setsockopt(&inlet, sockopt::RcvBuf, &ROOM)?;
    }
    Ok(inlet)
}

impl Wire {
    /// Opens all sockets of a rank.
    pub fn open(plan: &RankPlan, run: &str) -> io::Result<Self> {
        let local = UnixDatagram::bind_addr(&abstract_address(&rank_name(run, plan.rank))?)?;
        local.set_nonblocking(true)?;
        let switch = match &plan.wire {
            WirePlan::Udp => None,
            WirePlan::Switch(name) => Some(abstract_address(name)?),
        };
        let mut wire = Self {
            address: plan.address,
            inlet: None,
            outlets: BTreeMap::new(),
            local,
            local_waiting: VecDeque::new(),
            switch,
            run: run.to_owned(),
            offload: plan.offload,
            buffers: vec![vec![0; if plan.offload { 1 << 16 } else { LARGEST }]; BATCH],
        };
        if plan.wire == WirePlan::Udp {
            let inlet = inlet(plan.address)?;
            if plan.offload {
                setsockopt(&inlet, sockopt::UdpGroSegment, &true)?;
            }
            wire.inlet = Some(inlet);
            for pair in plan.pairs.iter().filter(|pair| !pair.inside) {
                if let Entry::Vacant(place) = wire.outlets.entry(pair.src_port) {
                    let socket = socket(plan.address, pair.src_port)?;
                    place.insert(Outlet { socket, waiting: VecDeque::new() });
                }
            }
        }
        Ok(wire)
    }

    /// Packets that wait for their sockets.
    pub fn waiting(&self) -> usize {
        let outlets = self.outlets.values().map(|outlet| outlet.waiting.len());
        outlets.sum::<usize>() + self.local_waiting.len()
    }

    /// Takes a packet; it leaves with the next [`flush`](Self::flush). `inside` names the rank that
    /// gets it without a network.
    pub fn send(
        &mut self,
        envelope: &Envelope,
        bytes: Vec<u8>,
        inside: Option<u32>,
    ) -> io::Result<()> {
        let to = match (inside, &self.switch) {
            (Some(rank), _) => abstract_address(&rank_name(&self.run, rank))?,
            (None, Some(switch)) => switch.clone(),
            (None, None) => {
                let outlet = self.outlets.get_mut(&envelope.src_port);
                let outlet = outlet.ok_or_else(|| io::Error::other("a port that is not open"))?;
                let to = SocketAddr::new(envelope.dst, ROCE_V2_PORT);
                outlet.waiting.push_back(Waiting { to, class: envelope.class, bytes });
                return Ok(());
            }
        };
        self.local_waiting.push_back((to, bytes));
        Ok(())
    }

    /// Hands over what the sockets take. Returns whether something is left.
    pub fn flush(&mut self) -> io::Result<bool> {
        let mut left = false;
        for outlet in self.outlets.values_mut() {
            while !outlet.waiting.is_empty() {
                let sent = match self.offload {
                    true => send_segments(outlet)?,
                    false => send_batch(outlet)?,
                };
                outlet.waiting.drain(..sent);
                if sent == 0 {
                    left = true;
                    break;
                }
            }
        }
        while let Some((to, bytes)) = self.local_waiting.front() {
            match self.local.send_to_addr(bytes, to) {
                Ok(_) => {
                    self.local_waiting.pop_front();
                }
                Err(error) if would_block(&error) => return Ok(true),
                // Whoever is gone needs nothing more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.local_waiting.pop_front();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(left)
    }

    /// Gives every packet that has arrived to `take`: from UDP what that carried, with what is
    /// known of its surroundings; from a switch the whole IP packet and no envelope.
    pub fn receive(&mut self, mut take: impl FnMut(Option<Envelope>, &[u8])) -> io::Result<()> {
        if let Some(inlet) = &self.inlet {
            receive_batch(inlet, self.address, &mut self.buffers, &mut take)?;
        }
        for _ in 0..4 * BATCH {
            match self.local.recv(&mut self.buffers[0]) {
                Ok(length) => take(None, &self.buffers[0][..length]),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What to wait for: sockets that receive, and those that wait to send.
    pub fn sockets(&self) -> (Vec<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        let inlets = self.inlet.iter().map(AsFd::as_fd).chain([self.local.as_fd()]);
        let full = self.outlets.values().filter(|outlet| !outlet.waiting.is_empty());
        let full: Vec<BorrowedFd<'_>> = full.map(|outlet| outlet.socket.as_fd()).collect();
        (inlets.collect(), full)
    }

    /// Whether packets wait for another Unix socket, which nobody can be woken for.
    pub fn waits_for_room(&self) -> bool {
        !self.local_waiting.is_empty()
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Sends packets from the front that have the same class; how many the socket took.
fn send_batch(outlet: &Outlet) -> io::Result<usize> {
    let class = outlet.waiting.front().map_or(0, |first| first.class);
    let batch: Vec<&Waiting> =
        outlet.waiting.iter().take(BATCH).take_while(|one| one.class == class).collect();
    let slices: Vec<[IoSlice<'_>; 1]> =
        batch.iter().map(|one| [IoSlice::new(&one.bytes)]).collect();
    let to: Vec<Option<SockaddrStorage>> = batch.iter().map(|one| Some(one.to.into())).collect();
    let whole = i32::from(class);
    let is_ipv4 = batch.first().is_none_or(|first| first.to.is_ipv4());
    let controls = match is_ipv4 {
        true => [ControlMessage::Ipv4Tos(&class)],
        false => [ControlMessage::Ipv6TClass(&whole)],
    };
    let space = nix::cmsg_space!(i32);
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(batch.len(), Some(space));
    let socket = outlet.socket.as_raw_fd();
    let sent = sendmmsg(socket, &mut headers, &slices, &to, controls, MsgFlags::empty());
    taken(sent.map(Iterator::count))
}

/// How many packets a socket took.
fn taken(sent: Result<usize, Errno>) -> io::Result<usize> {
    match sent {
        Ok(count) => Ok(count),
        Err(Errno::EAGAIN | Errno::ENOBUFS) => Ok(0),
        // The other end has closed its socket, or not opened it yet: as if lost.
        Err(Errno::ECONNREFUSED) => Ok(1),
        Err(error) => Err(error.into()),
    }
}

/// Packets from the front that the kernel can cut out of one: they go to the same place in the same
/// class, and none but the last is shorter.
fn segments(waiting: &VecDeque<Waiting>) -> usize {
    let Some(first) = waiting.front() else { return 0 };
    let size = first.bytes.len();
    let (mut count, mut bytes, mut may_follow) = (0, 0, true);
    for one in waiting.iter().take(MOST_SEGMENTS) {
        let length = one.bytes.len();
        let is_alike = one.to == first.to && one.class == first.class && length <= size;
        if !may_follow || !is_alike || MOST_BYTES < bytes + length {
            break;
        }
        (count, bytes, may_follow) = (count + 1, bytes + length, length == size);
    }
    count
}

/// Sends packets from the front as one that the kernel or the device cuts (`UDP_SEGMENT`).
fn send_segments(outlet: &Outlet) -> io::Result<usize> {
    let count = segments(&outlet.waiting);
    let Some(first) = outlet.waiting.front() else { return Ok(0) };
    let slices: Vec<IoSlice<'_>> =
        outlet.waiting.iter().take(count).map(|one| IoSlice::new(&one.bytes)).collect();
    let to: SockaddrStorage = first.to.into();
    let (class, size) = (i32::from(first.class), first.bytes.len() as u16);
    let controls = [ControlMessage::Ipv6TClass(&class), ControlMessage::UdpGsoSegments(&size)];
    let controls = if 1 < count { &controls[..] } else { &controls[..1] };
    let socket = outlet.socket.as_raw_fd();
    match sendmsg(socket, &slices, controls, MsgFlags::empty(), Some(&to)) {
        Err(Errno::EIO) => Err(io::Error::other(
            "this device cannot compute checksums, so the kernel cuts no packets: leave out \
             --offload",
        )),
        sent => taken(sent.map(|_| count)),
    }
}

/// The address and port of a socket address.
pub(crate) fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    let v6 = || address.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port()));
    v4.or_else(v6)
}

/// Receives one batch.
fn receive_batch(
    inlet: &UdpSocket,
    address: IpAddr,
    buffers: &mut [Vec<u8>],
    take: &mut impl FnMut(Option<Envelope>, &[u8]),
) -> io::Result<()> {
    // What surrounds each, its length, and how long its packets are.
    let mut found: Vec<(Envelope, usize, usize)> = Vec::with_capacity(BATCH);
    {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let space = nix::cmsg_space!(u8, i32, i32);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(slices.len(), Some(space));
        let flags = MsgFlags::MSG_DONTWAIT;
        let received = match recvmmsg(inlet.as_raw_fd(), &mut headers, &mut slices, flags, None) {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::ECONNREFUSED) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for message in received {
            let Some(from) = message.address.as_ref().and_then(socket_address) else { continue };
            let mut envelope = Envelope::new(from.ip(), address, from.port());
            let mut each = message.bytes;
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::Ipv4Tos(class) => envelope.class = class,
                    ControlMessageOwned::Ipv6TClass(class) => envelope.class = class as u8,
                    ControlMessageOwned::UdpGroSegments(size) => each = size as usize,
                    _ => {}
                }
            }
            found.push((envelope, message.bytes, each.max(1)));
        }
    }
    for ((envelope, length, each), buffer) in found.iter().zip(buffers.iter()) {
        for packet in buffer[..*length].chunks(*each) {
            take(Some(*envelope), packet);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(lengths: &[usize], class: u8) -> VecDeque<Waiting> {
        let to = SocketAddr::new("fd00::1".parse().unwrap(), ROCE_V2_PORT);
        let one = |length: &usize| Waiting { to, class, bytes: vec![0; *length] };
        lengths.iter().map(one).collect()
    }

    /// Only the last of what is cut may be shorter, none longer, and all fit into one packet.
    #[test]
    fn segments_are_alike() {
        for (lengths, count) in [
            (&[][..], 0),
            (&[100], 1),
            (&[100, 100, 100], 3),
            (&[100, 100, 60, 100], 3),
            (&[100, 101], 1),
            (&[4112; 40], MOST_BYTES / 4112),
            (&[20; 100], MOST_SEGMENTS),
        ] {
            assert_eq!(segments(&waiting(lengths, 1)), count, "{lengths:?}");
        }
        let mut mixed = waiting(&[100, 100], 1);
        mixed.extend(waiting(&[100], 2));
        assert_eq!(segments(&mixed), 2);
    }
}
