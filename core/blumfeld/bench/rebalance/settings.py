"""What must be equal on both sides, set on each server and read back from it, and how much is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

BROKER_RESOURCE = 4
"""Of DescribeConfigs: a broker's configuration."""
SETTINGS_WORD = "{settings}"
"""In a foreign start command: becomes one word ``key=value`` for each setting."""
SCENARIOS = ("kill one", "add one", "one leaves", "add 10 %")
"""In the order in which they are run: a group of n goes n-1, n, n-1, n-1 + n/10."""
KIP_848 = "KIP-848"
PROTOCOLS = ("eager", "cooperative", KIP_848)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run depends on, beside the servers. Times in ms."""

    sizes: tuple[int, ...] = (10, 100, 1000)
    protocols: tuple[str, ...] = PROTOCOLS
    scenarios: tuple[str, ...] = SCENARIOS
    partitions_per_member: int = 2
    session_timeout_ms: int = 6000
    heartbeat_interval_ms: int = 1000
    rebalance_timeout_ms: int = 60_000
    initial_rebalance_delay_ms: int = 500
    assignment_interval_ms: int = 200
    """A fifth of the heartbeat interval, as Kafka's own values are: where both are equal, it is chance whether members
    hear of a new assignment at once or an interval later.
    """
    offsets_partitions: int = 50
    seed: int = 1

    def scenarios_of(self, size: int) -> tuple[str, ...]:
        """A tenth of ten is one: that was done already."""
        return tuple(one for one in self.scenarios if size // 10 > 1 or one != "add 10 %")

    def server(self) -> dict[str, str]:
        """Kafka's own keys with the values that every server of the run must have."""
        session, interval = str(self.session_timeout_ms), str(self.heartbeat_interval_ms)
        return {
            "group.min.session.timeout.ms": session,
            "group.initial.rebalance.delay.ms": str(self.initial_rebalance_delay_ms),
            "group.consumer.min.session.timeout.ms": session,
            "group.consumer.session.timeout.ms": session,
            "group.consumer.min.heartbeat.interval.ms": interval,
            "group.consumer.heartbeat.interval.ms": interval,
            "group.consumer.assignment.interval.ms": str(self.assignment_interval_ms),
            "group.consumer.assignors": "uniform,range",
            "offsets.topic.num.partitions": str(self.offsets_partitions),
        }

    def overrides(self) -> list[str]:
        """The same for a manifest, as ``--set`` takes them."""
        return [f'config."{key}"={_toml(value)}' for key, value in self.server().items()]

    def words(self) -> list[str]:
        """The same for a foreign start command."""
        return [f"{key}={value}" for key, value in self.server().items()]


def _toml(value: str) -> str:
    if value.isdigit():
        return value
    return "[" + ", ".join(f'"{one}"' for one in value.split(",")) + "]"


def differences(wanted: Mapping[str, str], found: Mapping[str, str | None]) -> list[str]:
    """What a server says otherwise, or does not say, in words."""
    wrong = []
    for key, value in wanted.items():
        said = found.get(key)
        if said is None:
            wrong.append(f"{key}: not told, should be {value}")
        elif _canonical(said) != _canonical(value):
            wrong.append(f"{key}: {said}, should be {value}")
    return wrong


def _canonical(value: str) -> str:
    """Kafka tells its own assignors by the names of their classes."""
    known = {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
    return ",".join(known.get(one.strip(), one.strip()) for one in value.split(","))


def filled(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """A start command with the settings in the place of its ``{settings}``."""
    found: list[str] = []
    for part in command:
        found += words if part == SETTINGS_WORD else [part]
    return tuple(found)
