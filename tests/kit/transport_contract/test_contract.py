"""The transport contract bites: each fault planted in net_asyncio turns at least the named test red."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blumfeld.net import memory, send_queue, turn
from blumfeld.net.connections import accepted
from blumfeld.net.connections.stream import Stream
from blumfeld.net.readiness import streams as readiness
from blumfeld.net.readiness.streams import SocketSendQueue
from blumfeld.spi.parts import FileRegion, Parts
from blumfeld.spi.runtime import Runtime
from blumfeld_kit.transport_contract import TransportContract, kit
from blumfeld_net_asyncio import transport
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """What fails leaves a circle of the error and its frames, with the buffers of a transport: 100 MB after all."""
    yield
    gc.collect()


Plant = Callable[[pytest.MonkeyPatch], None]


def make_transport(runtime: Runtime) -> transport.AsyncioTransport:
    return transport.AsyncioTransport(runtime, NoLog(), read_bytes=4_096, accepts_per_turn_max=8)


def answers_at_once(patch: pytest.MonkeyPatch) -> None:
    original = accepted.RequestExchange.answer

    def answer(self: accepted.RequestExchange, parts: Parts) -> None:
        original(self, parts)
        self.connection.flush()

    patch.setattr(accepted.RequestExchange, "answer", answer)


def answers_out_of_order(patch: pytest.MonkeyPatch) -> None:
    original = accepted.RequestExchange.answer

    def answer(self: accepted.RequestExchange, parts: Parts) -> None:
        self.connection.open.remove(self)
        self.connection.open.appendleft(self)
        original(self, parts)

    patch.setattr(accepted.RequestExchange, "answer", answer)


def starts_without_waiting(patch: pytest.MonkeyPatch) -> None:
    class Passed(accepted.RequestExchange, gc=False):
        passed: bool = True

    patch.setattr(accepted, "RequestExchange", Passed)


def recycles_memory_too_early(patch: pytest.MonkeyPatch) -> None:
    original = readiness.ReadableStream._readable

    def readable(self: readiness.ReadableStream) -> None:
        self.turn.pool.position = 0
        original(self)

    patch.setattr(readiness.ReadableStream, "_readable", readable)


def forgets_to_release(patch: pytest.MonkeyPatch) -> None:
    def clear(self: send_queue.SendQueue) -> None:
        self._items.clear()
        self.unsent_bytes = 0

    patch.setattr(send_queue.SendQueue, "clear", clear)


def releases_twice(patch: pytest.MonkeyPatch) -> None:
    original = send_queue.SendQueue._release_head

    def release_head(self: send_queue.SendQueue, region: FileRegion) -> None:
        original(self, region)
        region.release()

    patch.setattr(send_queue.SendQueue, "_release_head", release_head)


def sends_from_the_wrong_place(patch: pytest.MonkeyPatch) -> None:
    original = SocketSendQueue._push_region

    def push_region(self: SocketSendQueue, region: FileRegion) -> bool:
        region.position = 0
        return original(self, region)

    patch.setattr(SocketSendQueue, "_push_region", push_region)


def reads_on_though_nobody_takes_the_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accepted, "FULL", 0)


def takes_what_is_announced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turn, "FIRST_BYTES_MAX", 1 << 30)


def takes_the_end_of_input_for_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "_ended", lambda self: self.die("closed by the peer"))


def closes_before_answering(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "end_when_sent", Stream.die)


def counts_waiting_as_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "idle_since", lambda self: self._active_ms)


def ignores_mute(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accepted.AcceptedConnection, "mute", lambda self, until_ms: None)


def accepts_any_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accepted.AcceptedConnection, "refuse", lambda self, size: None)


def never_waits_for_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory.Memory, "refuses", lambda self, frame, more_bytes: False)


def feeds_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory.Memory, "_feed", lambda self: None)


def the_oldest_waits_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory.Memory, "_oldest", lambda self: None)


def spares_those_that_stand_still(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "PROGRESS_BYTES_MIN", -1)
    patch.setattr(memory, "OLDEST_LOOKS_MAX", 1 << 30)


def closes_those_that_nobody_waits_for(patch: pytest.MonkeyPatch) -> None:
    original = memory.Memory.begin

    def begin(self: memory.Memory, frame: turn.LargeFrame, receiver: Stream, held_bytes: int) -> None:
        original(self, frame, receiver, held_bytes)
        self._runtime.call_later(self.stall_ms, lambda: receiver.die("its time is over"))

    patch.setattr(memory.Memory, "begin", begin)


def counts_no_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory.Memory, "unsent", lambda self, reader, before_bytes, now_bytes: None)


def counts_file_regions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(send_queue.SendQueue, "memory_bytes", lambda self: self.unsent_bytes)
    patch.setattr(memory.Memory, "_close_slow", _close_all)


def _close_all(self: memory.Memory, still_ms: float, limit_bytes: int) -> None:
    for reader in list(self._slow):
        reader.die("it is slow")


PLANTED: list[tuple[Plant, str, tuple[object, ...]]] = [
    (answers_at_once, "test_answers_leave_after_the_writes_of_the_turn", ()),
    (answers_out_of_order, "test_the_next_request_starts_early_where_it_may", ()),
    (starts_without_waiting, "test_the_next_request_waits_for_the_answer", ()),
    (recycles_memory_too_early, "test_a_frame_is_writable_and_stays_unchanged_until_the_end_of_the_turn", ()),
    (forgets_to_release, "test_a_region_is_released_when_the_peer_dies", ()),
    (releases_twice, "test_a_region_is_sent_as_it_is", (1_000, False)),
    (sends_from_the_wrong_place, "test_a_region_is_sent_as_it_is", (1_000, False)),
    (reads_on_though_nobody_takes_the_answers, "test_a_slow_reader_is_not_read_and_loses_nothing", ()),
    (takes_what_is_announced, "test_memory_is_taken_as_bytes_arrive_not_as_announced", ()),
    (takes_the_end_of_input_for_the_end, "test_a_client_that_has_no_more_to_say_still_gets_its_answers", ()),
    (closes_before_answering, "test_stop_lets_open_exchanges_end_within_its_grace", ()),
    (counts_waiting_as_idle, "test_a_connection_that_waits_for_us_is_not_idle", ()),
    (ignores_mute, "test_a_mute_connection_is_not_read", ()),
    (never_waits_for_memory, "test_unfinished_frames_are_bounded_together", ()),
    (feeds_nobody, "test_every_frame_completes_under_a_bound_that_holds_none", ()),
    (the_oldest_waits_too, "test_every_frame_completes_under_a_bound_that_holds_none", ()),
    (spares_those_that_stand_still, "test_a_frame_that_stands_still_gives_way_to_those_that_wait", ()),
    (closes_those_that_nobody_waits_for, "test_a_frame_that_stands_still_stays_while_nobody_waits", ()),
    (counts_no_answers, "test_slow_readers_of_large_answers_are_bounded_together", ()),
    (counts_file_regions, "test_file_regions_hold_no_memory", ()),
    (accepts_any_size, "test_a_frame_that_is_too_large_or_negative_closes_the_connection", (b"\xff" * 4,)),
]


def passes(test: str, arguments: tuple[object, ...], folder: Path) -> bool:
    """Whether that test of the contract passes, with what its fixture checks at the end."""
    net = kit.Net(make_transport, asyncio.new_event_loop, folder)
    net.start()
    try:
        getattr(TransportContract(), test)(net, *arguments)
    except (AssertionError, EOFError, TimeoutError, RuntimeError, pytest.fail.Exception):
        return False
    finally:
        net.finish()
    return net.defects == [] and all(region.releases == 1 for region in net.regions)


@pytest.mark.parametrize(
    ("plant", "test", "arguments"), PLANTED, ids=[plant.__name__ for plant, _, _ in PLANTED]
)
def test_a_planted_fault_turns_the_contract_red(
    plant: Plant, test: str, arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert passes(test, arguments, tmp_path)
    monkeypatch.setattr(kit, "PATIENCE_S", 0.5)
    plant(monkeypatch)
    assert not passes(test, arguments, tmp_path)
