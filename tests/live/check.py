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
        sent = sorted(headers(file) for file in files)
        if shutil.which("tshark"):
            seen, malformed = [], 0
            for file in files:
                fields = "-e infiniband.bth.opcode -e infiniband.bth.destqp -e infiniband.bth.psn"
                command = f"{QUIET} -r {file} -T fields {fields} -e _ws.malformed"
                lines = subprocess.run(command.split(), capture_output=True, text=True, check=True)
                of_file = []
                for line in lines.stdout.splitlines():
                    opcode, pair, psn, bad = line.split("\t")
                    of_file.append((int(opcode, 0), int(pair, 0), int(psn, 0)))
                    malformed += bad != ""
                seen.append(of_file)
            told = row["packets"]["sent"] + row["packets"]["received"]
            count = sum(len(of_file) for of_file in seen)
            check("tshark", (count, malformed) == (told, 0), f"{count} of {told}, {malformed}")
            check("tshark", sorted(seen) == sent, "another opcode, queue pair or PSN")
            print(f"  {name}: tshark reads {count} packets as they were sent, none malformed", flush=True)
        else:
            print("  skipped: tshark is not installed", flush=True)
        try:
            from scapy.contrib.roce import BTH  # noqa: F401
            from scapy.layers.inet import IP
            from scapy.layers.inet6 import IPv6
            from scapy.utils import RawPcapReader
        except ImportError:
            print("  skipped: scapy is not installed", flush=True)
            return row["packets"]["cnps"]
        count = notified = 0
        for data, _ in (one for file in files for one in RawPcapReader(str(file))):
            packet = IP(data) if data[0] >> 4 == 4 else IPv6(data)
            check("scapy", packet[BTH].compute_icrc(b"") == data[-4:], packet.summary())
            count, notified = count + 1, notified + (packet[BTH].opcode == 0x81)
        # Older versions of tshark do not know notifications; scapy does.
        check("scapy", notified == 2 * row["packets"]["cnps"], (notified, row["packets"]))
        print(f"  {name}: scapy agrees with the ICRC of {count} packets, {notified} CNPs", flush=True)
        return row["packets"]["cnps"]


def headers(file):
    """Opcode, queue pair and PSN of every packet, from the bytes that were written."""
    data, found, at = file.read_bytes(), [], 24
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        packet = data[at + 16 : at + 16 + length]
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


def notified():
    """Captures of a run with congestion notifications."""
    with tempfile.TemporaryDirectory() as folder:
        flows = pathlib.Path(folder) / "two.csv"
        flows.write_text("src,dst,bytes,start_ns\n0,2,2000000,0\n1,3,2000000,0\n")
        scenario = f"{HERE}/../../scenarios/live-two.toml"
        return captured(what="traffic", sets=[f"traffic.flows={flows}"], scenario=scenario)


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


def agents():
    """Agents on loopback: a run, a wrong token, too fast, a controller that is killed."""
    with tempfile.TemporaryDirectory() as folder:
        token, wrong = pathlib.Path(folder) / "token", pathlib.Path(folder) / "wrong"
        token.write_text("a token of some length\n")
        wrong.write_text("another token of some length\n")
        hosts = pathlib.Path(folder) / "hosts.txt"
        hosts.write_text("".join(f"127.0.0.1:{4801 + n} 127.0.1.{2 + n}\n" for n in range(4)))
        started = [
            subprocess.Popen(
                [FATFLOW, "live", "agent", "--listen", f"127.0.0.1:{4801 + n}"]
                + ["--token-file", str(token), "--most-rate", "200Mbps"],
                stderr=subprocess.PIPE, text=True,
            )
            for n in range(4)
        ]
        try:
            for agent in started:
                agent.stderr.readline()
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
            for agent in started:
                agent.kill()
                agent.wait()
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
        for one in started:
            one.kill()
            one.wait()
    print(f"  agents in a containerlab file's namespaces: 4 paths by {found['probes']} probes, sums right", flush=True)


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
    for victim in ["controller", "a rank", "a switch"]:
        nothing_is_left("--on", "namespaces", victim=victim)


def main():
    begin = time.time()
    for collective in COLLECTIVES:
        undisturbed(collective)
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
    check("captures", 0 < notified(), "no notification was captured")
    incast()
    pauses()
    controls()
    agents()
    probed()
    laboratory()
    nothing_is_left()
    nothing_is_left(victim="a rank")
    namespaces()
    print(f"live: all as it should be, {time.time() - begin:.0f} s")


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    main()
