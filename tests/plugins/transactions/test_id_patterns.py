"""The expression of ListTransactions: what it may be, and where and against what it is matched."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.coordinator.expressions import CHARACTERS_MAX
from blumfeld.spi.completion import Steps
from blumfeld.spi.context import RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_transactions import id_patterns
from blumfeld_transactions.id_patterns import (
    ID_CHARACTERS_AT_ONCE,
    IdPatterns,
    pieces,
)
from blumfeld_transactions.listing import ListingApis
from tests.plugins.transactions.test_on_broker import Transacting

WORKER_MS = 250.0


@pytest.fixture
def broker() -> Transacting:
    started = Transacting()
    for name in ("mine-1", "mine-2", "theirs"):
        started.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000), 4)
    return started


def serve(broker: Transacting, pattern: str, may_see: str = "") -> ListTransactionsResponse:
    """Serve a list for a client that may describe only ids with this prefix."""
    apis = ListingApis(cast("Any", broker.broker.transactions), IdPatterns(broker.runtime))
    context = SimpleNamespace(authorize=lambda operation, kind, name, **_: name.startswith(may_see))
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    return driven(broker, apis.list_some(request, cast("RequestContext", context)))


def driven(broker: Transacting, steps: Steps[ListTransactionsResponse]) -> ListTransactionsResponse:
    while True:
        try:
            awaited = next(steps)
        except StopIteration as end:
            return cast("ListTransactionsResponse", end.value)
        while awaited is not None and not awaited.done:
            broker.runtime.advance(WORKER_MS)


def test_a_worker_thread_compiles_and_matches(broker: Transacting) -> None:
    """A short expression over five ids of 32 kB held the loop for seven seconds."""
    broker.runtime.offload_delay_ms = lambda: WORKER_MS
    began_ms = broker.runtime.monotonic_ms()
    assert len(serve(broker, "mine-.").transaction_states) == 2
    assert broker.runtime.monotonic_ms() - began_ms >= 2 * WORKER_MS


def test_only_ids_that_the_client_may_see_are_matched(
    broker: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched: list[str] = []
    original = id_patterns._matches

    def noted(compiled: Any, ids: list[str]) -> list[bool]:
        matched.extend(ids)
        return original(compiled, ids)

    monkeypatch.setattr(id_patterns, "_matches", noted)
    answer = serve(broker, ".*[12s]", may_see="mine")
    assert (
        [transaction.transactional_id for transaction in answer.transaction_states]
        == ["mine-1", "mine-2"]
        == matched
    )


def test_a_shard_that_has_moved_is_matched_no_further(
    broker: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that stops, and has given its shards away, waited 12 s for the expression of one client."""
    matched: list[str] = []

    def noted(_compiled: Any, ids: list[str]) -> list[bool]:
        matched.extend(ids)
        return [True] * len(ids)

    monkeypatch.setattr(id_patterns, "_matches", noted)
    monkeypatch.setattr(id_patterns, "ID_CHARACTERS_AT_ONCE", 1)
    monkeypatch.setattr(broker.broker.transactions, "epoch_of", lambda partition: None if matched else 0)
    with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        serve(broker, "mine-.", may_see="mine")
    assert len(matched) == 1


def test_groups_are_not_captured() -> None:
    """Three thousand groups took gigabytes for one id: the node was killed."""
    assert id_patterns._compiled("(a)(b)").groups == 0


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("a" * CHARACTERS_MAX, True),
        ("a" * (CHARACTERS_MAX + 1), False),
        ("|".join(f"feed-{number}-trades" for number in range(250)), True),
        (r"\pL+-\d{1,9}", True),
        ("[ab]{1000}" * 100, False),
        ("(", False),
    ],
    ids=["long", "too long", "names", "letters", "too large", "bad"],
)
def test_expressions_that_are_taken(pattern: str, taken: bool) -> None:
    runtime = FakeRuntime()
    compiled = IdPatterns(runtime).compiled(pattern)
    runtime.advance(1)
    assert compiled.done
    assert (compiled.error is None) == taken
    if not taken:
        assert isinstance(compiled.error, BrokerError)
        assert compiled.error.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_one_worker_thread_serves_all_requests() -> None:
    """Other work needs the node's few worker threads: cold reads, flushes."""
    runtime = FakeRuntime()
    runtime.offload_delay_ms = lambda: WORKER_MS
    patterns = IdPatterns(runtime)
    compilations = [patterns.compiled("a") for _ in range(3)]
    for done in range(1, 4):
        runtime.advance(WORKER_MS)
        assert sum(compilation.done for compilation in compilations) <= done
    runtime.advance(WORKER_MS)
    assert all(compilation.done for compilation in compilations)


def test_ids_are_cut_into_pieces() -> None:
    long, short = "l" * 30_000, "s" * (ID_CHARACTERS_AT_ONCE // 4)
    assert [len(some) for some in pieces([long, long])] == [1, 1]
    assert [len(some) for some in pieces([short] * 10)] == [4, 4, 2]
    assert [len(some) for some in pieces([short, long, short])] == [1, 1, 1]


def test_matching_leaves_the_interpreter_to_the_loop() -> None:
    """The engine gives the interpreter back while it matches. Python's own ``re`` doesn't."""
    compiled = id_patterns._compiled("(?:[ab]*a[ab]{200})" * 20)
    turns = 0
    done = threading.Event()

    def match() -> None:
        id_patterns._matches(compiled, ["ab" * 2_000])
        done.set()

    thread = threading.Thread(target=match)
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert turns >= 5
