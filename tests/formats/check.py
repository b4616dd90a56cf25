"""Reads the files that fatflow writes for other tools with the tools themselves.

Parquet with pyarrow and polars, OpenMetrics with Prometheus' own parser, Perfetto traces with the
published schema, Chakra traces with protobuf's own library and MLCommons' schema. Usage: check.py PATH-OF-THE-BINARY
"""

import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

FATFLOW = Path(sys.argv[1]).resolve()

JOB = """
name = "a small job with every kind of traffic"
[cluster]
gpus = 64
[fabric]
topology = "clos"
[job]
model = "llama3-8b"
gpus = 64
parallel = { tp = 4, cp = 2, pp = 2, dp = 4 }
batch = { sequences = 16, micro = 1, length = 8192 }
"""

TRAFFIC = """
name = "a permutation"
[cluster]
gpus = 32
[traffic]
pattern = "permutation"
bytes = "4MiB"
"""


def fatflow(folder, *arguments):
    command = [FATFLOW, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def rows_of_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check_parquet(folder):
    """The same table as CSV and as Parquet: names, types and every value."""
    import polars
    import pyarrow.parquet

    fatflow(folder, "traffic", "job.toml", "--transfers-out", "transfers.csv")
    fatflow(folder, "traffic", "job.toml", "--transfers-out", "transfers.parquet")
    for ending in ["csv", "parquet"]:
        fatflow(folder, "run", "traffic.toml", "--flows-out", f"flows.{ending}",
                "--links-out", f"links.{ending}", "--series", "10us",
                "--series-out", f"series.{ending}")
        fatflow(folder, "run", "traffic.toml", "--engine", "packet", "--series", "10us",
                "--series-out", f"packets.{ending}")
        fatflow(folder, "run", "job.toml", "--series-out", f"step.{ending}")
    tables = [("transfers", 100), ("flows", 32), ("links", 64), ("series", 64), ("packets", 64),
              ("step", 200)]
    for name, least in tables:
        rows = rows_of_csv(folder / f"{name}.csv")
        arrow = pyarrow.parquet.read_table(folder / f"{name}.parquet")
        frame = polars.read_parquet(folder / f"{name}.parquet")
        assert len(rows) == arrow.num_rows == frame.height >= least, name
        assert list(rows[0]) == arrow.column_names == frame.columns, name
        columns = arrow.to_pydict()
        for column in arrow.column_names:
            assert frame[column].to_list() == columns[column], (name, column)
            for row, value in zip(rows, columns[column]):
                text = row[column]
                same = text == "" if value is None else (
                    text == value if isinstance(value, str) else float(text) == value)
                assert same, (name, column, text, value)
    # Oracle: over its series a link carried what the table of links says.
    carried = Counter()
    series = rows_of_csv(folder / "series.csv")
    interval = float(series[1]["at_s"]) - float(series[0]["at_s"])
    for row in series:
        carried[row["link"]] += float(row["sent_bps"]) * interval / 8
    links = {f'{row["from"]} → {row["to"]}': float(row["bytes"])
             for row in rows_of_csv(folder / "links.csv")}
    assert carried and all(abs(carried[link] / links[link] - 1) < 1e-3 for link in carried)
    print(f"parquet: {len(tables)} tables with all values as in CSV, in pyarrow and polars")


def check_openmetrics(folder):
    """Prometheus' parser takes it, counters grow by the bytes of the run, families are complete."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    fatflow(folder, "run", "traffic.toml", "--engine", "packet", "--openmetrics", "ports.om",
            "--links-out", "counted.csv")
    families = list(text_string_to_metric_families((folder / "ports.om").read_text()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family is in one piece"
    samples = {sample.name for family in families for sample in family.samples}
    for name in ["node_network_transmit_bytes_total", "node_network_speed_bytes",
                 "node_infiniband_port_data_transmitted_bytes_total",
                 "node_ethtool_received_prio3_pause_duration", "sonic_interface_transmit_bytes",
                 "sonic_queue_watermark_bytes_total"]:
        assert name in samples, name
    result = json.loads(fatflow(folder, "run", "traffic.toml", "--engine", "packet", "--json"))
    sent = next(f for f in families if f.name == "node_network_transmit_bytes")
    last = max(float(sample.timestamp) for sample in sent.samples)
    first = min(float(sample.timestamp) for sample in sent.samples)
    assert last - first == 300
    total = sum(sample.value for sample in sent.samples if float(sample.timestamp) == last)
    from_nics = [row for row in rows_of_csv(folder / "counted.csv")
                 if row["from"].startswith("NIC")]
    expected = sum(float(row["bytes"]) for row in from_nics)
    expected *= 300 / result["result"]["makespan_s"]
    assert abs(total / expected - 1) < 1e-6, (total, expected)
    print(f"openmetrics: {len(families)} families, {total / 300 * 8 / 1e9:.1f} Gbit/s sent")


def check_perfetto(folder):
    """The published schema decodes it; slices nest; arrows have two ends; the step is all there."""
    from google.protobuf.unknown_fields import UnknownFieldSet
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    def read(name):
        trace = Trace()
        trace.ParseFromString((folder / name).read_bytes())
        tracks, slices, counters, names, open_slices = {}, [], Counter(), {}, defaultdict(list)
        leaving, arriving = Counter(), Counter()
        for packet in trace.packet:
            for message in [packet, packet.track_descriptor, packet.track_event]:
                assert not len(UnknownFieldSet(message)), "the schema knows every field"
            for entry in packet.interned_data.event_names:
                names[entry.iid] = entry.name
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid not in tracks
                assert not track.parent_uuid or track.parent_uuid in tracks
                tracks[track.uuid] = track
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            track = tracks[event.track_uuid]
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                stack = open_slices[track.uuid]
                if stack:
                    assert stack[-1][1] <= packet.timestamp, "a slice begins inside its parent"
                stack.append((names[event.name_iid], packet.timestamp))
                leaving.update(event.flow_ids)
                arriving.update(event.terminating_flow_ids)
            elif event.type == TrackEvent.TYPE_SLICE_END:
                name_, start = open_slices[track.uuid].pop()
                slices.append((track.parent_uuid, track.name, name_, start, packet.timestamp))
            else:
                assert event.type == TrackEvent.TYPE_COUNTER and track.HasField("counter")
                counters[track.name] += 1
        assert not any(open_slices.values()), "every slice ends"
        assert leaving == arriving and set(leaving.values()) <= {1}, "arrows have two ends"
        by_track = defaultdict(list)
        for parent, track, _, start, end in slices:
            by_track[parent, track].append((start, end))
        for spans in by_track.values():
            spans.sort()
            assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), "no slice overflows"
        return tracks, slices, counters, leaving

    answer = json.loads(fatflow(folder, "run", "job.toml", "--perfetto", "step.pftrace", "--json"))
    tracks, slices, counters, arrows = read("step.pftrace")
    groups = [t.process.process_name for t in tracks.values() if t.HasField("process")]
    assert [g for g in groups if g.startswith("rank")] == [
        "rank 0: stage 0, GPU 0", "rank 8: stage 1, GPU 8"], groups
    on = Counter(name for _, track, name, _, _ in slices if track == "computation")
    # 4 microbatches over 2 stages; the first forward and the last backward pass layer by layer.
    assert on["forward"] == 2 * 3 + 34 and on["optimizer"] == 2, on
    messages = [s for s in slices if "messages" in s[1]]
    assert len(messages) == 8 and len(arrows) == 16, (len(messages), len(arrows))
    end = max(s[4] for s in slices) / 1e9
    parts = answer["result"]["breakdown_s"]
    step = answer["result"]["step_s"]
    assert step - parts["other"] * 1.001 <= end <= step, (end, step)
    assert counters and any("→" in name for name in counters)
    fatflow(folder, "run", "traffic.toml", "--perfetto", "run.pftrace")
    _, slices, _, arrows = read("run.pftrace")
    assert len(slices) == 2 * len(arrows) == 64, len(slices)
    print(f"perfetto: a step of {end:.3f} s, {sum(on.values())} operations, {len(counters)} links")


def chakra_schema():
    """The messages of MLCommons' schema/protobuf/et_def.proto, as far as simulators read them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, field, kind, *repeated in fields:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            added = made.field.add(name=field, number=number, label=label)
            if kind.startswith("."):
                added.type_name, added.type = kind, kinds.TYPE_MESSAGE
            else:
                added.type = kinds.Type.Value("TYPE_" + kind.upper())
        return made

    scalars = ["double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
               "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"]
    values = [(3 + 2 * place, kind + "_val", kind) for place, kind in enumerate(scalars)]
    attribute = message("AttributeProto", (1, "name", "string"), (2, "doc_string", "string"),
                        *values)
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[2:]:
        field.oneof_index = 0
    message("GlobalMetadata", (1, "version", "string"),
            (2, "attr", ".ChakraProtoMsg.AttributeProto", "repeated"))
    message("IOInfo", (1, "values", "string"), (2, "shapes", "string"), (3, "types", "string"))
    message("Node", (1, "id", "uint64"), (2, "name", "string"), (3, "type", "int32"),
            (4, "ctrl_deps", "uint64", "repeated"), (5, "data_deps", "uint64", "repeated"),
            (6, "start_time_micros", "uint64"), (7, "duration_micros", "uint64"),
            (8, "inputs", ".ChakraProtoMsg.IOInfo"), (9, "outputs", ".ChakraProtoMsg.IOInfo"),
            (10, "attr", ".ChakraProtoMsg.AttributeProto", "repeated"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName("ChakraProtoMsg." + name))
            for name in ["GlobalMetadata", "Node"]]


# Which member of the value MLCommons' feeder (src/feeder/et_feeder_node.cpp) reads by name: one
# written as another type is 0 to it.
CHAKRA_READS = {
    "is_cpu_op": "bool_val", "num_ops": "int64_val", "tensor_size": "uint64_val",
    "comm_type": "int64_val", "comm_size": "int64_val", "comm_src": "int32_val",
    "comm_dst": "int32_val", "comm_tag": "int32_val", "comm_priority": "int32_val",
    "pg_name": "string_val",
}


def chakra_file(path, schema):
    """The nodes of a trace: their own fields, and their attributes by name."""
    from google.protobuf.internal.decoder import _DecodeVarint32

    metadata, node = schema
    data, at, chunks = path.read_bytes(), 0, []
    while at < len(data):
        length, at = _DecodeVarint32(data, at)
        chunks.append(data[at:at + length])
        at += length
    assert metadata.FromString(chunks[0]).version.startswith("1.0."), "metadata comes first"
    nodes = []
    for chunk in chunks[1:]:
        read = node.FromString(chunk)
        assert read.SerializeToString(deterministic=True) == chunk, "nothing is left unread"
        plain = {"id": read.id, "type": read.type, "deps": list(read.data_deps),
                 "micros": read.duration_micros, "name": read.name}
        for attribute in read.attr:
            assert attribute.WhichOneof("value") == CHAKRA_READS[attribute.name], attribute
            plain[attribute.name] = getattr(attribute, CHAKRA_READS[attribute.name])
        assert plain["is_cpu_op"] is False
        nodes.append(plain)
    return nodes


def check_chakra(folder):
    """Every send has its receive; groups agree; the step's bytes survive."""
    fatflow(folder, "traffic", "job.toml", "--chakra", "traces")
    files = sorted((folder / "traces").glob("rank.*.et"))
    assert len(files) == 64
    groups = json.loads((folder / "traces" / "comm_groups.json").read_text())
    schema = chakra_schema()
    sends, receives, calls = Counter(), Counter(), defaultdict(Counter)
    busy = Counter()
    for path in files:
        rank = int(path.name.split(".")[1])
        nodes = chakra_file(path, schema)
        for place, node in enumerate(nodes):
            assert node["id"] == place and all(dep < place for dep in node["deps"])
        waits = sum(bool(node["deps"]) for node in nodes)
        assert len(nodes) * 0.9 < waits, "nodes wait for each other"
        for node in nodes:
            if node["type"] in (5, 6):
                ends = node["comm_src"], node["comm_dst"]
                key = (*ends, node["comm_tag"], node["comm_size"])
                assert ends[node["type"] - 5] == rank
                (sends if node["type"] == 5 else receives)[key] += 1
            elif node["type"] == 7:
                members = groups[node["pg_name"]]
                assert rank in members
                calls[node["pg_name"]][rank, node["comm_type"], node["comm_size"]] += 1
            else:
                assert node["type"] == 4 and node["tensor_size"] >= 0
                busy[rank] += node["micros"]
    assert sends == receives and max(sends.values()) == 1, "sends and receives pair up"
    for name, members in groups.items():
        # All members make the same calls, equally often.
        seen = [sorted((kind, size, count) for (rank, kind, size), count in calls[name].items()
                       if rank == member) for member in members]
        assert seen and all(one == seen[0] for one in seen), name
    # The step's transfers: messages between stages cross NICs here, every one of them.
    told = json.loads(fatflow(folder, "traffic", "job.toml", "--json"))["result"]["by_axis"]
    stage = lambda rank: rank // 8 % 2
    pipeline = sum(key[3] for key in sends if stage(key[0]) != stage(key[1]))
    assert abs(pipeline / told["pp"] - 1) < 1e-9, (pipeline, told["pp"])
    # Oracle: gathered once, the weights of all groups are the model's, in bf16. Ranks of one
    # gradient group stand 16 apart: two stages of 4 x 2 ranks lie between two copies.
    weights = 0
    for name, members in groups.items():
        if len(members) == 8 and members[2] - members[0] == 16:
            mine = [(kind, size, n) for (rank, kind, size), n in calls[name].items()
                    if rank == members[0]]
            weights += sum(size * n * len(members) for kind, size, n in mine if kind == 2)
    assert abs(weights / (2 * 8.03e9) - 1) < 0.001, weights
    # All ranks of a stage compute as long.
    assert len({busy[rank] for rank in range(64) if stage(rank) == 0}) == 1
    assert 100_000 < busy[0] < 1_000_000, busy[0]
    print(f"chakra: {len(files)} ranks, {sum(sends.values())} messages, {len(groups)} groups")
    answer = subprocess.run(
        [FATFLOW, "traffic", "grok4-colossus", "--chakra", "no"], cwd=folder,
        capture_output=True, text=True)
    assert answer.returncode == 1 and "--chakra-ranks representatives" in answer.stderr
    assert not (folder / "no").exists()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.toml").write_text(JOB)
        (folder / "traffic.toml").write_text(TRAFFIC)
        check_parquet(folder)
        check_openmetrics(folder)
        check_perfetto(folder)
        check_chakra(folder)


main()
