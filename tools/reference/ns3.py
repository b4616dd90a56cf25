"""Runs of the reference simulator itself, HPCC's ns-3 fork, in the files that our tests read.

The simulator is alibaba-edu/High-Precision-Congestion-Control at commit 9f4be2a, unmodified, built in
its folder `simulation` with a Python 2 and g++:

    CXXFLAGS="-w -std=gnu++11 -fpermissive -O2" python2 ./waf configure -d optimized \
        --enable-modules=point-to-point,applications,internet,nix-vector-routing
    python2 ./waf build

`THIRD` below is what that builds, `build/scratch/third`; it finds its libraries in `build`.

    python3 tools/reference/ns3.py check THIRD crates/packetsim/tests/reference/*.toml
    python3 tools/reference/ns3.py make THIRD FOLDER [CASE ...]

`check` repeats runs and says which flows end elsewhere; `make` writes the cases of `simulate.cases()`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import simulate

START = 2_000_000_000  # Flows start at 2 s of its clock: nothing happens before.
PORT = 10_000  # The first flow of a pair of hosts has this source port, the next one more.

MODES = {"none": 0, "dcqcn": 1, "dcqcnstep": 1, "hpcc": 3, "timely": 7, "dctcp": 8}


def configuration(case, folder):
    """Its settings, as its `run.py` writes them for this congestion control."""
    cc, ecn, host = case["cc"], case["ecn"], case["host"]
    rate = case["topology"]["link_rate_bps"]
    window = int("window_bytes" in cc)
    mega = lambda key: f"{cc.get(key, 10**9) // 10**6}Mb/s"
    values = {
        "ENABLE_QCN": int(ecn["enabled"]),
        "USE_DYNAMIC_PFC_THRESHOLD": 1,
        "PACKET_PAYLOAD_SIZE": case["packet"]["payload_bytes"],
        **{f"{name.upper()}_FILE": folder / name for name in ("topology", "flow", "trace")},
        "TRACE_OUTPUT_FILE": folder / "trace.out",
        "FCT_OUTPUT_FILE": folder / "fct",
        "PFC_OUTPUT_FILE": folder / "pfc",
        "SIMULATOR_STOP_TIME": 4.0,
        "CC_MODE": MODES[case["case"]["cc"]],
        "ALPHA_RESUME_INTERVAL": 1,
        "RATE_DECREASE_INTERVAL": 4,
        "CLAMP_TARGET_RATE": 0,
        "RP_TIMER": 300,
        "EWMA_GAIN": cc.get("g", 1 / 256),
        "FAST_RECOVERY_TIMES": 1,
        "RATE_AI": mega("rate_ai_bps"),
        "RATE_HAI": mega("rate_hai_bps"),
        "MIN_RATE": "1000Mb/s",
        "DCTCP_RATE_AI": mega("dctcp_rate_ai_bps"),
        "ERROR_RATE_PER_LINK": 0.0,
        "L2_CHUNK_SIZE": 4000,
        "L2_ACK_INTERVAL": 1,
        "L2_BACK_TO_ZERO": 0,
        "HAS_WIN": window,
        "GLOBAL_T": 1,
        "VAR_WIN": window,
        "FAST_REACT": int("fast_react" in cc),
        "U_TARGET": 0.95,
        "MI_THRESH": 0,
        "INT_MULTI": cc.get("int_multi", 1),
        "MULTI_RATE": 0,
        "SAMPLE_FEEDBACK": 0,
        "PINT_LOG_BASE": 1.05,
        "PINT_PROB": 1.0,
        "RATE_BOUND": 1,
        "ACK_HIGH_PRIO": host["ack_high_prio"],
        "LINK_DOWN": "0 0 0",
        "ENABLE_TRACE": 0,
        "KMAX_MAP": f"1 {rate} {ecn['kmax_bytes'] // 1000}",
        "KMIN_MAP": f"1 {rate} {ecn['kmin_bytes'] // 1000}",
        "PMAX_MAP": f"1 {rate} {ecn['pmax']}",
        "BUFFER_SIZE": case["switch"]["buffer_bytes"] // simulate.MIB,
        "QLEN_MON_FILE": folder / "queues",
        "QLEN_MON_START": START,
        "QLEN_MON_END": START,
    }
    return "".join(f"{key} {value}\n" for key, value in values.items())


def run(third, case, flows):
    """When each flow ends, and how many pauses arrived."""
    topology = case["topology"]
    hosts, switches, links = (topology[key] for key in ("hosts", "switches", "links"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wire = f"{topology['link_rate_bps'] // 10**9}Gbps {topology['link_delay_ns']}ns 0"
        lines = [f"{hosts + switches} {switches} {len(links)}"]
        lines += [" ".join(str(hosts + switch) for switch in range(switches))]
        lines += [f"{a} {b} {wire}" for a, b in links]
        (folder / "topology").write_text("\n".join(lines) + "\n")
        in_order = sorted(flows, key=lambda flow: flow[3])
        # It cuts the fraction of a nanosecond off: half of one keeps the whole number.
        starts = [f"{START // 10**9 + flow[3] // 10**9}.{flow[3] % 10**9:09}5" for flow in in_order]
        lines = [f"{a} {b} 3 100 {size} {at}" for (a, b, size, _), at in zip(in_order, starts)]
        (folder / "flow").write_text("\n".join([str(len(flows)), *lines]) + "\n")
        (folder / "trace").write_text("0\n")
        (folder / "config").write_text(configuration(case, folder))
        libraries = {"LD_LIBRARY_PATH": str(Path(third).resolve().parents[1])}
        command = [third, str(folder / "config")]
        done = subprocess.run(command, env=os.environ | libraries, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{third}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        ends = {}
        for line in (folder / "fct").read_text().splitlines():
            source, target, port, _, _, start, took, _ = line.split()
            host = lambda address: int(address, 16) >> 8 & 0xFFFF
            ends[host(source), host(target), int(port)] = int(start) - START + int(took)
        pauses = sum(line.endswith(" 1") for line in (folder / "pfc").read_text().splitlines())
    opened = {}
    finishes = []
    for source, target, _, _ in sorted(flows, key=lambda flow: flow[3]):
        port = opened.setdefault((source, target), PORT)
        opened[source, target] += 1
        finishes.append(ends[source, target, port])
    places = sorted(range(len(flows)), key=lambda flow: flows[flow][3])
    return [end for _, end in sorted(zip(places, finishes))], pauses


def check(third, paths):
    for path in paths:
        case, flows, expected = simulate.load(path)
        finishes, pauses = run(third, case, flows)
        equal = sum(a == b for a, b in zip(finishes, expected))
        print(f"{path.stem}: {equal} of {len(flows)} finishes equal, {pauses} pauses")


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "check":
        check(sys.argv[2], [Path(path) for path in sys.argv[3:]])
    elif len(sys.argv) > 3 and sys.argv[1] == "make":
        third = sys.argv[2]
        simulate.make(Path(sys.argv[3]), lambda case, flows: run(third, case, flows), sys.argv[4:])
    else:
        sys.exit(__doc__)
