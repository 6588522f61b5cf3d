"""The interface of a client of the matrix. A client module says how it is done with that client, and nothing more."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, NoReturn

from campaigns.clients.access import access
from campaigns.clients.live_members import MemberSpec, Protocol
from campaigns.clients.records import AS_USUAL, Received, Sample, Sending, Traits, Turn, numbered_samples
from campaigns.clients.verdicts import CheckFailed as CheckFailed
from campaigns.clients.verdicts import NotOffered as NotOffered

WAIT_S = 40.0
"""Time that a client may wait for records or answers before it gives up."""
SESSION_TIMEOUT_MS = 10_000
NO_REBALANCE_DELAY = 'config."group.initial.rebalance.delay.ms"=0'
"""The one setting of the brokers that is not the default: three seconds for each new group would be most of a run."""
BROKERS_DEFAULT = -1
"""As number of replicas: ``default.replication.factor`` of the brokers (KIP-464)."""

Consumed = list[Received]
FENCED = re.compile(r"fenc|producer.?epoch|newer (instance|producer)", re.IGNORECASE)
"""In the words of a client whose transactional id has another producer now."""


@dataclass(frozen=True)
class ClusterView:
    """Brokers as (id, host, port), and the number of partitions of each topic, as the client sees them."""

    brokers: list[tuple[int, str, int]]
    topics: dict[str, int]


class Client:
    """One client library or program. Every method may raise anything: the cell then shows it as failed.

    Records are sent in the order given and are acknowledged when ``produce`` returns (except with acks 0).
    ``consume`` belongs to a consumer group: it begins where the group has committed or else at the beginning, commits
    what it returns and leaves the group.
    """

    name: ClassVar[str]
    package: ClassVar[str] = ""
    """Python package of a client in Python, which is in the extra ``test``, and the command that installs it."""
    install: ClassVar[str] = ""
    traits: ClassVar[Traits] = Traits()
    why_not: ClassVar[Mapping[str, str]] = {}
    """Columns that the client does not offer, and the reason."""
    protocols: ClassVar[tuple[Protocol, ...]] = ("classic",)
    """The group protocols that it speaks."""
    assignors: ClassVar[tuple[str, ...]] = ("range", "roundrobin")
    """Names that it takes for an assignor, of either protocol; ``cooperative-sticky`` among them is incremental."""
    static_protocols: ClassVar[tuple[Protocol, ...]] = ("classic", "consumer")
    """In which protocols it can be a static member."""
    regex_protocols: ClassVar[tuple[Protocol, ...]] = ("classic", "consumer")
    """In which protocols it can subscribe to a regular expression; with ``consumer`` the broker resolves it."""
    reports_refusals: ClassVar[bool] = False
    """Whether it ends with the error by which a node refused its login. Others try again until they are ended."""

    def __init__(self, bootstrap: str, protocol: Protocol = "classic") -> None:
        """``protocol`` is what its consumers speak.

        :raises NotOffered: they don't
        """
        self.access = access()
        self.bootstrap = self.access.bootstrap or bootstrap
        self.protocol = protocol
        self.isolation = "read_uncommitted"
        """Isolation level of :meth:`consume`."""
        if protocol not in self.protocols:
            raise NotOffered(f"{self.name} has no KIP-848")

    @classmethod
    def absent(cls) -> str | None:
        """Return the reason why the client can't run on this machine, and what to install; None if it can."""
        return None if find_spec(cls.package) else cls.install

    @classmethod
    def version(cls) -> str:
        """The client's own version."""
        return str(import_module(cls.package).__version__)

    def cluster(self) -> ClusterView:
        """Return the brokers and topics of Metadata."""
        self.no("metadata")

    def produce(self, topic: str, samples: Sequence[Sample], how: Sending = AS_USUAL) -> None:
        """Send records."""
        raise NotImplementedError

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """The next ``count`` records of the group, in the order in which they came."""
        raise NotImplementedError

    def member_command(self, spec: MemberSpec) -> tuple[Sequence[str], str]:
        """Return the command that starts a :class:`~.live_members.Member`, and its stdin.

        :raises NotOffered: the client has no such member
        """
        self.no("members")

    def offers(self, spec: MemberSpec) -> None:
        """Whether the client has such a member.

        :raises NotOffered: it doesn't
        """
        if spec.protocol not in self.protocols:
            raise NotOffered(f"{self.name} has no KIP-848")
        if spec.assignor and spec.assignor not in self.assignors:
            raise NotOffered(f"{self.name} has no assignor {spec.assignor}")
        if spec.instance_id and spec.protocol not in self.static_protocols:
            raise NotOffered(self.why_not.get("static", f"{self.name} has no static members"))
        if spec.regex and spec.protocol not in self.regex_protocols:
            raise NotOffered(self.why_not.get("regex", f"{self.name} has no regular expressions"))

    def transact(self, topic: str, transactional_id: str, turns: Sequence[Turn]) -> None:
        """One transactional producer: its transactions one after the other."""
        self.no("transactions")

    def fence(self, topic: str, transactional_id: str, sample: Sample) -> str:
        """Two producers with one transactional id: the second one begins when the first one has sent a record in a
        transaction. Return the error of the first one's commit, or an empty string if it was taken.
        """
        self.no("transactions")

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By partition: the earliest offset, the latest, and the first at or after a time."""
        self.no("offsets")

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """With ``BROKERS_DEFAULT`` replicas."""
        self.no("topics")

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        self.no("topics")

    def delete_topic(self, topic: str) -> None:
        """Delete it."""
        self.no("topics")

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """The topic's configuration; entries at their default may be left out."""
        self.no("configs")

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """Alter one key."""
        self.no("configs")

    def group_ids(self) -> list[str]:
        """Groups that the cluster lists."""
        self.no("groups")

    def group_state(self, group: str) -> str:
        """Return the state of the group as DescribeGroups names it, such as ``Stable`` or ``Empty``."""
        self.no("groups")

    def delete_group(self, group: str) -> None:
        """Delete an empty group."""
        self.no("groups")

    def load(self, topic: str, group: str, count: int, size_bytes: int) -> int:
        """Produce many records, consume them with a group; how many came."""
        samples = numbered_samples(count, 3 if self.traits.chooses_partition else 1, size_bytes)
        self.produce(topic, samples)
        got = self.consume(topic, group, count)
        return len({(r.partition, r.offset) for r in got})

    def no(self, column: str) -> NoReturn:
        """Say that there is no way.

        :raises NotOffered: always
        """
        raise NotOffered(self.why_not.get(column, f"{self.name} has no call for it"))


def run_program(command: Sequence[str], stdin: bytes | None = None, timeout_s: float = WAIT_S) -> bytes:
    """Run a program; return its stdout.

    :raises CheckFailed: it ended with another status than 0, or not in time
    """
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise CheckFailed(f"not done after {timeout_s:.0f} s: {_tail(error.stderr)}") from None
    if done.returncode != 0:
        raise CheckFailed(f"exit status {done.returncode}: {_tail(done.stderr) or _tail(done.stdout)}")
    return done.stdout


def _tail(printed: bytes | None) -> str:
    """Return the last lines, without the frames of Java's exceptions."""
    lines = [
        line
        for line in (printed or b"").decode(errors="replace").strip().splitlines()
        if not line.lstrip().startswith(("at ", "... "))
    ]
    return " / ".join(lines[-3:])[-300:]


def cache_folder(name: str) -> Path:
    """Return the folder where a client may install programs: outside of the checkout, below the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root, "blumfeld-clients", name)
