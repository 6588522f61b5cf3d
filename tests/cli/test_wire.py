"""`blumfeld wire`: lines there and back, bad lines reported by number, the golden bytes through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blumfeld.cli.wire import app
from tests.kafka_facts import golden_batches, golden_messages

HEARTBEAT = {
    "message": "HeartbeatRequest",
    "version": 0,
    "json": {"groupId": "g", "generationId": 10, "memberId": "é"},
}
HEARTBEAT_HEX = "0001670000000a0002c3a9"


def run(command: str, *lines: Any) -> tuple[int, list[Any]]:
    """Exit status and answers for these lines on standard input; text lines go as they are."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    result = CliRunner().invoke(app, [command], input=text + "\n")
    return result.exit_code, [json.loads(line) for line in result.output.splitlines()]


def test_decode_and_encode_are_each_others_way_back() -> None:
    line = {"case": "mine", "message": "HeartbeatRequest", "version": 0, "hex": HEARTBEAT_HEX}
    status, (decoded,) = run("decode", line)
    assert (status, decoded) == (0, HEARTBEAT | {"case": "mine"})
    assert run("encode", decoded) == (0, [line])


def test_a_captured_request_says_itself_what_it_is() -> None:
    status, (decoded,) = run("decode", {"hex": "000c000000000007000163" + HEARTBEAT_HEX})
    assert status == 0
    assert decoded == {**HEARTBEAT, "header": {"correlationId": 7, "clientId": "c"}}


def test_bad_lines_are_reported_and_the_good_ones_still_answered() -> None:
    good = {"message": "HeartbeatRequest", "version": 0, "hex": HEARTBEAT_HEX}
    status, answers = run(
        "decode",
        good,
        "{",
        "",
        good | {"hex": "00"},
        good | {"hex": "zz"},
        good | {"message": "Nonsense"},
        good | {"version": 99},
        {"message": "HeartbeatRequest", "version": 0},
        "[]",
        good,
    )
    assert status == 1
    assert answers[0] == answers[-1] == HEARTBEAT
    assert [answer["line"] for answer in answers[1:-1]] == [2, 4, 5, 6, 7, 8, 9]
    assert "Nonsense" in answers[4]["error"]
    assert "versions 0-4, not 99" in answers[5]["error"]


def test_a_file_that_is_not_there_is_status_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["decode", str(tmp_path / "none.jsonl")])
    assert result.exit_code == 2
    assert "No such file" in result.output


def test_a_batch_goes_there_and_back() -> None:
    batch = {
        "baseOffset": 7,
        "producerId": 5,
        "producerEpoch": 1,
        "baseSequence": 3,
        "records": [
            {"timestamp": 1000, "key": "a2V5", "value": None, "headers": [{"key": "h", "value": "AA=="}]},
            {"offset": 10, "timestamp": 999, "value": "dg=="},
        ],
    }
    status, (written,) = run("batch", {"json": batch})
    assert status == 0
    status, (read,) = run("batch", written)
    (batch_json,) = read["json"]
    assert [(r["offset"], r["timestamp"], r["key"]) for r in batch_json["records"]] == [
        (7, 1000, "a2V5"),
        (10, 999, None),
    ]
    assert {
        name: batch_json[name] for name in ("baseOffset", "producerId", "lastOffsetDelta", "maxTimestamp")
    } == {
        "baseOffset": 7,
        "producerId": 5,
        "lastOffsetDelta": 3,
        "maxTimestamp": 1000,
    }
    assert run("batch", read) == (0, [written])


@pytest.mark.parametrize(
    "value",
    [
        1,
        {"magic": 1},
        {"records": [{"offset": "x"}]},
        {"records": 3},
        {"compression": "rar"},
        {"baseOffset": 2**70},
        {"timestampType": "LogAppendTime"},
        {"records": [{"key": "?"}]},
    ],
)
def test_what_is_no_batch_is_an_error_of_its_line(value: Any) -> None:
    status, (answer,) = run("batch", {"json": value})
    assert (status, answer["line"]) == (1, 1)


def test_a_damaged_batch_is_an_error_of_its_line() -> None:
    _, (written,) = run("batch", {"json": {"records": [{"value": "dg=="}]}})
    damaged = written["hex"][:-2] + "ff"
    status, answers = run("batch", {"hex": damaged}, {"hex": written["hex"][:-2]}, {"hex": "00"})
    assert status == 1
    assert "CRC" in answers[0]["error"]
    assert len(answers) == 3


def test_every_golden_batch_can_be_read_and_a_plain_one_written() -> None:
    """Control batches say what they mean. Those of format 2 and CreateTime, without a codec, come back as they were."""
    golden = [{"case": case, "hex": data.hex()} for case, data in golden_batches().items()]
    status, decoded = run("batch", *golden)
    assert status == 0
    said = {r["says"]["type"] for line in decoded for b in line["json"] for r in b["records"] if "says" in r}
    assert said == {"ABORT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS"}
    plain = [
        (before, after)
        for before, after in zip(golden, decoded, strict=True)
        if after["json"][0].get("compression") == "none" and after["json"][0]["timestampType"] == "CreateTime"
    ]
    assert len(plain) > 5
    assert run("batch", *(after for _, after in plain)) == (0, [before for before, _ in plain])


def test_every_golden_message_passes_through_the_command() -> None:
    golden = golden_messages()
    with_json = [{k: v for k, v in line.items() if k != "hex"} for line in golden]
    with_hex = [{k: v for k, v in line.items() if k != "json"} for line in golden]
    assert run("decode", *with_hex) == (0, with_json)
    assert run("encode", *with_json) == (0, with_hex)
