"""The contract of an observer, on the audit; and what its lines say."""

from __future__ import annotations

import errno
import json
from typing import Any

from acme_audit.audit import Audit

from blumfeld.spi.observer import Observer
from blumfeld_kit import ObserverContract
from blumfeld_kit.fakes import FakeRuntime, Fault
from blumfeld_kit.observer_contract import seen

PATH = "/data/audit.jsonl"


class TestAudit(ObserverContract):
    """All that every observer must hold."""

    def make_observer(self, runtime: FakeRuntime) -> Observer:
        """One that takes all."""
        return Audit(runtime, PATH, None, 10_000)


def started(**named: Any) -> tuple[FakeRuntime, Audit]:
    runtime = FakeRuntime(1)
    runtime.files.make_dirs("/data")
    audit = Audit(runtime, PATH, named.get("apis"), named.get("lines_waiting_max", 100))
    runtime.run(audit.start())
    return runtime, audit


def lines(runtime: FakeRuntime) -> list[dict[str, Any]]:
    return [json.loads(line) for line in runtime.files.read_bytes(PATH).splitlines()]


def test_a_line_says_who_asked_what() -> None:
    runtime, audit = started()
    audit.requests([seen(1), seen(2, api_key=19, error_code=36)])
    audit.event("topic created", "ticks")
    runtime.run(audit.stop())
    first, second, event = lines(runtime)
    assert (first["principal"], first["client_id"], first["api"]) == ("User:ANONYMOUS", "client-1", "Produce")
    assert (second["api"], second["error_code"], second["request_bytes"]) == ("CreateTopics", 36, 200)
    assert (event["event"], event["name"]) == ("topic created", "ticks")
    assert audit.written == 3


def test_it_writes_behind_what_is_there() -> None:
    runtime, audit = started()
    audit.requests([seen(1)])
    runtime.run(audit.stop())
    again = Audit(runtime, PATH, None, 100)
    runtime.run(again.start())
    again.requests([seen(2)])
    runtime.run(again.stop())
    assert [line["client_id"] for line in lines(runtime)] == ["client-1", "client-2"]


def test_only_what_was_asked_for() -> None:
    runtime, audit = started(apis=[19])
    audit.requests([seen(1), seen(2, api_key=19)])
    runtime.run(audit.stop())
    assert [line["api"] for line in lines(runtime)] == ["CreateTopics"]


def test_what_finds_no_room_is_counted() -> None:
    """In memory, and on the disk; what comes later is written in its place."""
    runtime, audit = started(lines_waiting_max=3)
    audit.requests([seen(n) for n in range(5)])
    runtime.run_turn()
    assert (audit.written, audit.lost) == (3, 2)
    runtime.disk.inject(Fault(operation="pwritev", error_number=errno.ENOSPC))
    audit.requests([seen(7)])
    runtime.run_turn()
    audit.requests([seen(8)])
    runtime.run(audit.stop())
    assert (audit.written, audit.lost) == (4, 3)
    assert [line["correlation_id"] for line in lines(runtime)] == [0, 1, 2, 8]
