"""Two groups that consume the load while the cluster is hurt: a classic one and one of KIP-848."""

from __future__ import annotations

import time

from campaigns.cluster.load import TOPIC
from campaigns.group_kills.cast import Group
from campaigns.group_kills.ledger import GroupLedger, Place

POLL_S = 0.1
FINISH_S = 120.0
"""Longest wait at the end until both groups have committed everything."""


class Groups:
    """Both groups, with two members each."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.ledger = GroupLedger()
        self._everything = {(TOPIC, at) for at in range(partitions)}
        self._groups = (
            Group("classic", "classic", ("confluent_member", "kafka_python_member"), bootstrap, TOPIC),
            Group("consumer", "consumer", ("confluent_member",), bootstrap, TOPIC),
        )

    def start(self) -> None:
        """Start the members."""
        for group in self._groups:
            for _ in range(2):
                group.add()

    def await_owned(self, timeout_s: float) -> dict[str, float]:
        """Wait until each partition has an owner in both groups.

        :return: for each group the seconds that it took; ``timeout_s`` for one that didn't get there
        """
        began = time.monotonic()
        took: dict[str, float] = {}
        while len(took) < len(self._groups) and time.monotonic() - began < timeout_s:
            for group in self._groups:
                group.replace_dead()
                if group.name not in took and group.owned() == self._everything:
                    took[group.name] = time.monotonic() - began
            time.sleep(POLL_S)
        return {group.name: took.get(group.name, timeout_s) for group in self._groups}

    def describe(self) -> str:
        """Return what each member owns, for a report of a group that did not come to rest."""
        return "; ".join(
            f"{member.name} ({'up' if member.alive else 'ended'}) owns {sorted(at for _, at in member.owned)}"
            for group in self._groups
            for member in group.living
        )

    def finish(self, ends: dict[Place, int]) -> None:
        """Let both groups get to the ends; note in the ledger what they did not consume. All members end."""
        deadline = time.monotonic() + FINISH_S
        while not self._are_at(ends):
            if time.monotonic() > deadline:
                self.ledger.wrong.append(f"a group doesn't get to the end: {self.describe()}")
                break
            for group in self._groups:
                group.replace_dead()
            time.sleep(POLL_S)
        for group in self._groups:
            self.ledger.check_consumed(group.name, group.runs(), ends)
        self.end()

    def end(self) -> None:
        """End all members; harmless twice."""
        for group in self._groups:
            group.end()
            self.ledger.wrong += group.wrong
            group.wrong.clear()

    def _are_at(self, ends: dict[Place, int]) -> bool:
        for group in self._groups:
            group.tell(self.ledger)
        return all(self.ledger.promised(group.name) == ends for group in self._groups)
