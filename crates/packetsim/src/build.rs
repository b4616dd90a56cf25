//! From fabric, transfers and settings to the state of a run at its first instant.

use fabric::fault::{FaultKind, Faults};
use fabric::graph::LinkKind;
use fabric::hardware::Reorder;
use fabric::hash::FlowKey;
use fabric::routing::Policy;
use fabric::{Fabric, LinkId, NodeId, NodeKind};
use traffic::{OpKind, Transfers};
use units::{Bytes, Id, IdVec, Rate, Span, Time};

use crate::admission::{AdmissionConfig, AdmissionPolicy, GrantLedger};
use crate::buffer::{BufferConfig, Cable, MarkWhen, PfcConfig, Switch};
use crate::by_output::ArrivalsByOutput;
use crate::calendar::Calendar;
use crate::cc::Circumstances;
use crate::clocks::Clocks;
use crate::credits::Credits;
use crate::entropy::{Entropy, Way};
use crate::exchange::Part;
use crate::faults::{LinkFault, pauses};
use crate::ids::{Maybe, PairId, Raw, SenderId, SwitchId};
use crate::light_acks::LightAcks;
use crate::limits::{self, Refusal};
use crate::nic::{Pacing, Sender, Service, Verb};
use crate::packet::{
    CONTROL, Class, Clock, DATA, Forward, LANES, PATH_END, PURPOSES, Purpose, Sizes,
};
use crate::pair::{Inbox, Pair};
use crate::paths::{Network, is_scale_up};
use crate::planes::{self, Planes};
use crate::port::{LaneCount, NOWHERE, Port};
use crate::repetition::Repetition;
use crate::ring::Slab;
use crate::scheduled::Schedule;
use crate::sending::MOST_REPORTED;
use crate::settings::{ControlClass, Forwarding, LinkRetry, Overflow, Settings, tier_of};
use crate::simulation::{
    Accounts, Departures, Ends, Host, Input, Net, Operations, Rules, Simulation, Timeline,
};
use crate::stamps::Stamps;
use crate::stations::Stations;
use crate::steady::Steady;
use crate::switching::{LanePause, Marker, PauseLog};

const NEVER: u64 = u64::MAX;

/// The state of a run at its first instant, or why it will not be run.
pub(crate) fn build<'a>(
    fabric: &'a Fabric,
    transfers: &'a Transfers,
    settings: &'a Settings,
    faults: &'a Faults,
) -> Result<Simulation<'a>, Refusal> {
    limits::check_input(fabric, transfers, settings)?;
    let needs = settings.needs();
    let sizes = Sizes::new(&settings.packet, needs.data_bytes.get(), needs.ack_bytes.get())?
        .of_verb(settings.nic.verb, needs.no_acks)
        .of_service(settings.nic.service);
    let mut ports = ports(fabric, settings);
    limits::check_delays(&ports)?;
    let switches = switches(fabric, settings, faults, &sizes, &mut ports)?;
    let credits = Credits::new(settings, fabric, &ports, sizes.largest())?;
    let schedule = Schedule::new(&settings.scheduled, &sizes)?;
    let network = Network::new(fabric, transfers, settings);
    limits::check_messages(&network, transfers, settings, &sizes)?;
    limits::check_ports(fabric, &network, settings)?;
    let departures = match settings.packet.clock {
        Clock::Picosecond => Departures::WhenRead,
        Clock::Nanosecond => Departures::Events,
    };
    let stays = planes::stays(settings, departures.are_events());
    let mut planes = Planes::new(fabric, &network, stays.is_some());
    let (mut senders, sender_of_port) = planes.senders(fabric);
    let fetches = fetch_contexts(fabric, &network, settings, &mut senders, &sender_of_port);
    let links = ports.len();
    let ends = fabric.gpus() + fabric.endpoints();
    let slow_hosts = settings.nic.host_rate().is_some() || faults.all().iter().any(pauses);
    let is_tagged = departures.are_events() || are_long(&ports, &sizes, faults);
    let input = Input {
        fabric,
        transfers,
        settings,
        faults,
        clock: settings.packet.clock,
        sizes,
        rules: rules(settings, faults),
        is_large: 2_000 < links,
        departures,
        aggregates: false,
    };
    let entropy = Entropy::new(network.routing.entropies(), planes.count);
    let net = Net {
        ports,
        wires: if is_tagged { Slab::with_tags() } else { Slab::new() },
        queued: Slab::new(),
        switches,
        pauses: vec![PauseLog::default(); links].into(),
        lane_pauses: vec![LanePause::default(); links * settings.credits.lanes()],
        lane_counts: vec![LaneCount::default(); links * settings.credits.lanes()],
        credits,
        schedule,
        troubles: vec![LinkFault::None; if faults.is_empty() { 0 } else { links }].into(),
        damage: if 0.0 < settings.loss || !faults.is_empty() {
            damage(settings, links)
        } else {
            IdVec::default()
        },
        marker: Marker::new(settings, fabric),
        stamps: Stamps::default(),
        paths: Vec::new(),
        network,
        routed: Vec::new(),
        longest: 0,
        known_until: 0,
        in_far_end: false,
        incoming: Vec::new(),
        arrivals: ArrivalsByOutput::new(links),
        inputs_known_until: Vec::new(),
        outputs_are_independent: false,
        candidates: Vec::new(),
        newly_busy: Vec::new(),
    };
    let ends = Ends {
        pairs: IdVec::default(),
        inboxes: IdVec::default(),
        light_acks: IdVec::default(),
        messages: Vec::new(),
        senders,
        sender_of_port,
        fetches,
        grant_ledgers: (0..ends).map(|_| GrantLedger::default()).collect(),
        hosts: if slow_hosts { hosts(fabric, settings, &planes) } else { Vec::new() },
        entropy,
        planes,
        operations: Operations::new(transfers, links),
    };
    let time = first_instant();
    let (accounts, repetition) = (Accounts::default(), Repetition::off());
    let part = Part::default();
    let steady = Steady::off();
    let mut simulation = Simulation { input, net, ends, time, accounts, repetition, steady, part };
    let health =
        if faults.is_empty() { fabric.health().clone() } else { faults.health(fabric, Time::ZERO) };
    simulation.net.network.set_health(health);
    if faults.is_empty() && fabric.health().has_failures() {
        lose_what_cannot_arrive(&mut simulation);
    }
    simulation.set_up_aggregation();
    simulation.time.stations = Stations::new(&simulation);
    simulation.time.clocks = clocks(&simulation);
    simulation.time.calendar = calendar(&simulation);
    lay_paths(&mut simulation)?;
    simulation.net.outputs_are_independent = outputs_are_independent(&simulation);
    simulation.net.longest = longest_in_use(&simulation.net);
    simulation.repetition = Repetition::new(&simulation);
    simulation.steady = Steady::new(&simulation);
    simulation.set_barrier();
    if let Some(why) = stays {
        report_kept_ports(&mut simulation, why);
    }
    report_full_memories(&mut simulation);
    report_uncounted_memory(&mut simulation);
    report_missing_marks(&mut simulation);
    report_unsuitable_paths(&mut simulation);
    report_short_timeouts(&mut simulation);
    Ok(simulation)
}

/// The first instant, with nothing going to happen.
fn first_instant() -> Timeline {
    Timeline {
        now: 0,
        ticket: 0,
        calendar: Calendar::new(0, 1, 1),
        stations: Stations::default(),
        clocks: Clocks::default(),
        rare_events: Vec::new(),
        free_rare_events: Vec::new(),
        barrier: NEVER,
        change_at: NEVER,
        reroutes: std::collections::VecDeque::new(),
        sample_at: NEVER,
        end_at: NEVER,
        window_end: NEVER,
    }
}

/// Whether packets on a wire can be further from their arrival than 32 bits of picoseconds tell: a
/// node that runs ahead of the clock sends them up to two delays early.
fn are_long(ports: &IdVec<LinkId, Port>, sizes: &Sizes, faults: &Faults) -> bool {
    let degraded = faults.all().iter().filter_map(|fault| match fault.kind {
        FaultKind::Degraded { rate } => Some(rate),
        _ => None,
    });
    let slowest = degraded.min();
    let largest = Bytes::new(u64::from(sizes.largest()) + sizes.gap);
    ports.iter().any(|port| {
        let rate = slowest.map_or(port.rate, |slowest| slowest.min(port.rate));
        let time = rate.time_to_send(largest).as_ps();
        u64::from(u32::MAX) <= (3 * port.delay).saturating_add(time)
    })
}

/// Whether the outputs of a switch below its thresholds do not depend on each other, and a packet's
/// next link is known from its path.
fn outputs_are_independent(simulation: &Simulation<'_>) -> bool {
    let (input, net) = (&simulation.input, &simulation.net);
    !net.credits.are_counted()
        && !net.network.chooses_on_the_way()
        && !net.wires.is_tagged()
        && net.damage.is_empty()
        && !input.aggregates
        && input.rules.lanes == 1
        && input.rules.control_share == 0
        && input.rules.mark_when == MarkWhen::Dequeue
}

/// The longest delay of a link on a path.
fn longest_in_use(net: &Net) -> u64 {
    let links = net.paths.iter().filter(|at| **at & PATH_END == 0);
    links.map(|link| net.ports[LinkId::of(*link)].delay).max().unwrap_or(0)
}

/// Says what the congestion control finds unsuitable about the longest of the paths.
fn report_unsuitable_paths(simulation: &mut Simulation<'_>) {
    let found = simulation.ends.pairs.ids().filter_map(|pair| {
        let about = simulation.circumstances(pair);
        Some((about.base_rtt, simulation.congestion(pair).finding(&about)?))
    });
    if let Some((_, finding)) = found.max_by_key(|(base_rtt, _)| *base_rtt) {
        simulation.report_finding(finding);
    }
}

/// A NIC that took an idle round trip for a loss would send everything again: it waits for two.
fn report_short_timeouts(simulation: &mut Simulation<'_>) {
    let longest = simulation.ends.pairs.iter().map(|pair| pair.timeout).max().unwrap_or(0);
    let timeout = simulation.input.rules.timeout;
    if timeout < longest {
        let [timeout, longest] = [timeout, longest].map(Span::from_ps);
        simulation.report_finding(format!(
            "the retransmission timeout of {timeout} is below two idle round trips: queue pairs \
             wait for up to {longest} (`network.nic.timeout`)"
        ));
    }
}

/// An algorithm that goes by marks alone controls nothing where nothing marks.
fn report_missing_marks(simulation: &mut Simulation<'_>) {
    let settings = simulation.input.settings;
    let Settings { congestion, congestion_of_tier, .. } = settings;
    let mut all = std::iter::once(congestion).chain(congestion_of_tier.values());
    if let Some(blind) = all.find(|one| one.needs().marks)
        && !settings.all_marks().any(|ecn| ecn.enabled)
    {
        let name = blind.name();
        simulation.report_finding(format!(
            "{name} goes by marks, and no switch marks anything (`network.ecn.enabled`)"
        ));
    }
}

/// A switch whose ports keep all of its memory for themselves has none to share: it pauses or drops
/// whatever exceeds a port's reserve. No switch can be set up to keep more than it has.
fn report_full_memories(simulation: &mut Simulation<'_>) {
    let fabric = simulation.input.fabric;
    let carries = |node: NodeId| {
        let mut ports = fabric.ports(node).iter();
        ports.any(|link| fabric.class(*link).kind != LinkKind::FrontEnd)
    };
    let nodes = fabric.switches().zip(&simulation.net.switches);
    let full = nodes.filter(|(node, at)| at.pool == 0 && carries(*node));
    let full: Vec<NodeId> = full.map(|(node, _)| node).collect();
    if let [first, others @ ..] = &full[..] {
        let name = simulation.input.fabric.name(*first);
        let which = match others.len() {
            0 => name,
            count => format!("{name} and {count} other switches"),
        };
        simulation.report_finding(format!(
            "no memory is left to share in {which}: the reserves and headroom of the ports come to \
             all of it or more (`buffer.size`)"
        ));
    }
}

/// A port counts its share of a very large memory only up to a limit; that matters where as much is
/// sent.
fn report_uncounted_memory(simulation: &mut Simulation<'_>) {
    let bytes = |op: &traffic::Op| match op.kind {
        OpKind::Send { bytes, .. } => bytes.get(),
        _ => 0,
    };
    let sent = simulation.input.transfers.ops().iter().map(bytes).fold(0, u64::saturating_add);
    if simulation.input.settings.credits.enabled || sent < limits::PORT_BYTES {
        return;
    }
    let switches = simulation.input.fabric.switches().zip(&simulation.net.switches);
    let mut large = switches.filter_map(|(node, switch)| Some((node, switch.uncounted()?)));
    if let Some((node, bytes)) = large.next() {
        let (bytes, most) = (Bytes::new(bytes), Bytes::new(limits::PORT_BYTES));
        let name = simulation.input.fabric.name(node);
        simulation.report_finding(format!(
            "one port of {name} may use {bytes:.0} of its memory, of which the packet engine counts \
             {most:.0} (`buffer.size`)"
        ));
    }
}

/// The settings as the hot loop wants them.
fn rules(settings: &Settings, faults: &Faults) -> Rules {
    let pfc = &settings.pfc;
    let mut needs = settings.needs();
    needs.repace |= settings.nic.pacing == Pacing::Follow;
    let mut admission =
        needs.credit.map_or_else(|| settings.admission.clone(), AdmissionConfig::from);
    if admission.policy == AdmissionPolicy::None {
        admission.receiver_window = None;
    }
    let reads = settings.nic.verb == Verb::Read && needs.no_acks;
    let unreliable = settings.nic.service != Service::Rc;
    Rules {
        needs,
        lossless: lossless(settings),
        lanes: settings.credits.lanes(),
        flowlet_gap: if settings.routing.policy == Policy::Flowlet {
            settings.routing.gap.as_ps()
        } else {
            NEVER
        },
        class_in_switch: classes(settings),
        mark_when: settings.ecn.when,
        control_share: share(settings.switch.control_share),
        xon_below: pfc.xon_below.get(),
        pause_quanta: pfc.quanta,
        response_quanta: pfc.response_quanta,
        watchdog: pfc.watchdog.map_or(0, Span::as_ps),
        acks_hold: settings.nic.acks_while_paused,
        ack_every: if reads { 1 } else { settings.nic.ack_every.max(1) },
        timeout: settings.nic.timeout.as_ps().max(1),
        goes_back: settings.nic.reorder == Reorder::None,
        trims: settings.switch.overflow == Overflow::Trim,
        admits: admission.policy == AdmissionPolicy::ReceiverDriven
            || settings.nic.verb == Verb::Read,
        reads,
        unreliable,
        echo_is_notice: (reads || unreliable) && needs.marks,
        unasked: unasked(settings),
        counts_granted: admission.receiver_window.is_some(),
        admission,
        slow_hosts: settings.nic.host_rate().is_some() || faults.all().iter().any(pauses),
        light_acks: settings.packet.forward == Forward::Bounded
            && settings.packet.clock == Clock::Picosecond
            && !settings.scheduled.enabled
            && settings.loss == 0.0
            && faults.is_empty(),
        header_bytes: 64,
    }
}

/// Packets that a queue pair may send before it has been granted any. Nobody answers a read that
/// has not been asked for.
fn unasked(settings: &Settings) -> u32 {
    match settings.needs().credit {
        Some(credit) if settings.nic.verb != Verb::Read => {
            (credit.unasked.get() / settings.packet.mtu.get()) as u32
        }
        _ => 0,
    }
}

/// The classes of data that lose nothing, among those that there are.
fn lossless(settings: &Settings) -> u8 {
    let all = (0..settings.credits.lanes()).fold(0, |mask, lane| mask | Class::of_lane(lane).bit());
    let lossy = settings.pfc.lossy_lanes.iter().filter(|lane| usize::from(**lane) < LANES);
    match (settings.credits.enabled, settings.pfc.enabled) {
        (true, _) => all,
        (false, true) => {
            lossy.fold(all, |mask, lane| mask & !Class::of_lane(usize::from(*lane)).bit())
        }
        (false, false) => 0,
    }
}

/// The lane of each queue pair.
fn lanes(simulation: &Simulation<'_>) -> Vec<u8> {
    let (network, transfers) = (&simulation.net.network, simulation.input.transfers);
    let mut lanes = vec![0; network.keys.len()];
    for connection in transfers.connections().ids() {
        let first = network.first_pair[connection.index()];
        if let Some(first) = first.get() {
            let level = transfers.service_level(connection);
            let end = first.index() + usize::from(network.pairs_of[connection.index()]);
            lanes[first.index()..end].fill(simulation.input.settings.credits.lane(level));
        }
    }
    lanes
}

/// Control may get a share of a link instead of going first; in 1/65,536.
fn share(share: Option<f64>) -> u32 {
    share.map_or(0, |share| ((share * 65_536.0) as u32).clamp(1, 65_535))
}

/// Dice for links that damage packets.
fn damage(settings: &Settings, links: usize) -> IdVec<LinkId, units::Random> {
    (0..links).map(|link| units::Random::new(settings.seed, "damage", link as u64)).collect()
}

/// Makes failed links lose what crosses them, if there is a path without a way around them.
fn lose_what_cannot_arrive(simulation: &mut Simulation<'_>) {
    let (fabric, network) = (simulation.input.fabric, &mut simulation.net.network);
    let pairs = network.keys.clone();
    let mut has_way = |key: &FlowKey| network.walk(fabric, key).is_ok();
    if pairs.iter().all(|(there, back)| has_way(there) && has_way(back)) {
        return;
    }
    let trouble = |link| match fabric.health().is_down(link) {
        true => LinkFault::Down,
        false => LinkFault::None,
    };
    simulation.net.troubles = fabric.links().ids().map(trouble).collect();
    simulation.net.damage = damage(simulation.input.settings, simulation.net.ports.len());
}

fn classes(settings: &Settings) -> [Class; PURPOSES] {
    let place = |class| match class {
        ControlClass::Own => CONTROL,
        ControlClass::WithData => DATA,
    };
    let mut classes = [place(settings.switch.acks); PURPOSES];
    classes[Purpose::Data as usize] = DATA;
    classes[Purpose::Grant as usize] = place(settings.switch.grants);
    classes[Purpose::Trimmed as usize] = CONTROL;
    classes[Purpose::Cell as usize] = DATA;
    classes
}

fn ports(fabric: &Fabric, settings: &Settings) -> IdVec<LinkId, Port> {
    let number = |node| match fabric.nodes()[node].kind {
        NodeKind::Switch => fabric
            .switch_ordinal(node)
            .map_or(Maybe::NONE, |at| Maybe::some(SwitchId::from_index(at))),
        _ => Maybe::NONE,
    };
    let port = |id: LinkId| {
        let link = fabric.links()[id];
        let class = fabric.class(id);
        let (switch, into) = (number(link.from), number(link.to));
        let tier = fabric.tiers().get(usize::from(fabric.nodes()[link.to].tier));
        let latency = tier.filter(|_| into.is_some()).map_or(0, |tier| tier.latency.as_ps());
        let rate = fabric.health().rate(fabric, id);
        let mut port = Port::new(rate, class.delay.as_ps(), latency, switch, into);
        let out = fabric.ports(link.to).iter().map(|out| fabric.class(*out).rate).max();
        port.cut_through = into.is_some()
            && settings.switch.forwarding == Forwarding::CutThrough
            && out.is_some_and(|fastest| fastest <= class.rate);
        port
    };
    fabric.links().ids().map(port).collect()
}

fn calendar(simulation: &Simulation<'_>) -> Calendar {
    let Simulation { input: Input { fabric, sizes, .. }, net: Net { ports, .. }, .. } = simulation;
    let stations = &simulation.time.stations;
    let rate = ports.iter().map(|port| port.rate).max().unwrap_or(Rate::from_gbps(400));
    let full = rate.time_to_send(Bytes::new(u64::from(sizes.mtu + sizes.data))).as_ps();
    let delay = ports.iter().map(|port| port.delay).max().unwrap_or(0);
    let reach = delay + 2 * full;
    if stations.is_empty() {
        // NICs have an event for each wire and transmitter, switches one each. Each link sees about
        // one data packet and one acknowledgement in the time of a full packet.
        return Calendar::new(2 * fabric.nics() + fabric.switches().len(), full / 2, reach);
    }
    Calendar::new(stations.len() + fabric.switches().len(), delay, 2 * reach)
}

/// The clocks of a run's switches and stations. Where credits are counted, a node depends on the
/// departures of its neighbours' neighbours, and clocks of neighbours are not used.
pub(crate) fn clocks(simulation: &Simulation<'_>) -> Clocks {
    let (net, stations) = (&simulation.net, &simulation.time.stations);
    let mut clocks = Clocks::new(net.switches.len(), stations.len(), net.ports.len());
    if !net.credits.are_counted() {
        for (link, port) in net.ports.enumerate() {
            let [far, near] = stations.ends_of(link);
            clocks.add_link(link, port.delay, (port.switch, near), (port.into, far));
        }
    }
    for (number, switch) in net.switches.enumerate() {
        clocks.set_switch_next(number, if switch.is_batched() { NEVER } else { 0 });
    }
    clocks
}

/// Tells every sender what contexts cost that its NIC has no room for. By node: what a message
/// waits for one.
fn fetch_contexts(
    fabric: &Fabric,
    network: &Network,
    settings: &Settings,
    senders: &mut IdVec<SenderId, Sender>,
    sender_of_port: &IdVec<LinkId, Maybe<SenderId>>,
) -> Vec<u64> {
    let mut contexts = vec![0_u64; fabric.nodes().len()];
    for (key, _) in &network.keys {
        contexts[key.from.index()] += 1;
        contexts[key.to.index()] += 1;
    }
    let cost = settings.nic.queue_pair_cost();
    for id in fabric.links().ids() {
        let link = fabric.links()[id];
        if let Some(sender) = sender_of_port[id].get() {
            let packet_s = cost.packet_s(contexts[link.from.index()]);
            senders[sender].fetching = Span::from_secs_f64(packet_s).as_ps();
        }
    }
    let wait = |in_use: u64| Span::from_secs_f64(cost.message_s(in_use)).as_ps();
    contexts.into_iter().map(wait).collect()
}

fn hosts(fabric: &Fabric, settings: &Settings, planes: &Planes) -> Vec<Host> {
    let ends = fabric.gpus() + fabric.endpoints();
    let line = |end| {
        let first = fabric.ports(fabric::NodeId::from_index(end)).first();
        first.map_or(Rate::from_gbps(400), |link| planes.line(fabric, *link))
    };
    let host = |end| Host {
        line: line(end),
        rate: settings.nic.host_rate().unwrap_or(line(end)),
        free_at: 0,
        held: 0,
        pausing: false,
        queue: std::collections::VecDeque::new(),
    };
    (0..ends).map(host).collect()
}

fn switches(
    fabric: &Fabric,
    settings: &Settings,
    faults: &Faults,
    sizes: &Sizes,
    ports: &mut IdVec<LinkId, Port>,
) -> Result<IdVec<SwitchId, Switch>, Refusal> {
    let frame = Bytes::new(u64::from(sizes.mtu + sizes.data));
    let config_of = |node: fabric::NodeId| -> &BufferConfig {
        let tier = tier_of(fabric, node);
        let own = tier.and_then(|tier| settings.buffer_of_tier.get(tier));
        own.unwrap_or(&settings.buffer)
    };
    let headroom_of = |id: LinkId| {
        if !settings.pfc.enabled || settings.credits.enabled {
            return 0;
        }
        let class = fabric.class(id);
        let given = config_of(fabric.links()[id].to).headroom;
        given.unwrap_or_else(|| PfcConfig::headroom(class.rate, class.delay, frame)).get()
    };
    for (id, port) in fabric.links().ids().zip(ports.iter_mut()) {
        let headroom = if port.into.is_none() { 0 } else { headroom_of(id) };
        limits::HEADROOM.check(headroom)?;
        port.headroom = headroom as u32;
    }
    let switch = |node| {
        let config = config_of(node);
        limits::MEMORY.check(config.size.get())?;
        limits::RESERVED.check(config.reserved.get())?;
        let lanes = settings.credits.lanes() as u64;
        let paused = u64::from(lossless(settings).count_ones());
        let kept = |out: &LinkId| {
            paused * headroom_of(fabric.reverse(*out)) + lanes * config.reserved.get()
        };
        let kept = fabric.ports(node).iter().map(kept).sum();
        let ports = fabric.ports(node).to_vec();
        if settings.credits.enabled {
            // Its senders never send what has no room: whatever comes is taken.
            let size = Bytes::new(1 << 40);
            let (alpha, alpha_lossy) = (1.0, 1.0);
            let endless = BufferConfig { size, alpha, alpha_lossy, ..config.clone() };
            return Ok(Switch::new(&endless, ports, 0));
        }
        Ok(Switch::new(config, ports, kept))
    };
    let switches: Result<IdVec<SwitchId, Switch>, Refusal> =
        fabric.switches().map(switch).collect();
    let mut switches = switches?;
    let hosts_pause = faults.all().iter().any(pauses);
    // What can reach a switch over a link while another runs ahead.
    let longest = ports.iter().map(|port| port.delay).max().unwrap_or(0);
    let arrives = |link: &LinkId| {
        let bytes = ports[*link].rate.bytes_in(Span::from_ps(2 * longest));
        bytes.get() + 2 * u64::from(sizes.largest())
    };
    for switch in switches.iter_mut() {
        let sooner = |link: &LinkId| {
            let port = &ports[*link];
            // Pause frames are not looked up, and only switches and overrun hosts send them.
            let from_here =
                port.switch.is_some() || settings.nic.host_rate().is_some() || hosts_pause;
            if from_here { port.delay - port.latency } else { port.delay }
        };
        switch.lookahead = switch.inputs.iter().map(sooner).min().unwrap_or(0);
        // Its own pauses and credits need nothing but the cable.
        let cable = |link: &LinkId| ports[*link].delay - ports[*link].latency;
        switch.egress_delay = switch.ports.iter().map(cable).min().unwrap_or(0);
        let cable = |link: &LinkId| {
            let Port { switch, delay, latency, .. } = ports[*link];
            Cable { from: switch, delay, pause_delay: delay - latency }
        };
        switch.cables = switch.inputs.iter().map(cable).collect();
        switch.margin = switch.inputs.iter().map(arrives).sum();
        let explicit = settings.packet.clock == Clock::Nanosecond;
        let explicit = explicit || settings.switch.link_retry == LinkRetry::On;
        let explicit = explicit || settings.scheduled.enabled;
        switch.event_reasons = u32::from(explicit || switch.lookahead == 0);
    }
    Ok(switches)
}

/// Says that queue pairs use a part of their NIC only.
fn report_kept_ports(simulation: &mut Simulation<'_>, why: &str) {
    let fabric = simulation.input.fabric;
    let network = &simulation.net.network;
    let several = |(key, _): &&(FlowKey, FlowKey)| 1 < fabric.ports(key.from).len();
    let Some((key, _)) = network.keys.iter().find(several).filter(|_| planes::spreads(network))
    else {
        return;
    };
    let (nic, ports) = (fabric.name(key.from), fabric.ports(key.from).len());
    simulation.report_finding(format!(
        "each queue pair of {nic} stays on one of its {ports} ports: {why}"
    ));
}

/// Walks the path of every queue pair and makes the pairs.
fn lay_paths(simulation: &mut Simulation<'_>) -> Result<(), Refusal> {
    let fabric = simulation.input.fabric;
    let transfers = simulation.input.transfers;
    let on_the_way = simulation.net.network.chooses_on_the_way();
    let planned = simulation.net.network.planned(fabric);
    let lanes = lanes(simulation);
    // What grows by itself takes up to twice as much, and as much again while it moves.
    let pairs = simulation.net.network.keys.len();
    simulation.ends.pairs = IdVec::with_capacity(pairs);
    simulation.ends.inboxes = IdVec::with_capacity(pairs);
    for (pair, lane) in simulation.net.network.keys.ids().zip(lanes) {
        let (key, back) = simulation.net.network.keys[pair];
        let planned = planned.as_ref().and_then(|paths| paths[pair.index()].as_ref());
        let forth: Vec<LinkId> = match planned {
            Some(path) => path.clone(),
            None => first_way(simulation, &key),
        };
        let route = simulation.lay_paths_of_pair(pair, &forth, Way::There);
        let path = first_way(simulation, &back);
        // A receiver that no path reaches even without faults is never sent anything.
        let broken = forth.is_empty() || path.is_empty();
        let some = || fabric.ports(key.from).first().copied().unwrap_or(LinkId::from_index(0));
        let forth = if forth.is_empty() { vec![some()] } else { forth };
        let ack_route = simulation.lay_paths_of_pair(pair, &path, Way::Back);
        let port = forth[0];
        let line = simulation.ends.planes.line(fabric, forth[0]);
        let about = circumstances_on(simulation, &forth);
        limits::check_path(simulation, &about)?;
        let congestion = simulation.input.settings.congestion_from(fabric, port);
        let (control, receiver) = (congestion.build(&about), congestion.receiver());
        let unasked = simulation.input.rules.unasked;
        let granted = if simulation.input.rules.admits { unasked } else { u32::MAX };
        // A neighbour is reached in one hop: nothing is to be chosen.
        let roams = on_the_way && 1 < forth.len();
        let timeout = simulation.input.rules.timeout.max(2 * about.base_rtt.as_ps());
        let pair = new_pair(port, if roams { NOWHERE } else { route }, line, granted, control);
        let selective = if simulation.input.rules.goes_back || simulation.input.rules.unreliable {
            0
        } else {
            simulation.input.sizes.mtu
        };
        let number = simulation.ends.pairs.push(Pair { selective, lane, broken, timeout, ..pair });
        let inbox = Inbox::new(ack_route, key.to, receiver);
        if simulation.input.rules.light_acks {
            let acks = LightAcks::new(simulation.ack_delay(&path), path.len() as u32);
            simulation.ends.light_acks.push(acks);
        }
        simulation.ends.inboxes.push(Inbox { granted: unasked, ..inbox });
        simulation.net.routed.extend(&forth);
        simulation.update_limit(number);
    }
    for (id, connection) in transfers.connections().enumerate() {
        if is_scale_up(fabric, connection) {
            simulation.net.network.first_serial[id.index()] = simulation.net.paths.len() as u32;
            let path = match simulation.net.network.walk_scale_up(fabric, connection) {
                Ok(path) => path.to_vec(),
                Err(error) => return Err(Refusal::NoPath(error.describe(fabric))),
            };
            simulation.net.paths.extend(path.iter().map(|link| link.index() as u32));
            simulation.net.paths.push(PATH_END);
        }
    }
    limits::PATHS.check(simulation.net.paths.len() as u64)
}

/// The way of a flow at the start. Where faults leave none, the one that there is when all is
/// well: what is sent over it is lost until the routes change. Nothing if there is none even then.
fn first_way(simulation: &mut Simulation<'_>, key: &FlowKey) -> Vec<LinkId> {
    let (fabric, network) = (simulation.input.fabric, &mut simulation.net.network);
    if let Ok(path) = network.walk(fabric, key) {
        return path.to_vec();
    }
    let sick = std::mem::take(&mut network.routes);
    let path = network.walk(fabric, key).map(<[LinkId]>::to_vec);
    network.routes = sick;
    path.unwrap_or_else(|error| {
        simulation.accounts.tally.pathless += 1;
        if simulation.accounts.tally.pathless <= MOST_REPORTED {
            simulation.report_finding(error.describe(fabric));
        }
        Vec::new()
    })
}

fn new_pair(
    port: LinkId,
    route: u32,
    line: Rate,
    granted: u32,
    control: Box<dyn crate::cc::Sender>,
) -> Pair {
    Pair {
        next_send: 0,
        posted: 0,
        gap: 0,
        next: 0,
        end: 0,
        una: 0,
        granted,
        high: 0,
        port,
        route,
        sending: NOWHERE,
        waiting: NOWHERE,
        last: NOWHERE,
        place: NOWHERE,
        broken: false,
        overdue_pending: false,
        tries: 0,
        timeout: 0,
        sent_bytes: 0,
        acked_bytes: 0,
        window: u64::MAX,
        rate_bps: 0,
        last_size: 0,
        choices: 0,
        timer_at: NEVER,
        progress_at: 0,
        busy_until: 0,
        resend: Vec::new(),
        asked: 0,
        probes: false,
        arrived: 0,
        lane: 0,
        selective: 0,
        line_bps: line.as_bps(),
        control,
    }
}

/// What a queue pair's congestion control knows when it begins again.
pub(crate) fn circumstances(simulation: &Simulation<'_>, pair: PairId) -> Circumstances {
    let mut at = simulation.ends.pairs[pair].route as usize;
    let mut path = Vec::new();
    while let Some(&link) = simulation.net.paths.get(at)
        && link & PATH_END == 0
    {
        path.push(LinkId::of(link));
        at += 1;
    }
    if path.is_empty() {
        path.push(simulation.ends.pairs[pair].port);
    }
    circumstances_on(simulation, &path)
}

fn circumstances_on(simulation: &Simulation<'_>, path: &[LinkId]) -> Circumstances {
    let sizes = &simulation.input.sizes;
    let full = u64::from(sizes.mtu + sizes.data) + sizes.gap;
    let ack = u64::from(sizes.ack) + sizes.gap;
    let hop = |link: &LinkId| {
        let port = &simulation.net.ports[*link];
        let there = port.time_to_send(full, simulation.input.clock).saturating_add(port.delay);
        let back = port.time_to_send(ack, simulation.input.clock).saturating_add(port.delay);
        there.saturating_add(back)
    };
    Circumstances {
        line: match simulation.ends.planes.are_several() {
            true => simulation.ends.planes.line(simulation.input.fabric, path[0]),
            false => simulation.net.ports[path[0]].rate,
        },
        base_rtt: Span::from_ps(path.iter().map(hop).fold(0, u64::saturating_add)),
        hops: path.len() as u32,
        mtu: Bytes::new(u64::from(sizes.mtu)),
    }
}
