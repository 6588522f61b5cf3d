"""Record batches written by Kafka's own serializer, a few by hand here, all of them where the facts are."""

from __future__ import annotations

import json

import pytest

from blumfeld.wire.records import Record
from tests.shared_facts import shared_path

# offset 42, epoch 7; a header with a value, an empty and a null one; a null key, a null value, both empty.
PLAIN = bytes.fromhex(
    "000000000000002a0000006f00000007023b6ef2e80000000000030000018bcfe568000000018bcfe56864ffffffffffffffff"
    "ffffffffffff000000043c000000046b300e76616c75652d30060468310476310668c3a90004686e011a000a02010e76616c75"
    "652d310010001304046b3201000e00c80106000000"
)
ABORT_MARKER = bytes.fromhex(
    "00000000000000090000004200000002023dd718ef0030000000000000018bcfe568000000018bcfe56800000000000000004d"
    "0001ffffffff000000012000000008000000000c00000000000500"
)
SNAPPY = bytes.fromhex(
    "000000000000002a000000820000000702de5dd6e50002000000030000018bcfe568000000018bcfe56864ffffffffffffffff"
    "ffffffffffff0000000482534e415050590000000001000000010000003d3e903c000000046b300e76616c75652d3006046831"
    "0476310668c3a90004686e011a000a02010e091d48310010001304046b3201000e00c80106000000"
)
ZSTD = bytes.fromhex(
    "000000000000002a0000007b000000070285b49b1e0004000000030000018bcfe568000000018bcfe56864ffffffffffffffff"
    "ffffffffffff0000000428b52ffd0058f001003c000000046b300e76616c75652d30060468310476310668c3a90004686e011a"
    "000a02010e76616c75652d310010001304046b3201000e00c80106000000010000"
)
V0 = bytes.fromhex(
    "000000000000002a00000017c86cc7a60000000000026b300000000776616c75652d30000000000000002b0000001598dda4ae"
    "0000ffffffff0000000776616c75652d31"
)
V0_LZ4 = bytes.fromhex(
    "000000000000002b0000005ca4184d070003ffffffff0000004e04224d1860401a3f00000012000100912a00000017c86cc7a6"
    "0f00d0026b300000000776616c75652d0b00000200f00b2b0000001598dda4ae0000ffffffff0000000776616c75652d310000"
    "0000"
)
V1_LZ4 = bytes.fromhex(
    "000000000000002b0000006d5d6bc8a901030000018bcfe56805ffffffff0000005704224d186040824800000016000100e01f"
    "b522df8b01000000018bcfe5681800d0026b300000000776616c75652d0b00000200002200501d0d5fbb5e0900012b00f00105"
    "ffffffff0000000776616c75652d3100000000"
)

T = 1_700_000_000_000
RECORDS = (
    Record(b"k0", b"value-0", (("h1", b"v1"), ("hé", b""), ("hn", None)), T, 42),
    Record(None, b"value-1", (), T + 5, 43),
    Record(b"k2", None, (), T - 10, 44),
    Record(b"", b"", (), T + 100, 45),
)


def golden_batches() -> dict[str, bytes]:
    """Every batch of the reference by its case."""
    lines = shared_path("kafka/golden_batches.jsonl").read_text().splitlines()
    return {line["case"]: bytes.fromhex(line["hex"]) for line in map(json.loads, lines)}


def golden(case: str) -> bytes:
    """One batch of the reference, or a skip."""
    found = golden_batches()
    if case not in found:
        pytest.fail(f"no golden batch {case}: there are {sorted(found)}")
    return found[case]
