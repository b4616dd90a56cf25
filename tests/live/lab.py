"""A containerlab topology file wired as network namespaces: what `containerlab deploy` would do.

Every node of the file is a namespace without a name, held by a process. Links are veth pairs, one
subnet each; switches route with one route for each server, over all shortest ways. A switch apart
from the fabric is the management network, from which agents are reached. All of it vanishes with
the processes.
"""

import collections
import re
import subprocess


class Lab:
    """The nodes of a topology file; `with Lab(path) as lab`."""

    def __init__(self, path):
        text = open(path, encoding="utf-8").read()
        self.links = re.findall(r'endpoints: \["([^":]+):[^"]+", "([^":]+):[^"]+"\]', text)
        kinds = dict(re.findall(r"^    (\S+): \{kind: (\S+?)[,}]", text, re.M))
        self.servers = [name for name, kind in kinds.items() if kind == "linux"]
        self.switches = [name for name in kinds if name not in self.servers]
        self.nodes = ["management", *self.servers, *self.switches]
        self.processes = {}

    def __enter__(self):
        try:
            for node in self.nodes:
                held = ["unshare", "--net", "--", "sh", "-c", "echo; exec cat"]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
                self.processes[node] = subprocess.Popen(held, **pipes)
                if self.processes[node].stdout.readline() != b"\n":
                    raise PermissionError("network namespaces are refused here")
            self._wire()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def inside(self, node, *command):
        """A command as it runs in the namespace of a node."""
        return ["nsenter", "--net", "--target", str(self.processes[node].pid), "--", *command]

    def data(self, server):
        """The address of a server on the fabric."""
        return f"10.200.{self._first_link(server)}.1"

    def management(self, server):
        """Its address on the management network."""
        return f"172.20.20.{2 + self.servers.index(server)}"

    def _first_link(self, server):
        return next(at for at, ends in enumerate(self.links) if server in ends)

    def _batch(self, node, lines):
        command = self.inside(node, "ip", "-batch", "-")
        subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)

    def _wire(self):
        lines = collections.defaultdict(lambda: ["link set dev lo up"])
        cables, neighbours = [], collections.defaultdict(list)
        for at, (near, far) in enumerate(self.links):
            # The server's end, if there is one, has the address ending in 1.
            near, far = (far, near) if near in self.servers else (near, far)
            cables.append((f"f{at}a", near, f"f{at}b", far))
            for device, node, last in [(f"f{at}a", near, 0), (f"f{at}b", far, 1)]:
                lines[node] += [f"addr add 10.200.{at}.{last}/31 dev {device}", f"link set dev {device} up"]
            neighbours[near].append((far, f"10.200.{at}.1"))
            neighbours[far].append((near, f"10.200.{at}.0"))
        lines["management"] += ["link add name net0 type bridge", "addr add 172.20.20.1/24 dev net0", "link set dev net0 up"]
        for at, server in enumerate(self.servers):
            cables.append((f"m{at}", "management", "eth0", server))
            lines["management"] += [f"link set dev m{at} master net0", f"link set dev m{at} up"]
            lines[server] += [f"addr add {self.management(server)}/24 dev eth0", "link set dev eth0 up"]
            lines[server].append(f"route add 10.200.0.0/16 via {neighbours[server][0][1]}")
        for switch in self.switches:
            for server in self.servers:
                lines[switch] += self._route(switch, server, neighbours)
        veths = [
            f"link add name {a} mtu 9000 netns {self.processes[x].pid} type veth peer name {b} mtu 9000 netns {self.processes[y].pid}"
            for a, x, b, y in cables
        ]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(veths) + "\n", text=True, check=True)
        settings = "ip_forward=1 fib_multipath_hash_policy=1 icmp_ratelimit=0 icmp_msgs_per_sec=100000 icmp_msgs_burst=10000"
        for node in self.nodes:
            if node in self.switches:
                words = [f"net.ipv4.{one}" for one in settings.split()]
                subprocess.run(self.inside(node, "sysctl", "-q", *words), check=True)
            self._batch(node, lines[node])

    def _route(self, switch, server, neighbours):
        """Towards a server over all shortest ways."""
        far, queue = {server: 0}, collections.deque([server])
        while queue:
            node = queue.popleft()
            for other, _ in neighbours[node]:
                if other not in far and (other in self.switches or node == server):
                    far[other] = far[node] + 1
                    queue.append(other)
        ways = [via for other, via in neighbours[switch] if far.get(other, 99) == far[switch] - 1]
        if far[switch] == 1:
            return []  # Its own link leads there.
        hops = " ".join(f"nexthop via {via}" for via in ways)
        return [f"route add {self.data(server)}/32 {hops}"]
