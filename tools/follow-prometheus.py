#!/usr/bin/env python3
"""`observe --follow` on Debian's Prometheus and node exporter, with simulated clusters behind them.

    tools/follow-prometheus.py target/release/fatflow [RUNS]

Needs `prometheus` and `prometheus-node-exporter`. Simulated clusters write their counters, under the
names of the InfiniBand collector, into a textfile that node_exporter serves; Prometheus scrapes it
every second; one fatflow for each cluster looks at Prometheus' /federate every two seconds. In half
of the clusters one port begins to lose packets at a random time. Ends with 1 unless each of these is
found within two looks of its onset and nothing else is found.
"""

import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

EVERY = 2.0
LASTS = 40.0
PORTS = 4


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Clusters(threading.Thread):
    """Counters of all clusters, written twice a second; every second cluster has a fault."""

    def __init__(self, folder: Path, count: int):
        super().__init__(daemon=True)
        self.folder, self.dice, self.stop = folder, random.Random(1), threading.Event()
        self.start_s = time.time()
        self.onset = {f"c{at}": self.start_s + self.dice.uniform(18, 30) if at % 2 else None for at in range(count)}
        self.totals: dict[tuple[str, str, int], float] = {}

    def add(self, name: str, cluster: str, port: int, more: float) -> None:
        key = (name, cluster, port)
        self.totals[key] = self.totals.get(key, 0.0) + more

    def run(self) -> None:
        last = time.time()
        while not self.stop.wait(0.5):
            now = time.time()
            for cluster, onset in self.onset.items():
                for port in range(PORTS):
                    lost = sum(self.dice.random() < 0.05 for _ in range(3))
                    if onset and port == 2 and onset < now:
                        lost += int(300 * (now - max(onset, last)))
                    self.add("node_infiniband_port_discards_received_total", cluster, port, lost)
                    self.add("node_infiniband_port_transmit_wait_total", cluster, port, self.dice.randint(0, 20))
                    sent = 4e10 * (now - last) * self.dice.uniform(0.9, 1.1)
                    self.add("node_infiniband_port_data_transmitted_bytes_total", cluster, port, int(sent))
            last = now
            lines, told = [], set()
            for (name, cluster, port), value in sorted(self.totals.items()):
                if name not in told:
                    lines.append(f"# TYPE {name} counter")
                    told.add(name)
                lines.append(f'{name}{{cluster="{cluster}",device="mlx5_{port}",port="1"}} {value:.0f}')
            new = self.folder / "new"
            new.write_text("\n".join(lines) + "\n")
            new.rename(self.folder / "clusters.prom")


def main() -> int:
    binary = sys.argv[1]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    started: list[subprocess.Popen] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exporter, prometheus = free_port(), free_port()
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: node\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]\n"
        )
        clusters = Clusters(folder, runs)
        try:
            clusters.start()
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            command = ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{exporter}"]
            command += ["--collector.disable-defaults", "--collector.textfile"]
            started.append(subprocess.Popen([*command, f"--collector.textfile.directory={folder}"], **quiet))
            command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
            started.append(subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{prometheus}"], **quiet))
            time.sleep(6)
            followers, begun = [], {}
            for cluster in clusters.onset:
                match = f"%7Bcluster%3D%22{cluster}%22%7D"
                url = f"http://127.0.0.1:{prometheus}/federate?match%5B%5D={match}"
                command = [binary, "observe", "--follow", url, "--json", "--quiet"]
                command += ["--every", f"{EVERY}s", "--for", f"{LASTS}s"]
                begun[cluster] = time.time()
                child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                followers.append((cluster, child))
            found_right = calm_right = faults = calms = 0
            longest = 0.0
            for cluster, child in followers:
                result = json.loads(child.communicate()[0])["result"]
                assert all(source["read"] for source in result["sources"].values()), result
                onset, findings = clusters.onset[cluster], result["findings"]
                if onset is None:
                    calms += 1
                    calm_right += not findings
                    continue
                faults += 1
                first = findings[0]["found_s"] + begun[cluster] - onset if findings else float("inf")
                longest = max(longest, first)
                is_right = len(findings) == 1 and "mlx5_2" in findings[0]["text"] and first <= 2 * EVERY
                found_right += is_right
        finally:
            clusters.stop.set()
            for child in started:
                child.terminate()
                child.wait()
    print(f"{found_right} of {faults} faults found within two looks, the slowest {longest:.1f} s after its onset")
    print(f"{calm_right} of {calms} undisturbed clusters without a finding")
    return 0 if found_right == faults and calm_right == calms else 1


if __name__ == "__main__":
    sys.exit(main())
