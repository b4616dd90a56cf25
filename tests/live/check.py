"""Holds `fatflow live` against what it must do: right sums, predicted paths, nothing left behind.

check.py FATFLOW SCENARIO. With tshark and scapy installed it also has them read the captures.
"""

import json
import os
import pathlib
import signal
import shutil
import subprocess
import sys
import tempfile
import time

from lab import Lab

try:
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP
    from scapy.layers.inet6 import IPv6
    from scapy.utils import RawPcapReader
except ImportError:
    BTH = None

FATFLOW, SCENARIO = sys.argv[1:3]
HERE = pathlib.Path(__file__).resolve().parent
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
QUIET = "tshark -o infiniband.identify_payload:FALSE --disable-protocol rpcordma --disable-protocol infiniband.eoib"


def live(collective, *arguments, sets=(), size="256K", scenario=None):
    """The result of a run."""
    command = [FATFLOW, "live", collective, scenario or SCENARIO, "--json", *arguments]
    command += ["-b", size, "-e", size]
    for one in sets:
        command += ["--set", one]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return json.loads(done.stdout)["result"]


def check(what, truth, detail=""):
    assert truth, f"{what}: {detail}"


def undisturbed(collective, *arguments, sets=()):
    result = live(collective, *arguments, sets=sets)
    row = result["rows"][0]
    packets = row["packets"]
    name = f"{collective} {' '.join(arguments)} {' '.join(sets)}"
    check(name, row["sums_right"], "a sum is wrong")
    check(name, packets["retransmitted"] == 0, f"retransmitted {packets['retransmitted']}")
    check(name, packets["icrc_wrong"] == 0, packets)
    right, known = row["paths_as_predicted"]
    if "loopback" not in arguments:
        check(name, known == len(row["queue_pairs"]) == right, f"{right} of {known} paths")
    print(f"  {name}: {row['time_us'] / 1e3:.0f} ms, {known} queue pairs", flush=True)
    return row


def disturbed(collective, reorder):
    injected = ["--loss", "1%", "--reorder", "5%", "--duplicate", "1%"]
    row = live(collective, *injected, sets=[f"network.nic.reorder={reorder}"])["rows"][0]
    check(f"{collective} disturbed, {reorder}", row["sums_right"], row["packets"])
    again, injected = row["packets"]["retransmitted"], row["packets"]["injected"]
    print(f"  {collective}, {reorder}: injected {injected}, sent again {again}", flush=True)


def uplinks_as_predicted(row):
    """Sprayed packets are dealt out evenly, and to the links that were predicted."""
    for uplink in row["uplinks"]:
        check("spray", uplink["packets"] == uplink["predicted_packets"], uplink)


def children():
    """Processes of live runs that are there."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:1] == [FATFLOW.encode()] and b"process" in words:
            found.append(int(entry.name))
    return found


def nothing_is_left(*arguments, victim="controller"):
    """After kill -9 of the controller, or of one of its processes, everything is gone."""
    before = set(children())
    command = [FATFLOW, "live", "all_reduce", SCENARIO, "-b", "16M", "-e", "16M", *arguments]
    controller = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.time() + 30
    while time.time() < until and len(set(children()) - before) < 8:
        time.sleep(0.05)
    check("kill", set(children()) - before, "the ranks never came")
    time.sleep(0.5)
    if victim == "controller":
        controller.send_signal(signal.SIGKILL)
    else:
        # Ranks are started first, then the switches of namespaces.
        of_run = sorted(set(children()) - before)
        os.kill(of_run[0] if victim == "a rank" else of_run[-1], signal.SIGKILL)
    check(f"kill -9 of {victim}", controller.wait(timeout=30) != 0, "the run went on")
    until = time.time() + 10
    while time.time() < until and set(children()) - before:
        time.sleep(0.05)
    left = set(children()) - before
    check(f"after kill -9 {' '.join(arguments)}", not left, f"processes {left} are left")
    print(f"  after kill -9 of {victim} {' '.join(arguments)}: nothing is left", flush=True)


def captured(*arguments, what="all_to_all", **more):
    """tshark, scapy and observe read what the ranks captured; how many notifications there were."""
    name = " ".join([what, *arguments])
    with tempfile.TemporaryDirectory() as folder:
        result = live(what, *arguments, "--pcap", f"{folder}/run.pcap", **more)
        row, files = result["rows"][0], sorted(pathlib.Path(folder).iterdir())
        check("captures", len(files) == result["ranks"], files)
        observed = {"data": 0, "acks": 0, "cnps": 0, "retransmitted": 0, "bytes": 0}
        for file in files:
            command = [FATFLOW, "observe", str(file), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            packets = json.loads(done.stdout)["result"]["packets"]
            observed = {key: count + packets[key] for key, count in observed.items()}
        # Every packet was captured where it left and where it arrived.
        told = {key: 2 * row["packets"][key] for key in observed}
        check("observe", observed == told, f"{observed}, told {told}")
        print(f"  {name}: observe counts what the run counts: {told['data'] // 2} with data", flush=True)
        told = row["packets"]["sent"] + row["packets"]["received"]
        # In one file, since tshark takes long to start.
        whole = files[0].with_name("whole.pcap")
        whole.write_bytes(files[0].read_bytes() + b"".join(file.read_bytes()[24:] for file in files[1:]))
        if shutil.which("tshark"):
            seen = dissected(whole)
            check("tshark", len(seen) == told, f"{len(seen)} of {told}")
            check("tshark", seen == headers(whole), "another opcode, queue pair or PSN")
            print(f"  {name}: tshark reads {told} packets as they were sent, none malformed", flush=True)
        else:
            print("  skipped: tshark is not installed", flush=True)
        if BTH:
            count, notified = agreed(whole)
            # Older versions of tshark do not know notifications; scapy does.
            check("scapy", (count, notified) == (told, 2 * row["packets"]["cnps"]), (notified, row["packets"]))
            print(f"  {name}: scapy agrees with the ICRC of {count} packets, {notified} CNPs", flush=True)
        else:
            print("  skipped: scapy is not installed", flush=True)
        return row["packets"]["cnps"]


def dissected(file):
    """Opcode, queue pair and PSN of every packet, as tshark reads them; none may be malformed."""
    fields = "-e infiniband.bth.opcode -e infiniband.bth.destqp -e infiniband.bth.psn"
    command = f"{QUIET} -r {file} -T fields {fields} -e _ws.malformed"
    lines = subprocess.run(command.split(), capture_output=True, text=True, check=True)
    found = []
    for line in lines.stdout.splitlines():
        *numbers, malformed = line.split("\t")
        check("tshark", malformed == "", line)
        found.append(tuple(int(number, 0) for number in numbers))
    return found


def agreed(file, link=0):
    """How many packets scapy agrees with the ICRC of, and how many of them are notifications."""
    count = notified = 0
    for data, _ in RawPcapReader(str(file)):
        data = data[link:]
        packet = IP(data) if data[0] >> 4 == 4 else IPv6(data)
        check("scapy", packet[BTH].compute_icrc(b"") == data[-4:], packet.summary())
        count, notified = count + 1, notified + (packet[BTH].opcode == 0x81)
    return count, notified


def on_the_device():
    """What leaves by sockets, captured by another program: tshark and scapy read that too."""
    if not shutil.which("dumpcap") or not shutil.which("tshark"):
        print("  skipped, captures of a device: tshark is not installed", flush=True)
        return
    rule = "ecn ect0 limit rate over 500/second burst 20 packets"
    rules = "add table inet marks; add chain inet marks out { type filter hook output priority 0 ; }"
    for family in ["ip", "ip6"]:
        rules += f"; add rule inet marks out udp dport 4791 {family} {rule} {family} ecn set ce"
    wiring = "ip link set dev lo up; "
    wiring += "".join(f"ip addr add fd03::{2 + n}/128 dev lo nodad; " for n in range(4))
    wiring += f"nft '{rules}' 2>/dev/null && echo marks || echo; exec cat"
    held = subprocess.Popen(
        ["unshare", "--net", "--", "sh", "-c", wiring], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        said = held.stdout.readline()
        if not said:
            print("  skipped, captures of a device: network namespaces are refused here", flush=True)
            return
        inside = ["nsenter", "--net", "--target", str(held.pid), "--"]
        for data in ["127.0.1.", "fd03::"]:
            on_a_device(inside, data, said.strip() == "marks")
    finally:
        stop([held])


def on_a_device(inside, data, marks):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        token, hosts, file = folder / "token", folder / "hosts.txt", folder / "device.pcap"
        token.write_text("a token of some length\n")
        flows = folder / "two.csv"
        flows.write_text("src,dst,bytes,start_ns\n0,2,2000000,0\n1,3,2000000,0\n")
        started = start_agents(hosts, token, data=data, inside=inside)
        try:
            capture = [*inside, "dumpcap", "-q", "-P", "-i", "lo", "-B", "64", "-f", "udp port 4791"]
            dump = subprocess.Popen([*capture, "-w", str(file)], stderr=subprocess.PIPE, text=True)
            started.append(dump)
            while not dump.stderr.readline().startswith("File:"):
                check("dumpcap", dump.poll() is None, "it did not begin")
            command = [*inside, FATFLOW, "live", "traffic", f"{HERE}/../../scenarios/live-two.toml"]
            command += ["--json", "--agents", str(hosts), "--token-file", str(token)]
            command += ["--set", f"traffic.flows={flows}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
            check("on a device", done.returncode == 0, done.stderr)
            packets = json.loads(done.stdout)["result"]["rows"][0]["packets"]
            time.sleep(0.5)  # What was sent last is captured soon.
            dump.send_signal(signal.SIGINT)
            dump.wait(timeout=30)
        finally:
            stop(started)
        seen = dissected(file)
        check("on a device", len(seen) == packets["sent"], f"{len(seen)} seen, {packets}")
        check("on a device", seen == headers(file, link=14), "another opcode, queue pair or PSN")
        if BTH:
            read = agreed(file, link=14)
            check("on a device", read == (packets["sent"], packets["cnps"]), f"{read}, {packets}")
        check("on a device", not marks or 0 < packets["cnps"], "nothing was marked")
        print(f"  on a device, {data}: {len(seen)} packets, {packets['cnps']} CNPs, as sent", flush=True)


def headers(file, link=0):
    """Opcode, queue pair and PSN of every packet, from the bytes that were written."""
    data, found, at = file.read_bytes(), [], 24
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        packet = data[at + 16 + link : at + 16 + length]
        start = 28 if packet[0] >> 4 == 4 else 48
        number = [int.from_bytes(packet[start + i : start + i + 3], "big") for i in (5, 9)]
        found.append((packet[start], *number))
        at += 16 + length
    return found


def incast():
    """With clear-to-send the queue stays within what was granted; without it does not."""
    scenario = f"{HERE}/../../scenarios/live-incast.toml"
    # Whole packets as the switch and the engine count them, and one more.
    granted = (256 * 1024 // 4096 + 1) * (4096 + 82)
    peaks = {}
    for policy in ["none", "receiver-driven"]:
        sets = [f"network.admission.policy={policy}"]
        row = live("traffic", sets=sets, scenario=scenario)["rows"][0]
        check("incast", row["sums_right"], row["packets"])
        port = row["ports"][0]
        peaks[policy] = (port["peak_queue_bytes"], port["predicted_peak_queue_bytes"], port["drops"])
    peak, predicted, drops = peaks["receiver-driven"]
    check("granted", peak <= granted and predicted <= granted and drops == 0, peaks)
    peak, predicted, drops = peaks["none"]
    check("not granted", granted < peak and granted < predicted and 0 < drops, peaks)
    print(f"  incast of 8, peak queue, predicted, drops: {peaks}, granted {granted}", flush=True)


def pauses():
    """A switch that is filled pauses, and loses nothing."""
    scenario = f"{HERE}/../../scenarios/live-incast.toml"
    row = live("traffic", sets=["network.pfc.enabled=true"], scenario=scenario)["rows"][0]
    packets = row["packets"]
    check("pauses", row["sums_right"] and packets["drops"] == 0 and 0 < packets["pauses"], packets)
    print(f"  pauses: {packets['pauses']}, and no drops", flush=True)


def controls():
    """The packet engine's DCQCN says the same to what was recorded."""
    scenario = f"{HERE}/../../scenarios/live-two.toml"
    with tempfile.TemporaryDirectory() as folder:
        flows = pathlib.Path(folder) / "two.csv"
        flows.write_text("src,dst,bytes,start_ns\n0,2,12000000,0\n1,3,12000000,0\n")
        record = ["--record", f"{folder}/record.jsonl", "--flows-out", f"{folder}/flows.csv"]
        sets = [f"traffic.flows={flows}"]
        row = live("traffic", *record, sets=sets, scenario=scenario)["rows"][0]
        control = row["control"]
        check("controls", control["same"] == control["steps"] and 0 < control["cnps"], control)
        command = [FATFLOW, "observe", f"{folder}/flows.csv", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)["result"]["flows"]
        check("flows", (found["flows"], found["completed"], found["bytes"]) == (2, 2, 24000000), found)
    print(f"  DCQCN: {control}; its flows are read by observe", flush=True)


def notified(*arguments):
    """Captures of a run with congestion notifications."""
    with tempfile.TemporaryDirectory() as folder:
        flows = pathlib.Path(folder) / "two.csv"
        flows.write_text("src,dst,bytes,start_ns\n0,2,2000000,0\n1,3,2000000,0\n")
        scenario = f"{HERE}/../../scenarios/live-two.toml"
        return captured(*arguments, what="traffic", sets=[f"traffic.flows={flows}"], scenario=scenario)


def probed():
    """Paths and hash are found, through the switch and, where allowed, Linux's routers."""
    places = ["switch", "switch"]
    try:
        found = probe("namespaces", "--hops", "3", "--burst", "0")
        check("probe", (found["paths"], found["hashes_qpn"], found["unanswered"]) == (4, False, 0), found)
        custom = ["--set", "network.routing.function=linux-custom", "--ipv6"]
        found = probe("namespaces", "--burst", "0", *custom)
        check("probe", found["as_predicted"] == [272, 272], found["as_predicted"])
        found = probe("namespaces", "--gap-ms", "0", "--burst", "0", "--queue-pairs", "64")
        check("limits", 0 < found["unanswered"], found["unanswered"])
        places.append("namespaces")
    except AssertionError as error:
        if "refused" not in str(error):
            raise
        print("  skipped, probes of namespaces: they are refused here", flush=True)
    found = probe("switch")
    check("probe", (found["paths"], found["hashes_qpn"], found["polarised"]) == (4, False, None), found)
    classes = {one["dscp"]: one["passes_data"] for one in found["classes"]}
    check("classes", classes[48] and not classes[0] and not classes[26], classes)
    found = probe("switch", "--set", "network.routing.hash=5-tuple+qpn", "--ipv6")
    check("probe", (found["paths"], found["hashes_qpn"]) == (4, True), found)
    print(f"  probes find 4 paths and the hash: {', '.join(places)}", flush=True)


def probe(place, *arguments):
    command = [FATFLOW, "live", "probe", SCENARIO, "--json", "--on", place, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return json.loads(done.stdout)["result"]


def start_agents(hosts, token, *more, data="127.0.1.", inside=()):
    """Four agents on loopback, which listen; their addresses are written into `hosts`."""
    lines = [f"127.0.0.1:{4801 + n} {data}{2 + n}\n" for n in range(4)]
    hosts.write_text("".join(lines))
    started = []
    for line in lines:
        command = [FATFLOW, "live", "agent", "--listen", line.split()[0], "--token-file", str(token)]
        command = [*inside, *command, *more]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for agent in started:
        agent.stderr.readline()
    return started


def stop(processes):
    for process in processes:
        process.kill()
        process.wait()


def encrypted():
    """Agents that speak TLS do so with whoever knows their certificate, and with nobody else."""
    if not shutil.which("openssl"):
        print("  skipped, agents with TLS: openssl is not installed", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        token, hosts = folder / "token", folder / "hosts.txt"
        token.write_text("a token of some length\n")
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        words += " -subj /CN=agent -addext subjectAltName=IP:127.0.0.1"
        words += f" -addext basicConstraints=critical,CA:FALSE -keyout {key} -out {certificate}"
        subprocess.run(words.split(), capture_output=True, check=True)
        identity = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
        started = start_agents(hosts, token, *identity)
        command = ["--agents", str(hosts), "-g", "4", "--token-file", str(token)]
        try:
            row = live("all_reduce", *command, "--tls-authority", str(certificate))["rows"][0]
            check("TLS", row["sums_right"], row["packets"])
            try:
                live("all_reduce", *command)
                refused = ""
            except AssertionError as error:
                refused = str(error)
            check("TLS", "asked without TLS" in refused, refused)
        finally:
            stop(started)
    print("  agents with TLS: sums right; without TLS they do not speak", flush=True)


def agents():
    """Agents on loopback: a run, a wrong token, too fast, a controller that is killed."""
    with tempfile.TemporaryDirectory() as folder:
        token, wrong = pathlib.Path(folder) / "token", pathlib.Path(folder) / "wrong"
        token.write_text("a token of some length\n")
        wrong.write_text("another token of some length\n")
        hosts = pathlib.Path(folder) / "hosts.txt"
        started = start_agents(hosts, token, "--most-rate", "200Mbps")
        try:
            command = ["--agents", str(hosts), "-g", "4", "--token-file"]
            row = live("all_reduce", *command, str(token))["rows"][0]
            check("agents", row["sums_right"] and row["packets"]["retransmitted"] == 0, row["packets"])
            for more, reason in [([str(wrong)], "token is wrong"), ([str(token), "--rate", "1Gbps"], "at most")]:
                try:
                    live("all_reduce", *command, *more)
                    refused = ""
                except AssertionError as error:
                    refused = str(error)
                check("agents", reason in refused, refused)
            whole = [FATFLOW, "live", "all_reduce", SCENARIO, "-b", "64M", "-e", "64M", *command, str(token)]
            controller = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until = time.time() + 30
            while time.time() < until and len(children()) < 4:
                time.sleep(0.05)
            check("agents", 4 <= len(children()), "the ranks never came")
            controller.send_signal(signal.SIGKILL)
            controller.wait()
            until = time.time() + 10
            while time.time() < until and children():
                time.sleep(0.05)
            check("agents", not children(), "ranks are left")
        finally:
            stop(started)
    print("  agents: sums right; a wrong token and too high a rate are refused; nothing is left", flush=True)


def laboratory():
    """Agents on the servers of a containerlab file: what is between them is found, and a run is right."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        topology, hosts, token = folder / "lab.clab.yml", folder / "hosts.txt", folder / "token"
        written = subprocess.run([FATFLOW, "topo", SCENARIO, "--clab"], capture_output=True, text=True, check=True)
        topology.write_text(written.stdout)
        token.write_text("a token of some length\n")
        try:
            with Lab(topology) as lab:
                in_laboratory(lab, topology, hosts, token, folder)
        except PermissionError as error:
            print(f"  skipped, agents in namespaces: {error}", flush=True)


def in_laboratory(lab, topology, hosts, token, folder):
    hosts.write_text("".join(f"{lab.management(one)} {lab.data(one)}\n" for one in lab.servers))
    agent = [FATFLOW, "live", "agent", "--listen", "0.0.0.0:4792", "--token-file", str(token)]
    started = [
        subprocess.Popen(lab.inside(one, *agent), stderr=subprocess.PIPE, text=True) for one in lab.servers
    ]
    try:
        for one in started:
            one.stderr.readline()
        controller = lab.inside("management", FATFLOW, "live")
        shared = ["--json", "--agents", str(hosts), "--token-file", str(token)]

        def control(*arguments):
            command = [*controller, *arguments, *shared]
            done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
            return json.loads(done.stdout)["result"]

        # The routers of this laboratory answer everything.
        found = control("probe", "--gap-ms", "4", "--write", str(folder / "found.toml"))
        told = [found[key] for key in ["paths", "hashes_qpn", "hops", "unanswered", "rests_on"]]
        check("probe", told == [4, False, 3, 0, 64], found)
        check("probe", "spines = 4" in (folder / "found.toml").read_text(), "no scenario of it")
        sets = ["--set", "fabric.topology=file", "--set", f"fabric.file={topology}"]
        flows = ["--flows-out", str(folder / "flows.csv"), "-b", "256K", "-e", "256K"]
        row = control("all_reduce", SCENARIO, *sets, *flows)["rows"][0]
        check("agents", row["sums_right"] and row["packets"]["retransmitted"] == 0, row["packets"])
        command = [FATFLOW, "observe", str(folder / "flows.csv"), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        read = json.loads(done.stdout)["result"]["flows"]
        check("flows", read["flows"] == read["completed"] and 0 < read["flows"], read)
    finally:
        stop(started)
    print(f"  agents in a containerlab file's namespaces: 4 paths by {found['probes']} probes, sums right", flush=True)


def refused():
    """Where namespaces are refused a run is on loopback, and says so."""
    inside = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\""
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", inside, "sh"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        print("  skipped, refused namespaces: user namespaces are refused here", flush=True)
        return
    command += [FATFLOW, "live", "all_reduce", SCENARIO, "-b", "64K", "-e", "64K", "--on", "namespaces"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=110, check=False)
    check("refused", done.returncode == 0, done.stderr)
    result = json.loads(done.stdout)["result"]
    told = "namespaces are refused here" in result["findings"][-1]
    check("refused", result["on"] == "straight over loopback" and told, result["findings"])
    check("refused", result["rows"][0]["sums_right"], result["rows"])
    print("  where namespaces are refused: on loopback, and said", flush=True)


def namespaces():
    result = live("all_reduce", "--on", "namespaces", size="64K")
    if "namespaces" not in result["on"]:
        print(f"  skipped, namespaces: {result['findings'][-1]}", flush=True)
        return
    undisturbed("all_reduce", "--on", "loopback", "--ipv6", "--offload")
    undisturbed("all_reduce", "--on", "namespaces", "--ipv6", "--offload")
    for function in ["linux", "linux-custom"]:
        # With 17 the seed of the first leaf would be 0, which Linux reads as "any".
        for seed in [1, 17]:
            sets = [f"seed={seed}", f"network.routing.function={function}"]
            family = ["--ipv6"] if (seed, function) == (17, "linux") else []
            row = undisturbed("all_to_all", "--on", "namespaces", *family, sets=sets)
            for uplink in row["uplinks"]:
                # Acknowledgements cross uplinks too, and are no payload.
                check("uplink", uplink["bytes"] >= uplink["predicted_bytes"], uplink)
    # Two GPUs of a server meet in local sockets, which namespaces do not part.
    two = ["cluster.gpus_per_node=2", "cluster.nics_per_node=2", "cluster.gpus=8"]
    undisturbed("all_reduce", "--on", "namespaces", sets=two)
    marked()
    for victim in ["controller", "a rank", "a switch"]:
        nothing_is_left("--on", "namespaces", victim=victim)


def marked():
    """Linux's routers mark where a filter can, and where none can nobody speaks of zero."""
    with tempfile.TemporaryDirectory() as folder:
        flows = pathlib.Path(folder) / "two.csv"
        flows.write_text("src,dst,bytes,start_ns\n0,2,4000000,0\n1,3,4000000,0\n")
        scenario = f"{HERE}/../../scenarios/live-two.toml"
        result = live("traffic", "--on", "namespaces", sets=[f"traffic.flows={flows}"], scenario=scenario)
    packets = result["rows"][0]["packets"]
    if any("no marks here" in finding for finding in result["findings"]):
        check("marks", packets["marked"] is None, packets)
        print("  skipped, marks of Linux's routers: nftables is not there", flush=True)
        return
    check("marks", 0 < packets["cnps"] <= packets["marked"], packets)
    print(f"  Linux's routers marked {packets['marked']} packets, {packets['cnps']} CNPs", flush=True)


def main():
    begin = time.time()
    for reorder in ["none", "selective-repeat"]:
        for collective in COLLECTIVES:
            undisturbed(collective, sets=[f"network.nic.reorder={reorder}"])
    undisturbed("all_reduce", "--ipv6", sets=["library.algorithm=tree"])
    undisturbed("all_to_all", sets=["network.nic.verb=read"])
    for reorder in ["none", "selective-repeat"]:
        for collective in COLLECTIVES:
            disturbed(collective, reorder)
    for policy in ["e-ecmp", "path-pinning"]:
        undisturbed("all_to_all", sets=[f"network.routing.policy={policy}"])
    sprayed = ["network.routing.policy=spray", "network.nic.reorder=selective-repeat"]
    uplinks_as_predicted(live("all_reduce", sets=sprayed)["rows"][0])
    undisturbed("all_reduce", "--on", "loopback")
    captured("--on", "loopback")
    captured("--ipv6")
    for family in [[], ["--ipv6"]]:
        check("captures", 0 < notified(*family), "no notification was captured")
    on_the_device()
    incast()
    pauses()
    controls()
    agents()
    encrypted()
    refused()
    probed()
    laboratory()
    nothing_is_left()
    nothing_is_left(victim="a rank")
    namespaces()
    print(f"live: all as it should be, {time.time() - begin:.0f} s")


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    main()
