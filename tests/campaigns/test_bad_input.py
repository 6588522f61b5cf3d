"""The table of bad input holds for a broker in this process, and sees a broker that does not keep to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from blumfeld.broker.replicas.rules import record_rules
from blumfeld.testing.embedded import EmbeddedBroker
from campaigns.bad_input import __main__ as program
from campaigns.bad_input import batches
from campaigns.bad_input.__main__ import wire_cases
from campaigns.bad_input.case import Case, run_cases
from campaigns.bad_input.target import CLOSED, Target

RIGHT = Case("all is well", "NONE", lambda target: target.metadata(target.topic))
WRONG = replace(RIGHT, title="all is not well", expected=CLOSED)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with EmbeddedBroker() as broker:
        yield Target(broker.bootstrap_servers, "bad")


@pytest.mark.timeout(600)
def test_what_a_running_broker_is_given(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case of the wire: what comes back, a round trip after each, nothing lost at the end. The bombs and the
    broker's bound are a tenth of the campaign's.
    """
    monkeypatch.setattr(record_rules, "DECOMPRESSED_BYTES_MAX", 10 << 20)
    monkeypatch.setattr(batches, "BOMB_BYTES", 20 << 20)
    results = run_cases(wire_cases(), target, lambda _: None)
    bad = [(r.case.title, r.case.expected, r.came, r.serves_on) for r in results if not r.good]
    assert not bad
    assert target.lost() == ""
    assert target.acknowledged >= len(results)


def test_a_title_names_one_case() -> None:
    titles = [case.title for case in wire_cases()]
    assert len(set(titles)) == len(titles)


def test_another_answer_is_a_deviation(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    assert [r.good for r in run_cases([RIGHT, WRONG], target, lambda _: None)] == [True, False]


def test_a_case_that_raises_is_a_deviation(target: Target) -> None:
    def act(_: Target) -> str:
        raise TimeoutError("no answer")

    (result,) = run_cases([replace(RIGHT, act=act)], target, lambda _: None)
    assert not result.good
    assert result.came == "TimeoutError: no answer"


def test_a_broker_that_serves_no_more_is_a_deviation() -> None:
    with EmbeddedBroker() as broker:
        target = Target(broker.bootstrap_servers, "dying")

        def act(_: Target) -> str:
            broker.stop()
            return "NONE"

        (result,) = run_cases([replace(RIGHT, act=act)], target, lambda _: None)
    assert not result.good
    assert "ConnectionRefused" in result.serves_on


def test_a_lost_record_is_seen(target: Target) -> None:
    """Or one that changed: all that was acknowledged is read."""
    assert target.round_trip() == ""
    assert target.lost() == ""
    target._acknowledged.append(b"never sent")
    assert target.lost() != ""
    target._acknowledged.pop()


def test_the_exit_status_tells(
    target: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "wire_cases", lambda: [RIGHT])
    assert program.main(["--bootstrap", target.address]) == 0
    monkeypatch.setattr(program, "wire_cases", lambda: [RIGHT, WRONG])
    assert program.main(["--bootstrap", target.address]) == 1
    assert "NONE, must be closed" in capsys.readouterr().out
