#!/usr/bin/env python3
"""live-goodput.py FATFLOW [PAIRS]: goodput of two processes on loopback against iperf3's UDP.

RC queue pairs with acknowledgements and the ICRC at both ends, 4,096 bytes a packet, against
iperf3's received rate with datagrams of the same size, neither with segmentation offload: five
alternating pairs, and the median of their ratios. One rank sends to the other, as iperf3 does; the
figure is payload that arrived. Beside it, what live reaches with offload, which is for IPv6. iperf3
must be installed.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

FATFLOW = sys.argv[1]
PAIRS = int(sys.argv[2]) if 2 < len(sys.argv) else 5
SCENARIO = pathlib.Path(__file__).parent.parent / "scenarios" / "live-8.toml"
ADDRESS, PORT = "127.0.0.9", "5299"


def ours(*more):
    words = "--on loopback --rate 100Gbps --json --set network.routing.qps=1 --set cluster.gpus=2"
    words += " --set traffic.pattern=incast --set traffic.bytes=256MiB"
    command = [FATFLOW, "live", "traffic", str(SCENARIO), *words.split(), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)["result"]["rows"][0]
    assert row["sums_right"] and row["packets"]["icrc_wrong"] == 0, row["packets"]
    return row["goodput_bps"] / 1e9


def theirs():
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "-B", ADDRESS, "-p", PORT], stdout=subprocess.DEVNULL
    )
    time.sleep(0.5)  # Until it listens.
    words = f"-u -b 0 -l 4140 -t 2 -c {ADDRESS} -p {PORT} --json"
    done = subprocess.run(["iperf3", *words.split()], capture_output=True, text=True, check=True)
    server.wait()
    total = json.loads(done.stdout)["end"]["sum"]
    return total["bits_per_second"] / 1e9 * (1 - total["lost_percent"] / 100) * 4096 / 4140


ratios, offloaded = [], []
for _ in range(PAIRS):
    live, iperf = ours(), theirs()
    ratios.append(live / iperf)
    offloaded.append(ours("--ipv6", "--offload"))
    print(
        f"live {live:.2f} Gbit/s, iperf3 {iperf:.2f} Gbit/s, ratio {ratios[-1]:.2f}; "
        f"live with offload {offloaded[-1]:.2f} Gbit/s",
        flush=True,
    )
median = statistics.median(ratios)
print(f"median ratio {median:.2f}; with offload, median {statistics.median(offloaded):.2f} Gbit/s")
