"""AlterClientQuotas and DescribeClientQuotas: what is decided and shown, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.image_sections import Circumstances
from blumfeld.spi.steps import STEP_ELEMENTS, drained
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from blumfeld.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from blumfeld.wire.messages.metadata_records import ClientQuotaRecord
from blumfeld_quotas.alter import AlterQuotas
from blumfeld_quotas.entities import QuotaSection, entity_of
from blumfeld_quotas.handlers import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    check_components,
    description,
    handlers,
)
from tests.coordinator.fakes import FakeContext

AT = Circumstances(monotonic_ms=0.0, wall_ms=0, on_behalf=None, new_secret=bytes)
USER = (("user", "u"),)
PRODUCED = "producer_byte_rate"


def entry(*ops: tuple[str, float | None], entity: Any = USER) -> RequestEntryData:
    return RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def altered(
    *entries: RequestEntryData, quotas: Any = None, validate_only: bool = False
) -> tuple[list[ClientQuotaRecord], list[tuple[int, str | None]]]:
    image = cast("Any", SimpleNamespace(section=lambda _: quotas or {}))
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    decided = AlterQuotas().decide(image, request, AT)
    answer = decided.response
    assert isinstance(answer, AlterClientQuotasResponse)
    results = [(result.error_code, result.error_message) for result in answer.entries]
    return cast("list[ClientQuotaRecord]", list(decided.records)), results


def test_a_value_is_set_changed_and_removed() -> None:
    records, results = altered(entry((PRODUCED, 1_000.0), ("request_percentage", 12.5)))
    assert results == [(0, None)]
    quotas = QuotaSection().replay({}, records)
    assert quotas == {entity_of(USER): {PRODUCED: 1_000.0, "request_percentage": 12.5}}
    records, _ = altered(entry((PRODUCED, None), ("consumer_byte_rate", None)), quotas=quotas)
    assert [(record.key, record.remove) for record in records] == [(PRODUCED, True)]


def test_what_changes_nothing_writes_nothing() -> None:
    quotas = {entity_of(USER): {PRODUCED: 5.0}}
    assert altered(entry((PRODUCED, 5.0)), quotas=quotas) == ([], [(0, None)])
    assert altered(entry((PRODUCED, 6.0)), validate_only=True) == ([], [(0, None)])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (entry((PRODUCED, 1.0), entity=()), "at least one part"),
        (entry((PRODUCED, 1.0), entity=(("group", "g"),)), "unknown entity type group"),
        (entry((PRODUCED, 1.0), entity=(("user", "u"), ("user", "v"))), "named twice"),
        (entry((PRODUCED, 1.0), entity=(("user", ""),)), "is empty"),
        (entry((PRODUCED, 1.0), entity=(("user", "u"), ("ip", "10.0.0.1"))), "no user and no client-id"),
        (entry(("connection_creation_rate", 1.0), entity=(("ip", "host"),)), "not a valid IP address"),
        (entry(("connection_creation_rate", 1.0)), "invalid quota key"),
        (entry((PRODUCED, 1.0), entity=(("ip", None),)), "invalid quota key"),
        (entry((PRODUCED, 0.0)), "greater than 0"),
        (entry(("connection_creation_rate", 0.0), entity=(("ip", None),)), "greater than 0"),
        (entry((PRODUCED, float("nan"))), "greater than 0"),
        (entry(("request_percentage", -1.0)), "greater than 0"),
        (entry((PRODUCED, 1.5)), "whole number"),
        (entry((PRODUCED, 1e300)), "too large"),
        (entry((PRODUCED, float("inf"))), "too large"),
        (entry((PRODUCED, 1.0), (PRODUCED, 2.0)), "named twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_not_be_is_refused_and_the_others_are_done(bad: RequestEntryData, said: str) -> None:
    records, results = altered(bad, entry((PRODUCED, 7.0), entity=(("client-id", "c"),)))
    code, message = results[0]
    assert code == ErrorCode.INVALID_REQUEST
    assert said in (message or "")
    assert results[1] == (0, None)
    assert [record.value for record in records] == [7.0]


QUOTAS = {
    entity_of([("user", "u")]): {PRODUCED: 1.0},
    entity_of([("user", None)]): {PRODUCED: 2.0},
    entity_of([("user", "u"), ("client-id", "c")]): {PRODUCED: 3.0},
    entity_of([("ip", "10.0.0.1")]): {"connection_creation_rate": 4.0},
}


@pytest.mark.parametrize(
    ("components", "strict", "values"),
    [
        ((), False, [1.0, 2.0, 3.0, 4.0]),
        ((), True, []),
        ((("user", EXACT, "u"),), False, [1.0, 3.0]),
        ((("user", EXACT, "u"),), True, [1.0]),
        ((("user", DEFAULT, None),), False, [2.0]),
        ((("user", SPECIFIED, None),), False, [1.0, 2.0, 3.0]),
        ((("user", SPECIFIED, None), ("client-id", SPECIFIED, None)), False, [3.0]),
        ((("ip", SPECIFIED, None),), False, [4.0]),
        ((("client-id", DEFAULT, None),), False, []),
    ],
)
def test_entities_are_found_by_their_parts(components: Any, strict: bool, values: list[float]) -> None:
    wanted = [ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components]
    check_components(wanted)
    found = drained(description(QUOTAS, wanted, strict=strict)).entries
    assert found is not None
    assert sorted(one.values[0].value for one in found) == values


@pytest.mark.parametrize("components", [(), (("user", EXACT, "nobody"),)])
def test_a_long_list_is_made_in_steps(components: Any) -> None:
    """Also where few entities match: each is looked at."""
    looked_at = 0

    class Counted(dict[Any, Any]):
        def items(self) -> Any:
            nonlocal looked_at
            for item in super().items():
                looked_at += 1
                yield item

    count = 10 * STEP_ELEMENTS
    quotas = Counted({entity_of([("user", f"u{n}")]): {PRODUCED: float(n)} for n in range(count)})
    image = SimpleNamespace(section=lambda _: quotas)
    composition: Any = SimpleNamespace(metadata=SimpleNamespace(image=image), node_id=1)
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components]
    )
    describe = next(handler for handler in handlers(composition) if handler.key == 48)
    answers = []

    def steps() -> Any:
        served: Any = describe.handle(request, FakeContext(48, 1))
        answers.append((yield from served))

    most = before = 0
    for _ in steps():
        most, before = max(most, looked_at - before), looked_at
    assert len(answers[0].entries) == (0 if components else count)
    assert looked_at == count
    assert 0 < most <= STEP_ELEMENTS


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ((("user", EXACT, "u"), ("user", DEFAULT, None)), ErrorCode.INVALID_REQUEST),
        ((("group", EXACT, "g"),), ErrorCode.UNSUPPORTED_VERSION),
        ((("user", 7, "u"),), ErrorCode.INVALID_REQUEST),
        ((("user", EXACT, "u"), ("ip", EXACT, "10.0.0.1")), ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_can_not_be_are_refused(components: Any, code: ErrorCode) -> None:
    wanted = [ComponentData(entity_type=t, match_type=m, match=n) for t, m, n in components]
    with pytest.raises(BrokerError) as caught:
        check_components(wanted)
    assert caught.value.code == code
