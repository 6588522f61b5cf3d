"""The contract of every assignor, and what makes this one yours."""

from __future__ import annotations

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld_kit import AssignorContract
from blumfeld_kit.assignor_contract import deal, make_spec, topic_id

from acme_assignor import AcmeAssignor


class TestAcmeAssignor(AssignorContract):
    """All that every assignor must hold."""

    def make_assignor(self) -> ConsumerAssignor:
        """Return a new one."""
        return AcmeAssignor()


def test_it_deals_as_you_promise() -> None:
    """RED UNTIL YOU WRITE IT. Say here which member gets what; this asks that two readers share a topic."""
    group = make_spec({"a": {0}, "b": {0}}, [4])  # members and the topics they read; partitions of each topic
    dealt = deal(AcmeAssignor(), group)
    counts = {member: len(dealt.get(member, {}).get(topic_id(0), ())) for member in group.members}
    assert counts == {"a": 2, "b": 2}
