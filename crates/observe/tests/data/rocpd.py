"""Makes rocpd.db.gz: a database with rocprofv3's tables, as large as it takes for trees and overflow."""

import gzip
import os
import sqlite3
import sys
import tempfile

RUN = "_0000a1b2_0000_7c3d"


def make(path):
    base = sqlite3.connect(path)
    base.execute("PRAGMA page_size=1024")
    base.executescript(f"""
        CREATE TABLE `rocpd_string{RUN}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            "guid" TEXT DEFAULT "x" NOT NULL, "string" TEXT NOT NULL UNIQUE ON CONFLICT ABORT);
        CREATE TABLE `rocpd_info_node{RUN}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            "guid" TEXT NOT NULL, "hash" BIGINT NOT NULL UNIQUE, "machine_id" TEXT NOT NULL UNIQUE,
            "system_name" TEXT, "hostname" TEXT);
        CREATE TABLE `rocpd_info_kernel_symbol{RUN}` ("id" INTEGER NOT NULL PRIMARY KEY
            AUTOINCREMENT, "guid" TEXT NOT NULL, "kernel_name" TEXT, "display_name" TEXT);
        CREATE TABLE `rocpd_region{RUN}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            "guid" TEXT NOT NULL, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL,
            "name_id" INTEGER NOT NULL, "event_id" INTEGER,
            FOREIGN KEY (name_id) REFERENCES `rocpd_string{RUN}` (id) ON UPDATE CASCADE);
        CREATE TABLE `rocpd_arg{RUN}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            "guid" TEXT NOT NULL, "event_id" INTEGER NOT NULL, "position" INTEGER NOT NULL,
            "type" TEXT NOT NULL, "name" TEXT NOT NULL, "value" TEXT);
        CREATE TABLE `rocpd_kernel_dispatch{RUN}` ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            "guid" TEXT NOT NULL, "agent_id" INTEGER NOT NULL, "kernel_id" INTEGER NOT NULL,
            "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, "event_id" INTEGER);
        CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM `rocpd_kernel_dispatch{RUN}`;
    """)
    texts = ["ncclAllReduce", "ncclAllToAll", "hipLaunchKernel", "ncclCommInitRank"]
    base.executemany(f"INSERT INTO `rocpd_string{RUN}` (string) VALUES (?)", [(t,) for t in texts])
    base.execute(f"INSERT INTO `rocpd_info_node{RUN}` VALUES (1, 'x', 7, 'm', 'Linux', 'mi300x-7')")
    long = "void gemm<" + 500 * "int, " + "int>(float*)"
    names = [(long,), ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage)",)]
    base.executemany(
        f"INSERT INTO `rocpd_info_kernel_symbol{RUN}` (guid, display_name) VALUES ('x', ?)", names)
    # 300 kernels on each of two GPUs: products of 60 us every 100 us, collectives of 50 us over them.
    for at in range(300):
        for agent in (1, 2):
            start = 10**15 + at * 100_000
            rows = [(agent, 1, start, start + 60_000), (agent, 2, start + 40_000, start + 90_000)]
            base.executemany(
                f"INSERT INTO `rocpd_kernel_dispatch{RUN}` (guid, agent_id, kernel_id, start, end) "
                "VALUES ('x', ?, ?, ?, ?)", rows)
    for event in range(1, 301):
        kind, count, dtype = (1, 1 << 20, "9") if event % 3 else (2, 4096, "ncclFloat32")
        base.execute(f"INSERT INTO `rocpd_region{RUN}` (guid, start, end, name_id, event_id) "
                     "VALUES ('x', 0, 1, ?, ?)", (kind, event))
        for position, (name, value) in enumerate([("count", str(count)), ("datatype", dtype)]):
            base.execute(f"INSERT INTO `rocpd_arg{RUN}` (guid, event_id, position, type, name, "
                         "value) VALUES ('x', ?, ?, 't', ?, ?)", (event, position, name, value))
    for name in (3, 4):
        base.execute(f"INSERT INTO `rocpd_region{RUN}` (guid, start, end, name_id, event_id) "
                     "VALUES ('x', 0, 1, ?, ?)", (name, 1000 + name))
    base.commit()
    base.close()


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "it.db")
    make(path)
    with open(path, "rb") as made, open(sys.argv[1], "wb") as out:
        out.write(gzip.compress(made.read(), 9, mtime=0))
