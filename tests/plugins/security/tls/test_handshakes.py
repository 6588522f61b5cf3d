"""Handshakes are bounded in time and number, and a burst of them is worked off in small batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.tls import handshakes as module
from blumfeld_security.tls.handshakes import LOOK_MS, STEPS_AT_ONCE, Handshakes
from tests.plugins.security.tls.authority import client_context
from tests.plugins.security.tls.ends import Stranger, server, shake
from tests.plugins.security.tls.test_layer import context


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


def test_a_handshake_that_does_not_end_in_time_closes_the_connection(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    handshakes = Handshakes(runtime, time_ms_max=5_000)
    silent = server(runtime, context(), handshakes)
    slow = server(runtime, context(), handshakes)
    hello = Stranger(client_context(tmp_path)).step()
    for nth in range(4):
        slow.take(hello[nth : nth + 1])
        runtime.advance(1_200)
    assert (silent.broken, slow.broken) == (None, None)
    runtime.advance(200 + LOOK_MS)
    assert silent.broken == slow.broken == "no handshake within 5 s"
    assert handshakes.failed == 2
    assert not handshakes._open
    assert handshakes._admitted == 0


def test_a_completed_handshake_has_no_end(runtime: FakeRuntime, tmp_path: Path) -> None:
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    shake(near, far)
    runtime.advance(1_000_000)
    near.take(far.say(b"still here"))
    assert near.plain == b"still here"


def test_time_in_our_own_queue_is_not_the_clients(runtime: FakeRuntime, tmp_path: Path) -> None:
    handshakes = Handshakes(runtime, time_ms_max=1_000)
    runtime.offload_delay_ms = lambda: 900.0
    near, far = server(runtime, context(), handshakes), Stranger(client_context(tmp_path))
    near.take(far.step())
    runtime.advance(900)
    far.incoming.write(near.sent())
    near.take(far.step())
    runtime.advance(900)
    assert near.layer.completed


def test_a_time_that_ends_during_a_step_waits_for_the_step(runtime: FakeRuntime, tmp_path: Path) -> None:
    """A worker has the connection's memory."""
    handshakes = Handshakes(runtime, time_ms_max=1_000)
    runtime.offload_delay_ms = lambda: 3_000.0
    near, far = server(runtime, context(), handshakes), Stranger(client_context(tmp_path))
    near.take(far.step())
    runtime.advance(2_000)
    assert near.layer.waiting
    assert near.broken is None
    runtime.advance(2_000)
    assert near.broken == "no handshake within 1 s"


def test_one_address_with_half_handshakes_shuts_nobody_out(runtime: FakeRuntime, tmp_path: Path) -> None:
    handshakes = Handshakes(runtime, open_max=4)
    hello = Stranger(client_context(tmp_path)).step()

    def begin(address: str) -> Any:
        end = server(runtime, context(), handshakes)
        end.layer.peer = address
        end.take(hello)
        end.sent()
        return end

    flood = [begin("192.0.2.66") for _ in range(6)]
    assert [end.broken is None for end in flood] == [True] * 4 + [False] * 2
    broker = begin("192.0.2.1")
    assert broker.broken is None
    assert flood[0].broken == "too many TLS handshakes of its address are under way"
    assert begin("192.0.2.66").broken is not None
    assert begin("192.0.2.1").broken is None
    assert begin("192.0.2.1").broken is not None, "it has its share"
    assert handshakes._admitted == 4


def test_only_so_many_handshakes_are_under_way(runtime: FakeRuntime, tmp_path: Path) -> None:
    handshakes = Handshakes(runtime, open_max=2)
    hello = Stranger(client_context(tmp_path)).step()
    idle = [server(runtime, context(), handshakes) for _ in range(5)]
    ends = [server(runtime, context(), handshakes) for _ in range(3)]
    for end in ends:
        end.take(hello)
        end.sent()
    assert [end.broken for end in ends] == [None, None, "too many TLS handshakes are under way"]
    assert all(end.broken is None for end in idle), "a connection without a byte holds no memory for TLS"
    ends[0].layer.detach()
    idle[0].take(hello)
    idle[0].sent()
    assert idle[0].broken is None


def test_a_burst_is_worked_off_in_batches(
    runtime: FakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    work = module._work

    def counted(steps: Any) -> None:
        sizes.append(len(steps))
        work(steps)

    monkeypatch.setattr(module, "_work", counted)
    handshakes = Handshakes(runtime)
    served, client = context(), client_context(tmp_path)
    pairs = [(server(runtime, served, handshakes), Stranger(client)) for _ in range(50)]
    for near, far in pairs:
        near.take(far.step())
    for near, far in pairs:
        far.incoming.write(near.sent())
        near.take(far.step())
    for near, _ in pairs:
        near.sent()
    assert all(near.layer.completed for near, _ in pairs)
    assert handshakes.completed == 50
    assert max(sizes) <= STEPS_AT_ONCE
    assert handshakes._workers == 0


def test_a_worker_rests_between_its_steps_while_others_wait(runtime: FakeRuntime, tmp_path: Path) -> None:
    """The clients of a burst and the loop want processors, too."""
    handshakes = Handshakes(runtime)
    runtime.offload_delay_ms = lambda: 10.0
    served, client = context(), client_context(tmp_path)
    ends = [server(runtime, served, handshakes) for _ in range(3 * STEPS_AT_ONCE)]
    for end in ends:
        end.take(Stranger(client).step())
    answered = []
    for _ in range(6):
        runtime.advance(10)
        answered.append(sum(not end.layer.waiting for end in ends) // STEPS_AT_ONCE)
    assert answered == [1, 1, 2, 2, 3, 3]
    assert handshakes._workers == 0, "none rests when nobody waits"


def test_counts_are_metrics(runtime: FakeRuntime, tmp_path: Path) -> None:
    handshakes = Handshakes(runtime)
    shake(server(runtime, context(), handshakes), Stranger(client_context(tmp_path)))
    server(runtime, context(), handshakes).take(b"GET /")
    values = {metric.name: metric.read() for metric in handshakes.metrics()}
    assert values["blumfeld_tls_handshakes_total"] == 1
    assert values["blumfeld_tls_handshakes_failed_total"] == 1
    assert values["blumfeld_tls_handshakes_open"] == 0
