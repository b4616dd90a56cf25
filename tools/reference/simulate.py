"""A second implementation of the reference simulator's model, written from its rules alone.

`crates/packetsim/tests/reference/README.md` tells, rule by rule, what HPCC's ns-3 fork does. This file
follows those rules in the plainest way there is (one heap, one event at a time) and shares no code with
the packet engine. It meets every deterministic run of that folder to the nanosecond, so that further
cases can be made with it where the fork itself (`ns3.py`) cannot be built:

    python3 tools/reference/simulate.py check crates/packetsim/tests/reference/*.toml
    python3 tools/reference/simulate.py make FOLDER [CASE ...]

`make` writes the cases of `cases()` in the same two files that `fatflow validate FOLDER` reads.
"""

import csv
import heapq
import random
import sys
import tomllib
from collections import deque
from pathlib import Path

PAYLOAD = 4096
RESERVE = 4096
RESUME_OFFSET = 3072
PFC_BYTES = 43
MIN_RATE = 10**9
MIB = 1 << 20
FIRST_PORT, TARGET_PORT = 10_000, 100


def transmission(size, rate):
    """Whole nanoseconds; a value that is exactly integral comes out one low (README, section 1)."""
    product = size * 8 * 10**9
    whole, rest = divmod(product, rate)
    return whole - 1 if rest == 0 and whole > 0 else whole


def murmur3(words, seed):
    """MurmurHash3 x86_32 of whole words (README, section 13)."""
    rotate = lambda value, by: (value << by | value >> 32 - by) & 0xFFFFFFFF
    value = seed
    for word in words:
        word = rotate(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        value = (rotate(value ^ word, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    value ^= 4 * len(words)
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return value ^ value >> 16


def address(host):
    return 0x0B000001 + (host // 256 << 16) + (host % 256 << 8)


class Packet:
    __slots__ = ("kind", "flow", "sequence", "size", "payload", "marked", "stamps", "sent", "key")

    def __init__(self, kind, flow, size, key=None):
        # The key is the destination, and the words that a switch hashes.
        self.kind, self.flow, self.size, self.key = kind, flow, size, key
        self.sequence = self.payload = self.sent = 0
        self.marked, self.stamps = False, None


class Flow:
    def __init__(self, number, source, target, size, start, line_rate):
        self.number, self.source, self.target = number, source, target
        self.size, self.start, self.finish = size, start, None
        self.sent = self.acknowledged = self.received = 0
        self.rate = self.target_rate = self.reference_rate = line_rate
        self.next_send = self.last_size = 0
        self.there = self.back = None
        # What the algorithms keep: DCQCN, HPCC, TIMELY, DCTCP.
        self.alpha, self.stage, self.notified, self.increase = 1.0, 0, False, None
        self.flag_for_alpha = self.flag_for_cut = False
        self.utilisation, self.stamps, self.window_end = 1.0, None, 0
        self.previous_rtt, self.difference, self.increases = None, 0.0, 0
        self.flagged, self.batch, self.reduced, self.reduced_until = 0, 0, False, 0


class Simulation:
    def __init__(self, case, flows):
        topology, switch, cc = case["topology"], case["switch"], case["cc"]
        self.algorithm = case["case"]["cc"].removesuffix("step")
        self.cc, self.ecn = cc, case["ecn"]
        self.header, self.ack_size = case["packet"]["data_header_bytes"], case["packet"]["ack_bytes"]
        self.acks_while_paused = case["host"]["ack_high_prio"] == 1
        self.hosts, self.delay = topology["hosts"], topology["link_delay_ns"]
        self.line_rate = topology["link_rate_bps"]
        self.window, self.base_rtt = cc.get("window_bytes", 0), cc.get("base_rtt_ns", 0)
        nodes = self.hosts + topology["switches"]
        self.ports = [[] for _ in range(nodes)]
        for a, b in topology["links"]:
            here, there = len(self.ports[a]), len(self.ports[b])
            self.ports[a].append((b, there))
            self.ports[b].append((a, here))
        self.next_hops = self.routes()
        per_port = lambda value: [[value() for _ in ports] for ports in self.ports]
        self.busy, self.paused, self.pausing = (per_port(bool) for _ in range(3))
        self.frames, self.queue = per_port(deque), per_port(deque)
        self.queued, self.sent_bytes = per_port(int), per_port(int)
        self.ingress, self.headroom_used = per_port(int), per_port(int)
        self.shared = [0] * nodes
        self.headroom = switch["headroom_bytes_per_port"]
        self.pool = [
            switch["buffer_bytes"] - len(ports) * (self.headroom + RESERVE) for ports in self.ports
        ]
        self.acks = [deque() for _ in range(self.hosts)]
        self.active = [[] for _ in range(self.hosts)]
        self.served, self.wake_up = [0] * self.hosts, [None] * self.hosts
        self.now = self.created = self.pauses = 0
        self.events, self.dice = [], random.Random(1)
        self.flows = [Flow(n, *flow, self.line_rate) for n, flow in enumerate(flows)]
        opened = {}
        for flow in sorted(self.flows, key=lambda flow: flow.start):
            port = opened.get((flow.source, flow.target), FIRST_PORT)
            opened[flow.source, flow.target] = port + 1
            ends = address(flow.source), address(flow.target)
            flow.there = flow.target, (*ends, port | TARGET_PORT << 16)
            flow.back = flow.source, (*ends[::-1], TARGET_PORT | port << 16)
        for flow in self.flows:
            self.at(flow.start, self.announce, flow, 2)

    def routes(self):
        """The ports that lead nearer to each host, in the order in which they are counted."""
        next_hops = {}
        for target in range(self.hosts):
            distance, waiting = {target: 0}, deque([target])
            while waiting:
                node = waiting.popleft()
                for peer, port in sorted(self.ports[node], reverse=True):
                    if peer not in distance:
                        distance[peer] = distance[node] + 1
                        if peer >= self.hosts:
                            waiting.append(peer)
                    if distance[peer] == distance[node] + 1:
                        next_hops.setdefault((peer, target), []).append(port)
        return next_hops

    def out_port(self, node, key):
        target, words = key
        ports = self.next_hops[node, target]
        return ports[murmur3(words, node) % len(ports)]

    # Events: a list that can be cancelled by emptying its action.

    def at(self, time, action, *arguments):
        self.created += 1
        event = [time, self.created, action, arguments]
        heapq.heappush(self.events, event)
        return event

    def run(self):
        while self.events:
            self.now, _, action, arguments = heapq.heappop(self.events)
            if action:
                action(*arguments)
        return [flow.finish for flow in self.flows]

    def transmit(self, node, port, packet):
        time = transmission(packet.size, self.line_rate)
        self.busy[node][port] = True
        self.at(self.now + time, self.free, node, port)
        peer, peer_port = self.ports[node][port]
        self.at(self.now + time + self.delay, self.arrive, peer, peer_port, packet)

    def free(self, node, port):
        self.busy[node][port] = False
        self.serve(node, port)

    def serve(self, node, port):
        if not self.busy[node][port]:
            self.serve_host(node) if node < self.hosts else self.serve_switch(node, port)

    def arrive(self, node, port, packet):
        if packet.kind == "pause":
            self.paused[node][port] = packet.marked
            if not packet.marked:
                self.serve(node, port)
        elif node >= self.hosts:
            self.arrive_at_switch(node, port, packet)
        elif packet.kind == "data":
            self.arrive_as_data(node, packet)
        else:
            self.arrive_as_ack(node, packet)

    # Hosts (sections 3 to 5).

    def announce(self, flow, hands):
        # Its applications hand a start on twice: whatever was due at this instant comes first.
        if hands:
            self.at(self.now, self.announce, flow, hands - 1)
        else:
            self.start(flow)

    def start(self, flow):
        self.active[flow.source].append(flow)
        self.serve(flow.source, 0)

    def wake(self, host):
        self.wake_up[host] = None
        self.serve(host, 0)

    def window_bound(self, flow):
        if not self.window:
            return False
        return flow.sent - flow.acknowledged >= self.window * flow.rate // self.line_rate

    def serve_host(self, host):
        if self.acks[host] and (self.acks_while_paused or not self.paused[host][0]):
            self.transmit(host, 0, self.acks[host].popleft())
            return
        flow = self.next_flow(host)
        if flow:
            self.send(flow)
            return
        flows = self.active[host]
        times = [flow.next_send for flow in flows if flow.sent < flow.size]
        if self.wake_up[host] is None and times and min(times) > self.now:
            self.wake_up[host] = self.at(min(times), self.wake, host)

    def next_flow(self, host):
        """The next flow that may send. Finished ones that were met on the way, and all behind the
        first of those, leave the list; the place of the flow served last does not follow."""
        flows, found, over = self.active[host], None, None
        for step in range(1, len(flows) + 1):
            place = (self.served[host] + step) % len(flows)
            flow = flows[place]
            stopped = self.paused[host][0] or flow.sent == flow.size or self.window_bound(flow)
            if stopped and flow.finish is not None:
                over = place if over is None else min(over, place)
            elif not stopped and flow.next_send <= self.now:
                found = flow
                break
        if over is not None:
            flows[over:] = [flow for flow in flows[over:] if flow.finish is None]
        if found:
            self.served[host] = flows.index(found)
        return found

    def send(self, flow):
        payload = min(PAYLOAD, flow.size - flow.sent)
        packet = Packet("data", flow, payload + self.header, flow.there)
        packet.payload, packet.sequence, packet.sent = payload, flow.sent, self.now
        packet.stamps = [] if self.algorithm == "hpcc" else None
        flow.sent += payload
        flow.last_size = packet.size
        flow.next_send = self.now + transmission(packet.size, flow.rate)
        self.transmit(flow.source, 0, packet)

    def arrive_as_data(self, host, packet):
        flow = packet.flow
        flow.received = max(flow.received, packet.sequence + packet.payload)
        ack = Packet("ack", flow, self.ack_size, flow.back)
        ack.sequence, ack.marked = flow.received, packet.marked
        ack.stamps, ack.sent = packet.stamps, packet.sent
        self.acks[host].append(ack)
        self.serve(host, 0)

    def arrive_as_ack(self, host, ack):
        flow = ack.flow
        flow.acknowledged = max(flow.acknowledged, ack.sequence)
        if flow.acknowledged == flow.size and flow.finish is None:
            flow.finish = self.now
        getattr(self, "on_ack_" + self.algorithm)(flow, ack)
        self.serve(host, 0)

    # Switches (sections 6 to 8).

    def threshold(self, node):
        return (self.pool[node] - self.shared[node]) >> 3

    def shared_of(self, node, port):
        return max(0, self.ingress[node][port] - RESERVE)

    def arrive_at_switch(self, node, port, packet):
        size, limit = packet.size, self.threshold(node)
        full = size + self.headroom_used[node][port] > self.headroom
        if full and size + self.shared_of(node, port) > limit:
            raise RuntimeError("a packet was dropped: this case is not for this model")
        with_it = self.ingress[node][port] + size
        if with_it > RESERVE and with_it - RESERVE > limit:
            self.headroom_used[node][port] += size
        else:
            self.shared[node] += min(size, max(0, with_it - RESERVE))
            self.ingress[node][port] = with_it
        over = self.shared_of(node, port) >= self.threshold(node)
        if not self.pausing[node][port] and (self.headroom_used[node][port] > 0 or over):
            self.send_pause(node, port, True)
        out = self.out_port(node, packet.key)
        self.queue[node][out].append((packet, port))
        self.queued[node][out] += size
        self.serve(node, out)

    def send_pause(self, node, port, stop):
        self.pausing[node][port] = stop
        self.pauses += stop
        frame = Packet("pause", None, PFC_BYTES)
        frame.marked = stop
        self.frames[node][port].append(frame)
        self.serve(node, port)

    def serve_switch(self, node, port):
        if self.frames[node][port]:
            self.sent_bytes[node][port] += PFC_BYTES
            self.transmit(node, port, self.frames[node][port].popleft())
        elif self.queue[node][port] and not self.paused[node][port]:
            packet, origin = self.queue[node][port].popleft()
            self.queued[node][port] -= packet.size
            self.release(node, origin, packet.size)
            left = self.queued[node][port]
            if packet.kind == "data":
                packet.marked |= self.marks(left)
            allowed = self.threshold(node)
            shared = self.shared_of(node, origin)
            low = shared == 0 or shared + RESUME_OFFSET <= allowed
            if self.pausing[node][origin] and self.headroom_used[node][origin] == 0 and low:
                self.send_pause(node, origin, False)
            if packet.kind == "data" and packet.stamps is not None:
                sent = self.sent_bytes[node][port] // 2048 & 0xFFFFF
                packet.stamps.append((self.now & 0xFFFFFF, sent, left // 1280 & 0x1FFFF))
            self.sent_bytes[node][port] += packet.size
            self.transmit(node, port, packet)

    def release(self, node, port, size):
        from_headroom = min(size, self.headroom_used[node][port])
        self.headroom_used[node][port] -= from_headroom
        rest = size - from_headroom
        self.shared[node] -= min(rest, self.shared_of(node, port))
        self.ingress[node][port] -= rest

    def marks(self, queued):
        low, high, top = (self.ecn[key] for key in ("kmin_bytes", "kmax_bytes", "pmax"))
        if not self.ecn["enabled"] or queued <= low:
            return False
        return queued > high or self.dice.random() < top * (queued - low) / (high - low)

    # Senders (section 9).

    def on_ack_none(self, flow, ack):
        pass

    def on_ack_dcqcn(self, flow, ack):
        if ack.marked and not flow.notified:
            flow.notified = flow.flag_for_cut = True
            flow.alpha, flow.target_rate = 1.0, flow.rate
            self.at(self.now + 1000, self.alpha_timer, flow)
            self.at(self.now + 4001, self.cut_timer, flow)
        elif ack.marked:
            flow.flag_for_alpha = flow.flag_for_cut = True

    def alpha_timer(self, flow):
        if flow.finish is None:
            flow.alpha = (1 - 1 / 256) * flow.alpha + (1 / 256 if flow.flag_for_alpha else 0)
            flow.flag_for_alpha = False
            self.at(self.now + 1000, self.alpha_timer, flow)

    def cut_timer(self, flow):
        if flow.finish is not None:
            return
        self.at(self.now + 4000, self.cut_timer, flow)
        if flow.flag_for_cut:
            flow.flag_for_cut = False
            if flow.stage > 0:
                flow.target_rate = flow.rate
            flow.rate = max(MIN_RATE, int(flow.rate * (1 - flow.alpha / 2)))
            flow.stage = 0
            if flow.increase:
                flow.increase[2] = None
            flow.increase = self.at(self.now + 300_000, self.increase_timer, flow)

    def increase_timer(self, flow):
        if flow.finish is None:
            more = [0, self.cc["rate_ai_bps"], self.cc["rate_hai_bps"]][min(flow.stage, 2)]
            flow.target_rate = min(self.line_rate, flow.target_rate + more)
            flow.rate = flow.rate // 2 + flow.target_rate // 2
            flow.stage += 1
            flow.increase = self.at(self.now + 300_000, self.increase_timer, flow)

    def on_ack_hpcc(self, flow, ack):
        before, flow.stamps = flow.stamps, ack.stamps
        if before is None:
            flow.window_end = flow.sent
            return
        worst, over = 0.0, 0
        for (time, sent, queue), (time_now, sent_now, queue_now) in zip(before, ack.stamps):
            tau = (time_now - time) & 0xFFFFFF
            through = ((sent_now - sent) & 0xFFFFF) * 2048 * 8 / (tau * 1e-9) / self.line_rate
            load = through + min(queue, queue_now) * 1280 / self.window
            if load > worst:
                worst, over = load, tau
        over = min(over, self.base_rtt)
        base = self.base_rtt
        flow.utilisation = (flow.utilisation * (base - over) + worst * over) / base
        rate = int(flow.reference_rate / (flow.utilisation / self.cc["eta"])) + self.cc["rate_ai_bps"]
        rate = max(MIN_RATE, min(self.line_rate, rate))
        change = transmission(flow.last_size, rate) - transmission(flow.last_size, flow.rate)
        flow.rate, flow.next_send = rate, flow.next_send + change
        waiting = self.wake_up[flow.source]
        if waiting and flow.next_send < waiting[0]:
            # Even for a flow that has nothing left to send.
            waiting[2] = None
            sooner = max(flow.next_send, self.now)
            self.wake_up[flow.source] = self.at(sooner, self.wake, flow.source)
        if ack.sequence > flow.window_end:
            flow.reference_rate, flow.window_end = rate, flow.sent

    def on_ack_timely(self, flow, ack):
        if flow.window_end and ack.sequence <= flow.window_end:
            return
        rtt, flow.window_end = self.now - ack.sent, flow.sent
        if flow.previous_rtt is None:
            flow.previous_rtt = rtt
            return
        flow.difference = 0.125 * flow.difference + 0.875 * (rtt - flow.previous_rtt)
        flow.previous_rtt = rtt
        gradient = flow.difference / self.cc["min_rtt_ns"]
        low, high = self.cc["t_low_ns"], self.cc["t_high_ns"]
        if rtt < low or (rtt <= high and gradient <= 0):
            flow.increases += 1
            more = self.cc["rate_hai_bps" if flow.increases > 5 else "rate_ai_bps"]
            rate = flow.rate + more
        else:
            flow.increases = 0
            factor = 1 - 0.8 * (1 - high / rtt) if rtt > high else max(0.0, 1 - 0.8 * gradient)
            rate = flow.rate * factor
        flow.rate = int(max(MIN_RATE, min(self.line_rate, rate)))

    def on_ack_dctcp(self, flow, ack):
        flow.flagged += ack.marked
        new_batch = ack.sequence > flow.window_end
        if new_batch and flow.window_end == 0:
            flow.batch = flow.sent // PAYLOAD + 1
        elif new_batch:
            flow.alpha = (1 - 1 / 16) * flow.alpha + min(1.0, flow.flagged / flow.batch) / 16
            flow.flagged, flow.batch = 0, (flow.sent - ack.sequence) // PAYLOAD + 1
        if new_batch:
            flow.window_end = flow.sent
        if flow.reduced and ack.sequence > flow.reduced_until:
            flow.reduced = False
        if ack.marked and not flow.reduced:
            flow.rate = max(MIN_RATE, int(flow.rate * (1 - flow.alpha / 2)))
            flow.reduced, flow.reduced_until = True, flow.sent
        if new_batch and not flow.reduced:
            flow.rate = min(self.line_rate, flow.rate + self.cc["dctcp_rate_ai_bps"])


# Cases: topologies as (hosts, switches, links, longest way), then flows and the switch's buffer.


def star(hosts):
    return hosts, 1, [[host, hosts] for host in range(hosts)], 2


def dumbbell(side):
    trunk = [[2 * side, 2 * side + 1]]
    return 2 * side, 2, [[h, 2 * side + (h >= side)] for h in range(2 * side)] + trunk, 3


def tree(leaves, each):
    hosts = leaves * each
    trunks = [[hosts + leaf, hosts + leaves] for leaf in range(leaves)]
    return hosts, leaves + 1, [[h, hosts + h // each] for h in range(hosts)] + trunks, 4


def leaf_spine(leaves, spines, each):
    hosts = leaves * each
    trunks = [
        [hosts + leaf, hosts + leaves + spine] for leaf in range(leaves) for spine in range(spines)
    ]
    return hosts, leaves + spines, [[h, hosts + h // each] for h in range(hosts)] + trunks, 4


def fat_tree(k):
    """k pods of k/2 edge and k/2 aggregation switches; the switches follow the hosts in this order:
    all edge switches, all aggregation switches, all core switches."""
    half = k // 2
    hosts, edges = k * half * half, k * half
    edge, aggregation, core = hosts, hosts + edges, hosts + 2 * edges
    links = [[host, edge + host // half] for host in range(hosts)]
    for pod in range(k):
        for a in range(half):
            upper = aggregation + pod * half + a
            links += [[edge + pod * half + e, upper] for e in range(half)]
            links += [[upper, core + a * half + c] for c in range(half)]
    return hosts, 2 * edges + half * half, links, 6


def cases():
    draw = random.Random(7)
    paths = random.Random(11)
    starts = random.Random(13)
    late = lambda: (starts.randrange(5), 5, starts.choice([65536, MIB, 3 * MIB]), starts.randrange(60) * 1000)
    permutation = lambda hosts: dict(zip(range(hosts), shuffled(paths, hosts)))
    sizes = [1, 100, 4096, 4097, 65536, MIB, 3 * MIB]
    mixed = lambda: (draw.randrange(3), 3 + draw.randrange(3), draw.choice(sizes))
    return {
        "tree-incast": (tree(4, 4), [(i, 15, MIB // 2 + i * 777, i * 300) for i in range(15)], 4),
        "tree-both-ways": (
            tree(3, 4),
            [(i, (i + 4) % 12, MIB, 0) for i in range(12)]
            + [((i + 4) % 12, i, MIB, 10000) for i in range(12)],
            8,
        ),
        "mixed-sizes": (star(6), [(*mixed(), draw.randrange(200_000)) for _ in range(40)], 32),
        "several-flows": (dumbbell(4), [(i % 4, 4 + i * 3 % 4, MIB, 0) for i in range(16)], 4),
        "staggered": (star(17), [(i, 16, 2 * MIB + i * 4096, i * 5_000) for i in range(16)], 8),
        "staggered-twice": (
            star(9),
            [(i, 8, MIB, i * 20_000) for i in range(8)]
            + [(i, 8, MIB, 160_000 + i * 20_000) for i in range(8)],
            4,
        ),
        "staggered-tree": (
            tree(2, 3),
            sorted([late() for _ in range(20)], key=lambda flow: flow[3]),
            8,
        ),
        "leaf-spine-permutation": (
            leaf_spine(4, 4, 4),
            [(a, b, 2 * MIB, 0) for a, b in permutation(16).items()],
            32,
        ),
        "leaf-spine-incast": (
            leaf_spine(4, 2, 4),
            [(i, 15 - i % 2, MIB, i * 1_000) for i in range(12)],
            8,
        ),
        "fat-tree-permutation": (
            fat_tree(4),
            [(a, b, 2 * MIB, a * 100) for a, b in permutation(16).items()],
            32,
        ),
        "fat-tree-all-to-all": (
            fat_tree(4),
            [(a, (a + d) % 16, MIB // 8, 0) for a in range(16) for d in range(1, 16)],
            8,
        ),
        "fat-tree-mixed": (
            fat_tree(4),
            sorted(
                [
                    (a, (a + paths.randrange(1, 16)) % 16, paths.choice(sizes), paths.randrange(10**5))
                    for a in range(16)
                    for _ in range(6)
                ],
                key=lambda flow: flow[3],
            ),
            16,
        ),
    }


def shuffled(draw, count):
    """A permutation that leaves nothing in its place."""
    while True:
        order = draw.sample(range(count), count)
        if all(place != to for place, to in enumerate(order)):
            return order


def load(path):
    parameters = tomllib.loads(path.read_text())
    with path.with_suffix(".csv").open() as lines:
        rows = [list(map(int, row)) for row in list(csv.reader(lines))[1:]]
    return parameters, [tuple(row[1:5]) for row in rows], [row[5] for row in rows]


def check(paths):
    for path in paths:
        case, flows, expected = load(path)
        if not case["run"]["deterministic"]:
            continue
        simulation = Simulation(case, flows)
        finishes = simulation.run()
        equal = sum(a == b for a, b in zip(finishes, expected))
        print(f"{path.stem}: {equal} of {len(flows)} finishes equal, {simulation.pauses} pauses")
        if finishes != expected or simulation.pauses != case["result"]["pfc_pauses"]:
            sys.exit(f"{path.stem} differs")


def toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def simulate(case, flows):
    simulation = Simulation(case, flows)
    return simulation.run(), simulation.pauses


def make(folder, run, names):
    """Writes the cases, or those that are named, with what `run` says of them."""
    published = Path(__file__).parents[2] / "crates/packetsim/tests/reference"
    templates = ["star-incast-1m-" + cc for cc in ("dcqcnstep", "dctcp", "timely", "hpcc")]
    folder.mkdir(parents=True, exist_ok=True)
    for name, ((hosts, switches, links, hops), flows, buffer) in cases().items():
        if names and name not in names:
            continue
        for template in [*templates, "pfc-only-none"]:
            case, _, _ = load(published / f"{template}.toml")
            case["topology"] |= {"hosts": hosts, "switches": switches, "links": links}
            case["switch"]["buffer_bytes"] = buffer * MIB
            if "window_bytes" in case["cc"]:
                rtt = 2 * hops * 1000 + hops * 81
                case["cc"] |= {"base_rtt_ns": rtt, "window_bytes": rtt * 50}
            finishes, pauses = run(case, flows)
            stem = f"{name}-{case['case']['cc']}"
            keep = {
                "case": {"name": name, "cc": case["case"]["cc"], "flows_file": stem + ".csv"},
                "run": {"binary": "tools/reference/" + Path(run.__code__.co_filename).name}
                | {"deterministic": True},
                "result": {"pfc_pauses": pauses},
            }
            lines = []
            for section in ("case", "run", *list(case)[2:9], "result"):
                lines.append(f"[{section}]")
                values = keep.get(section, case[section]).items()
                lines += [f"{k} = {toml(v)}" for k, v in values if not isinstance(v, dict)]
            (folder / f"{stem}.toml").write_text("\n".join(lines) + "\n")
            rows = [[n, *flow, end] for n, (flow, end) in enumerate(zip(flows, finishes))]
            with (folder / f"{stem}.csv").open("w", newline="") as out:
                writer = csv.writer(out, lineterminator="\n")
                writer.writerow(["flow", "src", "dst", "bytes", "start_ns", "finish_ns"])
                writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "check":
        check([Path(path) for path in sys.argv[2:]])
    elif len(sys.argv) > 2 and sys.argv[1] == "make":
        make(Path(sys.argv[2]), simulate, sys.argv[3:])
    else:
        sys.exit(__doc__)
