"""Settings that must be equal on all servers: set on each one and read back from it. Also the size of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

SETTINGS_WORD = "{settings}"
"""Placeholder in a foreign start command; replaced by one word ``key=value`` for each setting."""
SCENARIOS = ("kill one", "add one", "one leaves", "add 10 %")
"""Scenarios in their order: a group of n goes to n-1, n, n-1, n-1 + n/10 members."""
KIP_848 = "KIP-848"
PROTOCOLS = ("eager", "cooperative", KIP_848)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run depends on beside the servers. Times in ms."""

    sizes: tuple[int, ...] = (10, 100, 1000)
    protocols: tuple[str, ...] = PROTOCOLS
    scenarios: tuple[str, ...] = SCENARIOS
    partitions_per_member: int = 2
    session_timeout_ms: int = 6000
    heartbeat_interval_ms: int = 1000
    rebalance_timeout_ms: int = 60_000
    initial_rebalance_delay_ms: int = 500
    assignment_interval_ms: int = 200
    """A fifth of the heartbeat interval, as in Kafka's defaults. If both were equal, it would be chance whether members
    hear of a new assignment at once or an interval later.
    """
    offsets_partitions: int = 50
    seed: int = 1

    def scenarios_of(self, size: int) -> tuple[str, ...]:
        """Return the scenarios for a group size. A tenth of ten is one member, which "add one" has measured already."""
        return tuple(scenario for scenario in self.scenarios if size // 10 > 1 or scenario != "add 10 %")

    def server(self) -> dict[str, str]:
        """Return the values of Kafka's keys that every server of the run must have."""
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
        """Return the server settings as ``--set`` overrides of a manifest."""
        return [f'config."{key}"={_toml(value)}' for key, value in self.server().items()]

    def words(self) -> list[str]:
        """Return the server settings as words of a foreign start command."""
        return [f"{key}={value}" for key, value in self.server().items()]


def _toml(value: str) -> str:
    if value.isdigit():
        return value
    return "[" + ", ".join(f'"{word}"' for word in value.split(",")) + "]"


def differences(wanted: Mapping[str, str], configs: Mapping[str, str | None]) -> list[str]:
    """Return the settings that a server reports with other values or not at all, in words."""
    wrong = []
    for key, value in wanted.items():
        said = configs.get(key)
        if said is None:
            wrong.append(f"{key}: not reported, should be {value}")
        elif _canonical(said) != _canonical(value):
            wrong.append(f"{key}: {said}, should be {value}")
    return wrong


def _canonical(value: str) -> str:
    """Return the short name of an assignor: Kafka reports its own assignors by class name."""
    known = {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
    return ",".join(known.get(word.strip(), word.strip()) for word in value.split(","))


def filled(command: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """Replace ``{settings}`` in a start command by these words."""
    arguments: list[str] = []
    for part in command:
        arguments += words if part == SETTINGS_WORD else [part]
    return tuple(arguments)
