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

FATFLOW, SCENARIO = sys.argv[1:3]
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
QUIET = "tshark -o infiniband.identify_payload:FALSE --disable-protocol rpcordma --disable-protocol infiniband.eoib"


def live(collective, *arguments, sets=(), size="256K"):
    """The first row of a run."""
    command = [FATFLOW, "live", collective, SCENARIO, "-b", size, "-e", size, "--json", *arguments]
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


def nothing_is_left(*arguments):
    before = set(children())
    command = [FATFLOW, "live", "all_reduce", SCENARIO, "-b", "16M", "-e", "16M", *arguments]
    controller = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.time() + 30
    while time.time() < until and len(set(children()) - before) < 8:
        time.sleep(0.05)
    check("kill", set(children()) - before, "the ranks never came")
    time.sleep(0.5)
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    until = time.time() + 10
    while time.time() < until and set(children()) - before:
        time.sleep(0.05)
    left = set(children()) - before
    check(f"after kill -9 {' '.join(arguments)}", not left, f"processes {left} are left")
    print(f"  after kill -9 of the controller {' '.join(arguments)}: nothing is left", flush=True)


def captured():
    """tshark and scapy read what the ranks captured."""
    with tempfile.TemporaryDirectory() as folder:
        row = live("all_to_all", "--on", "loopback", "--pcap", f"{folder}/run.pcap")["rows"][0]
        files = sorted(pathlib.Path(folder).iterdir())
        check("captures", len(files) == 8, files)
        observed = {"data": 0, "acks": 0, "cnps": 0, "retransmitted": 0, "bytes": 0}
        for file in files:
            command = [FATFLOW, "observe", str(file), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            packets = json.loads(done.stdout)["result"]["packets"]
            observed = {key: count + packets[key] for key, count in observed.items()}
        # Every packet was captured where it left and where it arrived.
        told = {key: 2 * row["packets"][key] for key in observed}
        check("observe", observed == told, f"{observed}, told {told}")
        print(f"  observe counts what the run counts: {observed['data'] // 2} with data", flush=True)
        if shutil.which("tshark"):
            packets = malformed = 0
            for file in files:
                command = f"{QUIET} -r {file} -T fields -e infiniband.bth.opcode -e _ws.malformed"
                lines = subprocess.run(command.split(), capture_output=True, text=True, check=True)
                for line in lines.stdout.splitlines():
                    opcode, bad = line.split("\t")
                    packets += opcode != ""
                    malformed += bad != ""
            told = row["packets"]["sent"] + row["packets"]["received"]
            check("tshark", (packets, malformed) == (told, 0), f"{packets} of {told}, {malformed}")
            print(f"  tshark reads {packets} packets, none malformed", flush=True)
        else:
            print("  skipped: tshark is not installed", flush=True)
        try:
            from scapy.contrib.roce import BTH  # noqa: F401
            from scapy.layers.inet import IP
            from scapy.utils import RawPcapReader
        except ImportError:
            print("  skipped: scapy is not installed", flush=True)
            return
        count = 0
        for data, _ in RawPcapReader(str(files[0])):
            packet = IP(data)
            bth = packet[BTH]
            check("scapy", bth.compute_icrc(b"") == data[-4:], packet.summary())
            count += 1
        print(f"  scapy agrees with the ICRC of {count} packets", flush=True)


def namespaces():
    result = live("all_reduce", "--on", "namespaces", size="64K")
    if "namespaces" not in result["on"]:
        print(f"  skipped, namespaces: {result['findings'][-1]}", flush=True)
        return
    for function in ["linux", "linux-custom"]:
        # With 17 the seed of the first leaf would be 0, which Linux reads as "any".
        for seed in [1, 17]:
            sets = [f"seed={seed}", f"network.routing.function={function}"]
            row = undisturbed("all_to_all", "--on", "namespaces", sets=sets)
            for uplink in row["uplinks"]:
                # Acknowledgements cross uplinks too, and are no payload.
                check("uplink", uplink["bytes"] >= uplink["predicted_bytes"], uplink)
    nothing_is_left("--on", "namespaces")


def main():
    begin = time.time()
    for collective in COLLECTIVES:
        undisturbed(collective)
    for reorder in ["none", "selective-repeat"]:
        for collective in COLLECTIVES:
            disturbed(collective, reorder)
    for policy in ["e-ecmp", "path-pinning"]:
        undisturbed("all_to_all", sets=[f"network.routing.policy={policy}"])
    sprayed = ["network.routing.policy=spray", "network.nic.reorder=selective-repeat"]
    uplinks_as_predicted(live("all_reduce", sets=sprayed)["rows"][0])
    undisturbed("all_reduce", "--on", "loopback")
    captured()
    nothing_is_left()
    namespaces()
    print(f"live: all as it should be, {time.time() - begin:.0f} s")


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    main()
