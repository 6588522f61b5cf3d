"""Which quota counts for a client, and the section of the image."""

from __future__ import annotations

from itertools import combinations

from blumfeld.wire.messages.metadata_records import ClientQuotaRecord, EntityData
from blumfeld_quotas.entities import (
    PRODUCED,
    Limit,
    QuotaSection,
    connection_limit,
    entity_of,
    limit_of,
)

ORDER = (
    ((("user", "u"), ("client-id", "c")), ("u", "c")),
    ((("user", "u"), ("client-id", None)), ("u", "c")),
    ((("user", "u"),), ("u", None)),
    ((("user", None), ("client-id", "c")), ("u", "c")),
    ((("user", None), ("client-id", None)), ("u", "c")),
    ((("user", None),), ("u", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
)
"""Kafka's order: (entity, what it is counted for), the most specific first."""


def test_the_most_specific_entity_counts() -> None:
    for size in (1, 2, 3):
        for some in combinations(range(len(ORDER)), size):
            quotas = {entity_of(ORDER[nth][0]): {PRODUCED: float(nth)} for nth in some}
            first = min(some)
            assert limit_of(quotas, PRODUCED, "u", "c") == Limit(float(first), ORDER[first][1])
            assert limit_of(quotas, "consumer_byte_rate", "u", "c") is None


def test_another_client_has_the_defaults_alone() -> None:
    quotas = {entity_of(entity): {PRODUCED: float(nth)} for nth, (entity, _) in enumerate(ORDER)}
    assert limit_of(quotas, PRODUCED, "other", "c") == Limit(3.0, ("other", "c"))
    assert limit_of(quotas, PRODUCED, "other", "else") == Limit(4.0, ("other", "else"))


def test_an_address_has_its_own_limit_or_the_default() -> None:
    quotas = {entity_of([("ip", "10.0.0.1")]): {"connection_creation_rate": 5.0}}
    assert connection_limit(quotas, "10.0.0.1") == 5.0
    assert connection_limit(quotas, "10.0.0.2") is None
    quotas[entity_of([("ip", None)])] = {"connection_creation_rate": 7.0}
    assert connection_limit(quotas, "10.0.0.2") == 7.0


def record(value: float, *, remove: bool = False, key: str = PRODUCED) -> ClientQuotaRecord:
    entity = [EntityData(entity_type="user", entity_name="u")]
    return ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


def test_a_step_leaves_the_value_before_it_as_it_is() -> None:
    section, entity = QuotaSection(), entity_of([("user", "u")])
    before = section.replay(section.empty(), [record(1.0), record(2.0, key="request_percentage")])
    after = section.replay(before, [record(3.0), record(0.0, key="request_percentage", remove=True)])
    assert before == {entity: {PRODUCED: 1.0, "request_percentage": 2.0}}
    assert after == {entity: {PRODUCED: 3.0}}
    assert section.replay(after, [record(0.0, remove=True)]) == {}
