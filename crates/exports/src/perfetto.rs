//! Traces for Perfetto's viewer: groups of tracks, slices on them, arrows between slices, counters.
//!
//! A trace is a sequence of packets. Descriptors name the tracks; events begin and end slices or
//! set a counter; names are interned, so that a slice costs some thirty bytes. A flow id on two
//! slices draws an arrow between them.
//!
//! Source: Perfetto `protos/perfetto/trace/{trace_packet,track_event/*,interned_data/*}.proto` for
//! the fields and their numbers. Only what is written is declared here. Times are whole
//! nanoseconds, the format's unit.

use std::collections::BTreeMap;
use std::io::{self, Write};

use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

/// A trace is its packets: field 1, repeated.
#[derive(Clone, PartialEq, Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "12")]
    sibling_order_rank: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, tag = "6")]
    unit_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(uint32, tag = "9")]
    kind: u32,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, tag = "1")]
    name_iid: u64,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Interned>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<Interned>,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(string, tag = "2")]
    name: String,
}

const SLICE_BEGIN: u32 = 1;
const SLICE_END: u32 = 2;
const COUNTER: u32 = 4;

/// The first packet forgets all interned names; all others rely on them.
const CLEARED: u32 = 1;
const NEEDS_NAMES: u32 = 2;

/// All packets are one sequence.
const SEQUENCE: u32 = 1;

/// A track of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Track(u64);

impl Track {
    /// Stands where a track is not made yet.
    pub const NONE: Self = Self(0);
}

/// A stretch of time on a track.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice<'a> {
    /// What it is.
    pub name: &'a str,
    /// When it begins.
    pub start_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// Arrows that begin here.
    pub leaving: &'a [u64],
    /// Arrows that end here.
    pub arriving: &'a [u64],
    /// What to know about it.
    pub notes: &'a [(&'static str, u64)],
}

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    buffer: Vec<u8>,
    tracks: u64,
    groups: i32,
    names: BTreeMap<String, u64>,
    note_names: BTreeMap<&'static str, u64>,
    /// By track: when its last slice ended.
    free: BTreeMap<Track, u64>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self {
            out,
            buffer: Vec::new(),
            tracks: 0,
            groups: 0,
            names: BTreeMap::new(),
            note_names: BTreeMap::new(),
            free: BTreeMap::new(),
        };
        writer.packet(Packet { sequence_flags: Some(CLEARED), ..Packet::default() })?;
        Ok(writer)
    }

    /// A group of tracks: a rank, a server, all links.
    pub fn group(&mut self, name: &str) -> io::Result<Track> {
        self.groups += 1;
        let process = ProcessDescriptor { pid: self.groups, process_name: name.to_owned() };
        let rank = Some(self.groups);
        self.describe(TrackDescriptor {
            name: name.to_owned(),
            process: Some(process),
            sibling_order_rank: rank,
            ..TrackDescriptor::default()
        })
    }

    /// A track of a group, on which slices follow each other.
    pub fn track(&mut self, group: Track, name: &str) -> io::Result<Track> {
        let name = name.to_owned();
        let parent_uuid = Some(group.0);
        self.describe(TrackDescriptor { name, parent_uuid, ..TrackDescriptor::default() })
    }

    /// A track of a group that shows a value over time.
    pub fn counter(&mut self, group: Track, name: &str, unit: &str) -> io::Result<Track> {
        self.describe(TrackDescriptor {
            name: name.to_owned(),
            parent_uuid: Some(group.0),
            counter: Some(CounterDescriptor { unit_name: unit.to_owned() }),
            ..TrackDescriptor::default()
        })
    }

    /// When a track's last slice ended: the next may not begin before.
    pub fn free_at(&self, track: Track) -> u64 {
        self.free.get(&track).copied().unwrap_or(0)
    }

    /// Puts a slice on a track, behind those that are there.
    pub fn slice(&mut self, track: Track, slice: &Slice<'_>) -> io::Result<()> {
        let Slice { name, start_ns, end_ns, leaving, arriving, notes } = *slice;
        assert!(self.free_at(track) <= start_ns && start_ns <= end_ns, "{name} overlaps another");
        self.free.insert(track, end_ns);
        let mut new = InternedData::default();
        let name_iid = intern(&mut self.names, name.to_owned(), &mut new.event_names);
        let annotate = |(note, value): &(&'static str, u64)| DebugAnnotation {
            name_iid: intern(&mut self.note_names, *note, &mut new.debug_annotation_names),
            uint_value: Some(*value),
        };
        let debug_annotations = notes.iter().map(annotate).collect();
        let begin = TrackEvent {
            debug_annotations,
            kind: SLICE_BEGIN,
            name_iid: Some(name_iid),
            track_uuid: track.0,
            flow_ids: leaving.to_vec(),
            terminating_flow_ids: arriving.to_vec(),
            ..TrackEvent::default()
        };
        let is_new = !new.event_names.is_empty() || !new.debug_annotation_names.is_empty();
        self.event(start_ns, begin, is_new.then_some(new))?;
        let end = TrackEvent { kind: SLICE_END, track_uuid: track.0, ..TrackEvent::default() };
        self.event(end_ns, end, None)
    }

    /// Sets a counter from an instant on.
    pub fn count(&mut self, counter: Track, at_ns: u64, value: f64) -> io::Result<()> {
        let event = TrackEvent {
            kind: COUNTER,
            track_uuid: counter.0,
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.event(at_ns, event, None)
    }

    /// Ends the trace.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn describe(&mut self, mut descriptor: TrackDescriptor) -> io::Result<Track> {
        self.tracks += 1;
        descriptor.uuid = self.tracks;
        self.packet(Packet { track_descriptor: Some(descriptor), ..Packet::default() })?;
        Ok(Track(self.tracks))
    }

    fn event(&mut self, at: u64, event: TrackEvent, new: Option<InternedData>) -> io::Result<()> {
        self.packet(Packet {
            timestamp: Some(at),
            track_event: Some(event),
            interned_data: new,
            sequence_flags: Some(NEEDS_NAMES),
            ..Packet::default()
        })
    }

    fn packet(&mut self, mut packet: Packet) -> io::Result<()> {
        packet.trusted_packet_sequence_id = SEQUENCE;
        self.buffer.clear();
        let packets = Packets { packet: vec![packet] };
        packets.encode(&mut self.buffer).expect("a vector grows");
        self.out.write_all(&self.buffer)
    }
}

/// The number of a name; a new one is also told.
fn intern<K: Ord + Clone + Into<String>>(
    known: &mut BTreeMap<K, u64>,
    name: K,
    new: &mut Vec<Interned>,
) -> u64 {
    let next = known.len() as u64 + 1;
    *known.entry(name.clone()).or_insert_with(|| {
        new.push(Interned { iid: next, name: name.into() });
        next
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden, through the messages themselves; the published schema reads it in `tests/formats`.
    #[test]
    fn slices_arrows_and_counters_are_packets() {
        let mut bytes = Vec::new();
        let mut trace = Writer::new(&mut bytes).unwrap();
        let rank = trace.group("rank 0").unwrap();
        let (a, b) = (trace.track(rank, "compute").unwrap(), trace.track(rank, "NIC").unwrap());
        let load = trace.counter(rank, "load", "Gbit/s").unwrap();
        let forward = Slice { name: "forward", end_ns: 10, leaving: &[7], ..Slice::default() };
        trace.slice(a, &forward).unwrap();
        let notes = &[("bytes", 300)];
        let message = Slice {
            name: "message",
            start_ns: 10,
            end_ns: 12,
            arriving: &[7],
            notes,
            leaving: &[],
        };
        trace.slice(b, &message).unwrap();
        trace.slice(a, &Slice { start_ns: 10, end_ns: 20, ..forward }).unwrap();
        trace.count(load, 11, 0.5).unwrap();
        trace.finish().unwrap();
        let read = Packets::decode(&bytes[..]).unwrap();
        let events: Vec<String> = read.packet.iter().filter_map(line).collect();
        insta::assert_snapshot!(events.join("\n"), @r"
        0: 1 on 2 name Some(1) out [7] in [] new [1=forward]
        10: 2 on 2 name None out [] in [] new []
        10: 1 on 3 name Some(2) out [] in [7] new [2=message]
        12: 2 on 3 name None out [] in [] new []
        10: 1 on 2 name Some(1) out [7] in [] new []
        20: 2 on 2 name None out [] in [] new []
        11: 4 on 4 name None out [] in [] new []
        ");
        assert!(read.packet.iter().all(|packet| packet.trusted_packet_sequence_id == 1));
        assert_eq!(read.packet[0].sequence_flags, Some(1));
        assert_eq!(read.packet[2].track_descriptor.as_ref().unwrap().parent_uuid, Some(1));
    }

    fn line(packet: &Packet) -> Option<String> {
        let event = packet.track_event.as_ref()?;
        let TrackEvent { kind, track_uuid, name_iid, flow_ids, terminating_flow_ids, .. } = event;
        let new = packet.interned_data.iter().flat_map(|data| &data.event_names);
        let new: Vec<String> = new.map(|name| format!("{}={}", name.iid, name.name)).collect();
        Some(format!(
            "{}: {kind} on {track_uuid} name {name_iid:?} out {flow_ids:?} in \
             {terminating_flow_ids:?} new [{}]",
            packet.timestamp?,
            new.join(", ")
        ))
    }

    #[test]
    #[should_panic(expected = "late overlaps another")]
    fn slices_of_a_track_follow_each_other() {
        let mut trace = Writer::new(Vec::new()).unwrap();
        let rank = trace.group("rank 0").unwrap();
        let track = trace.track(rank, "compute").unwrap();
        trace.slice(track, &Slice { name: "early", end_ns: 10, ..Slice::default() }).unwrap();
        let late = Slice { name: "late", start_ns: 9, end_ns: 11, ..Slice::default() };
        trace.slice(track, &late).unwrap();
    }
}
