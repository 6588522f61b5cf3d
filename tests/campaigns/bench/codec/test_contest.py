"""The three codecs do the same work, and what is made of their times is right."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from campaigns.bench.codec import rivals as codec_rivals
from campaigns.bench.codec.contest import Beside, Row, measure, table
from campaigns.bench.codec.messages import Case, cases, metadata_response
from campaigns.bench.codec.rivals import Contestant, IncomparableError, contestants


# kafka-python reads its schemas as one did before Python 3.11.
@pytest.mark.filterwarnings("ignore:(read_text|open_text) is deprecated:DeprecationWarning")
def test_every_message_is_the_same_bytes_in_all_three() -> None:
    """Else nothing could be compared; the two rivals know every version that is asked for."""
    for case in cases():
        ours, rivals, missing = contestants(case)
        assert [contestant.name for contestant in rivals] == ["kio", "kafka-python"], missing
        data = ours.encode()
        for rival in rivals:
            assert rival.encode() == data
            rival.decode()


def test_a_thousand_partitions_are_a_thousand() -> None:
    response = metadata_response(1000)
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    assert len(partitions) == 1000
    assert {len(partition.replica_nodes) for partition in partitions} == {3}
    assert len({partition.leader_id for partition in partitions}) == 3


def test_a_rival_with_other_bytes_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(case: Case, data: bytes) -> Contestant:
        raise IncomparableError("knows no such thing")

    monkeypatch.setattr(codec_rivals, "_kio", refuse)
    monkeypatch.setattr(codec_rivals, "_kafka_python", refuse)
    ours, rivals, missing = contestants(Case(HeartbeatRequest(group_id="g"), 4))
    assert ours.encode() == b"\x02g\x00\x00\x00\x00\x01\x00\x00"
    assert rivals == []
    assert missing == ["HeartbeatRequest v4: knows no such thing"] * 2


def test_a_codec_that_works_twice_as_long_is_half_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time is what the calls say it is here, so that the ratio is known."""
    clock = [0.0]
    monkeypatch.setattr("time.process_time", lambda: clock[0])

    def taking(seconds: float) -> Contestant:
        def call() -> bytes:
            clock[0] += seconds
            return b"12345"

        return Contestant("slow", call, call)

    row = measure("m", "encode", taking(0.001), [taking(0.002)], rounds=3)
    assert row.ours_us == pytest.approx(1000)
    assert row.size_bytes == 5
    assert row.rivals[0].median_us == pytest.approx(2000)
    assert row.rivals[0].faster == pytest.approx(2)
    assert row.rivals[0].interval == pytest.approx((2, 2), rel=0.02)


def test_the_table_says_times_and_ratios() -> None:
    beside = Beside("kio", 12.5, 5.0, (4.9, 5.1))
    rows = [Row("Message v1", 1234, "encode", 2.5, [beside])]
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table(rows, 10))
    text = console.export_text()
    for part in ("Message v1", "1,234", "2.50", "12.50", "5.00×", "(4.90–5.10)"):
        assert part in text


@pytest.mark.slow
def test_the_command_times_and_writes_what_it_found(tmp_path: Path) -> None:
    out = tmp_path / "codec.json"
    command = [sys.executable, "-m", "campaigns.bench.codec.contest", "--only", "ResponseHeader v1"]
    command += ["--rounds", "3", "--out", str(out)]
    wide = os.environ | {"COLUMNS": "120"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True, env=wide)
    assert "ResponseHeader v1" in done.stdout
    figures = msgspec.json.decode(out.read_bytes())
    assert [row["direction"] for row in figures["rows"]] == ["encode", "decode"]
    assert all(row["ours_us"] > 0 and len(row["rivals"]) == 2 for row in figures["rows"])
    assert figures["machine"]["cores"] >= 1
