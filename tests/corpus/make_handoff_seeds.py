#!/usr/bin/env python3
"""Writes protocol_fuzz/: one frame of the hand-off for each message, some damaged on purpose.

Plain Python, no packages, the same bytes every time:  python3 tests/corpus/make_handoff_seeds.py
The layout is that of src/messenger/protocol.cc; HandoffProtocol.SeedsAreFrames reads the whole ones.
"""

import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "protocol_fuzz"
MAGIC, VERSION = 0x4F484454, 1
HELLO, READY, PREPARE, PROGRESS, DONE, FAILED, STOPPED, CANCEL, HEARTBEAT = range(9)


def pack(form, *values):
    return struct.pack("<" + form, *values)


def text(value):
    return pack("I", len(value)) + value


def integers(values):
    return pack("I", len(values)) + b"".join(pack("i", v) for v in values)


def plane(name, dtype=b"F16", tile=0, dims=64):
    return text(name) + text(dtype) + pack("Bi", tile, dims)


def group(kind=0, layers=(0, 1), window=0, planes=(b"k", b"v")):
    return (pack("B", kind) + integers(layers) + pack("iI", 3, len(planes))
            + b"".join(plane(p) for p in planes) + pack("iiii", 16, window, 0, 1))


def hello(groups, version=VERSION, address=b"node"):
    return (pack("BIHQ", HELLO, MAGIC, version, 7) + text(b"tiny") + pack("QQ", 1, 2)
            + text(b"fast") + pack("I", len(groups)) + b"".join(groups) + text(address) + b"\1")


def region(nics=1):
    return pack("IQB", 0x31475254, 1 << 20, nics) + pack("QQB", 0, 5, 0) * nics


def prepare(tokens, blocks, expectations, budget=10**9):
    return (pack("BQq", PREPARE, 3, budget) + integers(tokens) + pack("i", 0) + text(b"salt")
            + pack("I", len(blocks)) + b"".join(text(region()) + integers(b) for b in blocks)
            + pack("I", len(expectations)) + b"".join(pack("II", *e) for e in expectations))


WHOLE = {
    "hello": hello([group()]),
    "hello_window": hello([group(), group(1, (2,), 6, (b"kv",))]),
    "ready": pack("B", READY),
    "prepare": prepare(range(40), [[4, 5, 9]], [(0x01003000, 6)]),
    "prepare_groups": prepare(range(40), [[0, 1, 2], [7]], [(0, 4096), (0xFF001000, 2)]),
    "progress": pack("BQi", PROGRESS, 3, 16),
    "done": pack("BQii", DONE, 3, 2, 6),
    "failed": pack("BQB", FAILED, 3, 8) + text(b"the pool is full"),
    "stopped": pack("BQ", STOPPED, 3),
    "cancel": pack("BQ", CANCEL, 3),
    "heartbeat": pack("B", HEARTBEAT),
}
DAMAGED = {
    "bad_version": hello([group()], VERSION + 1),
    "bad_type": hello([group()]).replace(text(b"F16"), text(b"F17")),
    "bad_tail": WHOLE["done"] + b"\0",
    "bad_cut": WHOLE["prepare"][:-3],
    "bad_count": pack("BQqI", PREPARE, 3, 1, 1 << 20),
    "bad_negative": pack("BQi", PROGRESS, 3, -1),
    "bad_region": WHOLE["prepare"].replace(b"TRG1", b"TRG2"),
    "bad_kind": pack("B", 99),
    "bad_budget": prepare([1], [[1]], [(0, 1)], 0),
}


def main():
    HERE.mkdir(exist_ok=True)
    for name, data in (WHOLE | DAMAGED).items():
        (HERE / name).write_bytes(data)


if __name__ == "__main__":
    main()
