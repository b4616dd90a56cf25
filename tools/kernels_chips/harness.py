"""How kernels are timed: as a stream, and alone.

A *stream* sample is a CUDA graph of many launches of one kernel over rotated operands, replayed
until it has run for a while; the time of a replay divided by its launches is what one launch costs
when the next one is already waiting, as in training. A *single* sample is one launch between two
events after a synchronisation, which adds the launch and the events themselves.
"""

import csv
import os
import statistics
import subprocess
import sys
import threading
import time

import torch

COLUMNS = ["kind", "dtype", "a", "b", "c", "d", "direction", "us", "flop", "bytes", "watts"]
L2_BYTES = 60e6


class Power(threading.Thread):
    """Board power and SM clock, sampled beside the measurements."""

    def __init__(self):
        super().__init__(daemon=True)
        self.samples = []
        self.process = subprocess.Popen(
            ["nvidia-smi", "--query-gpu=power.draw.instant,clocks.sm",
             "--format=csv,noheader,nounits", "-lms", "50"],
            stdout=subprocess.PIPE, text=True)

    def run(self):
        for line in self.process.stdout:
            try:
                watts, clock = (float(word) for word in line.split(","))
                self.samples.append((time.monotonic(), watts, clock))
            except ValueError:
                pass

    def between(self, start, end):
        """Median power and clock of the samples in a window, or blanks if there are too few."""
        seen = [s for s in self.samples if start <= s[0] <= end]
        if len(seen) < 2:
            return "", ""
        return (round(statistics.median(s[1] for s in seen)),
                round(statistics.median(s[2] for s in seen)))

    def stop(self):
        self.process.terminate()


class Bench:
    """Times closures and writes the rows."""

    def __init__(self, out, deadline):
        self.out = out
        self.deadline = deadline
        self.stream = torch.cuda.Stream()
        self.power = Power()
        self.power.start()
        self.files = {}
        self.failures = []

    def row(self, name, columns, values):
        """Adds a row to a table of the output folder, at once."""
        if name not in self.files:
            handle = open(os.path.join(self.out, name), "w", newline="")
            self.files[name] = (handle, csv.writer(handle, lineterminator="\n"))
            self.files[name][1].writerow(columns)
        handle, writer = self.files[name]
        writer.writerow(values)
        handle.flush()

    def late(self):
        return time.monotonic() > self.deadline

    def time_stream(self, calls, busy=0.06, graph=True):
        """Microseconds per launch in a stream that cycles over `calls`; power over it."""
        stream = self.stream
        with torch.cuda.stream(stream):
            for call in calls:
                call()
            stream.synchronize()
            once = self._events(lambda: [call() for call in calls]) / len(calls)
            launches = max(1, min(200, int(10e3 / max(once, 2.0))))
            launches = max(len(calls), launches // len(calls) * len(calls))
            body = [calls[i % len(calls)] for i in range(launches)]
            if graph:
                captured = torch.cuda.CUDAGraph()
                captured.capture_begin()
                try:
                    for call in body:
                        call()
                finally:
                    captured.capture_end()
                play = captured.replay
            else:
                def play():
                    for call in body:
                        call()
            play()
            stream.synchronize()
            started = time.monotonic()
            samples = []
            while len(samples) < 3 or time.monotonic() - started < busy:
                samples.append(self._events(play) / launches)
            watts = self.power.between(started + 0.3 * busy, time.monotonic())
            del play, body
            if graph:
                captured.reset()
        return statistics.median(samples), watts

    def time_single(self, call, samples=9):
        """Microseconds of one launch between two events on an idle device."""
        with torch.cuda.stream(self.stream):
            call()
            self.stream.synchronize()
            return statistics.median(self._events(call) for _ in range(samples))

    def _events(self, call):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record(self.stream)
        call()
        end.record(self.stream)
        end.synchronize()
        return start.elapsed_time(end) * 1e3

    def kernel(self, kind, dtype, shape, direction, make, flop=0, moved=0, **how):
        """Measures one kernel: `make(i)` builds the launch over the i-th set of operands."""
        if self.late():
            return
        torch.cuda.synchronize()  # operands may have been made on another stream
        sets = 1 if moved > 8 * L2_BYTES else 2 if moved > 3 * L2_BYTES else \
            min(8, int(3 * L2_BYTES / max(moved, 1)) + 1)
        try:
            with torch.cuda.stream(self.stream):
                calls = [make(i) for i in range(sets)]
            us, (watts, _) = self.time_stream(calls, **how)
            alone = self.time_single(calls[0])
        except Exception as error:  # a kernel the software lacks is reported, not fatal
            torch.cuda.synchronize()
            self.failures.append(f"{kind} {dtype} {shape} {direction}: {error}"[:300])
            return
        shape = list(shape) + [""] * (4 - len(shape))
        common = [int(flop), int(moved)]
        self.row("h200_stream.csv", COLUMNS,
                 [kind, dtype, *shape, direction, round(us, 3), *common, watts])
        self.row("h200_single.csv", COLUMNS,
                 [kind, dtype, *shape, direction, round(alone, 3), *common, ""])

    def close(self):
        self.power.stop()
        for failure in self.failures:
            print("FAILED", failure, file=sys.stderr)


class Pool:
    """One large buffer of random bf16 numbers; operands are views of it, so none is generated."""

    def __init__(self, elements):
        self.data = torch.empty(elements, dtype=torch.bfloat16, device="cuda")
        for part in self.data.split(1 << 28):
            part.normal_()
        self.next = 0

    def take(self, *shape):
        """A view of the given shape that starts where the last one ended."""
        size = 1
        for extent in shape:
            size *= extent
        if self.next + size > self.data.numel():
            self.next = 0
        view = self.data[self.next:self.next + size].view(*shape)
        self.next += (size + 511) // 512 * 512
        return view
