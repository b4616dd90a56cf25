//! The process that probes: packets whose time to live ends on the way, and who says so.
//!
//! Answers come back on the error queue of an ordinary UDP socket (`IP_RECVERR`): no raw socket, no
//! privilege. A pending error makes the next send fail and send nothing, so that is sent again.
//! Through a switch in user space answers are packets. A probe is known by its sequence number,
//! which the answer quotes.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use fabric::hash::ROCE_V2_PORT;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage,
    recvmsg, sendmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use roce::packet::{decode_ip, encode, encode_ip};
use roce::{Bth, Envelope, Headers, Opcode, Operation};

use crate::frame::{self, EXCEEDED, UNREACHABLE};
use crate::plan::{Probe, ProbePlan, Traced, WirePlan};
use crate::wire::{abstract_address, inlet, rank_name, socket};

/// A probing process.
#[derive(Debug)]
pub struct Prober {
    plan: ProbePlan,
    inlet: Option<UdpSocket>,
    outlets: BTreeMap<u16, UdpSocket>,
    local: UnixDatagram,
    traced: Vec<Traced>,
}

/// Which probe a sequence number is of: round and place.
fn named(psn: u32) -> [u32; 2] {
    [psn >> 12, psn & 0xfff]
}

impl Prober {
    /// Opens its sockets; one without rounds only listens.
    pub fn open(plan: ProbePlan, run: &str) -> io::Result<Self> {
        let local = UnixDatagram::bind_addr(&abstract_address(&rank_name(run, plan.rank))?)?;
        local.set_nonblocking(true)?;
        let mut prober =
            Self { inlet: None, outlets: BTreeMap::new(), local, traced: Vec::new(), plan };
        if prober.plan.wire != WirePlan::Udp {
            return Ok(prober);
        }
        if prober.plan.rounds.is_empty() {
            prober.inlet = Some(inlet(prober.plan.address)?);
        }
        for probe in prober.plan.rounds.iter().flatten() {
            if prober.outlets.contains_key(&probe.src_port) {
                continue;
            }
            let outlet = socket(prober.plan.address, probe.src_port)?;
            match prober.plan.address {
                IpAddr::V4(_) => setsockopt(&outlet, sockopt::Ipv4RecvErr, &true)?,
                IpAddr::V6(_) => setsockopt(&outlet, sockopt::Ipv6RecvErr, &true)?,
            }
            prober.outlets.insert(probe.src_port, outlet);
        }
        Ok(prober)
    }

    /// Sends all rounds, and waits for answers.
    pub fn run(&mut self) -> io::Result<Vec<Traced>> {
        for round in 0..self.plan.rounds.len() {
            for at in 0..self.plan.rounds[round].len() {
                self.send(round, at)?;
            }
            let pause = Duration::from_micros(self.plan.pause_us(round));
            if self.listen(Instant::now() + pause)? {
                return Ok(std::mem::take(&mut self.traced));
            }
        }
        self.listen(Instant::now() + Duration::from_millis(self.plan.wait_ms))?;
        Ok(std::mem::take(&mut self.traced))
    }

    fn send(&mut self, round: usize, at: usize) -> io::Result<()> {
        let probe = self.plan.rounds[round][at];
        let Probe { src_port, dst_qpn, ttl, class, payload } = probe;
        let mut envelope = Envelope::new(self.plan.address, self.plan.to, src_port);
        (envelope.class, envelope.ttl) = (class, ttl);
        let psn = (round as u32) << 12 | at as u32;
        let headers = Headers::new(Bth::new(Opcode::rc(Operation::SendOnly), dst_qpn, psn));
        let (payload, mut bytes) = (vec![0; payload.into()], Vec::new());
        if let WirePlan::Switch(name) = &self.plan.wire {
            encode_ip(&envelope, &headers, &payload, &mut bytes);
            let to = abstract_address(name)?;
            loop {
                match self.local.send_to_addr(&bytes, &to) {
                    Ok(_) => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.listen(Instant::now() + Duration::from_micros(200))?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        encode(&envelope, &headers, &payload, &mut bytes);
        let to: SockaddrStorage = SocketAddr::new(self.plan.to, ROCE_V2_PORT).into();
        let (ttl, tclass) = (i32::from(ttl), i32::from(class));
        let controls = match self.plan.to {
            IpAddr::V4(_) => [ControlMessage::Ipv4Ttl(&ttl), ControlMessage::Ipv4Tos(&class)],
            IpAddr::V6(_) => {
                [ControlMessage::Ipv6HopLimit(&ttl), ControlMessage::Ipv6TClass(&tclass)]
            }
        };
        let outlet = self.outlets[&src_port].as_raw_fd();
        for _ in 0..1000 {
            let (slices, flags) = ([IoSlice::new(&bytes)], MsgFlags::empty());
            match sendmsg(outlet, &slices, &controls, flags, Some(&to)) {
                Ok(_) => return Ok(()),
                Err(Errno::EAGAIN | Errno::ENOBUFS) => {
                    self.listen(Instant::now() + Duration::from_millis(1))?;
                }
                // An answer to an earlier probe: nothing was sent, so again.
                Err(Errno::EHOSTUNREACH | Errno::ECONNREFUSED | Errno::EPROTO) => {
                    self.read_errors(src_port)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("a probe could not be sent"))
    }

    /// Reads answers until a time; whether the controller is gone.
    fn listen(&mut self, until: Instant) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let stdin = io::stdin();
            let mut sockets = vec![PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            let all = self.outlets.values().chain(&self.inlet).map(AsFd::as_fd);
            let all = all.chain([self.local.as_fd()]);
            // Errors are always told.
            sockets.extend(all.map(|one| PollFd::new(one, PollFlags::POLLIN)));
            match ppoll(&mut sockets, Some(TimeSpec::from(left)), None) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            if sockets[0].revents().is_some_and(|events| !events.is_empty()) {
                return Ok(true);
            }
            let happened: Vec<bool> = sockets[1..]
                .iter()
                .map(|one| one.revents().is_some_and(|events| !events.is_empty()))
                .collect();
            let ports: Vec<u16> = self.outlets.keys().copied().collect();
            for (port, _) in ports.into_iter().zip(happened).filter(|(_, happened)| *happened) {
                self.read_errors(port)?;
            }
            self.read_packets()?;
        }
    }

    /// Reads the error queue of a socket.
    fn read_errors(&mut self, port: u16) -> io::Result<()> {
        let outlet = self.outlets[&port].as_raw_fd();
        let mut buffer = [0; 2048];
        loop {
            let mut space =
                nix::cmsg_space!(nix::libc::sock_extended_err, nix::libc::sockaddr_in6, i32);
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let read = recvmsg::<SockaddrStorage>(outlet, &mut slices, Some(space.as_mut()), flags);
            let message = match read {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let length = message.bytes;
            let mut answer: Option<(IpAddr, u8)> = None;
            for control in message.cmsgs().into_iter().flatten() {
                answer = match control {
                    ControlMessageOwned::Ipv4RecvErr(error, Some(from)) => {
                        Some((SockaddrIn::from(from).ip().into(), error.ee_type))
                    }
                    ControlMessageOwned::Ipv6RecvErr(error, Some(from)) => {
                        Some((SockaddrIn6::from(from).ip().into(), error.ee_type))
                    }
                    _ => answer,
                };
            }
            let Some((from, kind)) = answer else { continue };
            let psn = buffer[..length]
                .get(8..12)
                .map(|word| u32::from_be_bytes(word.try_into().expect("four bytes")) & 0xff_ffff);
            let Some(psn) = psn else { continue };
            self.note(psn, from, kind, None);
        }
    }

    /// Notes an answer of a router or host, if it is one.
    fn note(&mut self, psn: u32, from: IpAddr, kind: u8, class: Option<u8>) {
        let family = usize::from(from.is_ipv6());
        let (probe, is_end) = (named(psn), kind == UNREACHABLE[family]);
        if is_end || kind == EXCEEDED[family] {
            let known = self.plan.rounds.get(probe[0] as usize);
            let known = known.and_then(|round| round.get(probe[1] as usize));
            let class = class.or(known.map(|probe| probe.class)).unwrap_or(0);
            self.traced.push(Traced { probe, from, is_end, class, is_seen: false });
        }
    }

    /// Reads what came in: probes that arrived, answers through a switch.
    fn read_packets(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        loop {
            let length = match self.local.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let packet = &buffer[..length];
            if let Ok(decoded) = decode_ip(packet) {
                let Envelope { src: from, class, .. } = decoded.envelope;
                let probe = named(decoded.headers.bth.psn);
                self.traced.push(Traced { probe, from, is_end: true, class, is_seen: true });
            } else if let Some((from, kind, quoted)) = frame::read_answer(packet)
                && let Ok(decoded) = decode_ip(quoted)
            {
                let class = decoded.envelope.class;
                self.note(decoded.headers.bth.psn, from, kind, Some(class));
                if let Some(last) = self.traced.last_mut() {
                    last.is_seen = true;
                }
            }
        }
        let Some(inlet) = &self.inlet else { return Ok(()) };
        let inlet = inlet.as_raw_fd();
        loop {
            let mut space = nix::cmsg_space!(i32, u8);
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let read = recvmsg::<SockaddrStorage>(inlet, &mut slices, Some(space.as_mut()), flags);
            let message = match read {
                Ok(message) => message,
                Err(Errno::EAGAIN | Errno::ECONNREFUSED) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let mut class = 0;
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::Ipv4Tos(tos) => class = tos,
                    ControlMessageOwned::Ipv6TClass(tos) => class = tos as u8,
                    _ => {}
                }
            }
            let from = message.address.as_ref().and_then(crate::wire::socket_address);
            let (length, from) = (message.bytes, from.map_or(self.plan.to, |from| from.ip()));
            let Some(psn) = buffer[..length].get(8..12) else { continue };
            let psn = u32::from_be_bytes(psn.try_into().expect("four bytes")) & 0xff_ffff;
            self.traced.push(Traced {
                probe: named(psn),
                from,
                is_end: true,
                class,
                is_seen: true,
            });
        }
    }
}
