"""The copying programs: a process each, which tells in lines what became of its transactions.

``ready``: InitProducerId was answered. ``holds COUNT``: so many partitions are its consumer's from now on. ``began
COUNT``: a transaction begins; nothing of its so many records is sent yet. ``committed COUNT``: a transaction with so
many records. ``aborted P:O …``: one that was aborted on purpose, with partition and offset of its records. ``retried
ERROR``: one that was aborted after an error that allows it. ``fenced ERROR`` and ``failed ERROR``: the program ends.
``ended``: it ends, because stdin did.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import msgspec

from campaigns.clients.franz_go import franz_go_command
from campaigns.clients.java import java_command
from campaigns.clients.programs import Program

CLIENTS = ("java", "librdkafka", "aiokafka", "franz-go")
TRANSACTION_TIMEOUT_MS = 20_000
SESSION_TIMEOUT_MS = 3_000
LAST_WORDS = ("ended", "fenced", "failed")
CUT_CHARS = 300


class Work(msgspec.Struct, frozen=True, rename="camel"):
    """The work of one program."""

    bootstrap: str
    topic: str
    output: str
    group: str
    transactional_id: str
    owned: tuple[int, ...]
    """Partitions of a client that isn't a member of the group."""
    batch_records: int
    """Records of a transaction at most."""
    pause_ms: float
    """Longest pause before the end of a transaction; drawn for each."""
    abort_share: float
    seed: int
    transaction_timeout: int = TRANSACTION_TIMEOUT_MS
    session_timeout: int = SESSION_TIMEOUT_MS

    def to_json(self) -> str:
        """Return the line that goes to a program's stdin."""
        return json.dumps({"operation": "copy", **msgspec.to_builtins(self)})

    def to_arguments(self) -> list[str]:
        """Return the arguments of the Java program."""
        return [str(value) for name, value in msgspec.structs.asdict(self).items() if name != "owned"]


@attrs.define
class Story:
    """The story that a program has told so far."""

    ready: bool = False
    held: int = 0
    """Partitions that its consumer has."""
    begun: int = 0
    """Transactions that it began."""
    transactions: int = 0
    """Transactions that it committed."""
    records: int = 0
    """Records of these."""
    commit_times: list[float] = attrs.Factory(list)
    """Instants (time.monotonic) when it told of each."""
    aborts: int = 0
    """Transactions that it aborted on purpose."""
    aborted: list[tuple[int, int]] = attrs.Factory(list)
    """Partition and offset of the records of these."""
    retries: list[str] = attrs.Factory(list)
    last_word: str = ""
    """One of :data:`LAST_WORDS`, or empty."""
    error: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, and its end was not told."""
        return self.begun > self.transactions + self.aborts + len(self.retries)

    def copy(self) -> Story:
        """Return what it has told until now; it doesn't change any more."""
        return attrs.evolve(
            self,
            commit_times=list(self.commit_times),
            aborted=list(self.aborted),
            retries=list(self.retries),
        )

    def take(self, line: str) -> bool:
        """Take a line of the program; return whether its word is a known one."""
        word, _, rest = line.strip().partition(" ")
        if word == "ready":
            self.ready = True
        elif word == "holds":
            self.held = int(rest)
        elif word == "began":
            self.begun += 1
        elif word == "committed":
            self.transactions += 1
            self.records += int(rest)
            self.commit_times.append(time.monotonic())
        elif word == "aborted":
            self.aborts += 1
            for place in rest.split():
                partition, _, offset = place.partition(":")
                self.aborted.append((int(partition), int(offset)))
        elif word == "retried":
            self.retries.append(rest[:CUT_CHARS])
        elif word in LAST_WORDS:
            self.last_word, self.error = word, rest[:CUT_CHARS]
        else:
            return False
        return True


class CopierProgram(Program):
    """One process of a client, and its story. Lines of other words go to its log, as what it prints on stderr."""

    def __init__(self, name: str, command: Sequence[str], request: str, log_path: Path) -> None:
        """:param request: the first line of its stdin; none if empty"""
        self.story = Story()
        self._log_path = log_path
        with log_path.open("ab") as errors:
            super().__init__(name, command, request, self._take, errors=errors)

    def _take(self, line: str) -> None:
        if not self.story.take(line):
            with self._log_path.open("a") as log:
                log.write(line)


Start = Callable[[str, Work, Path], CopierProgram]
"""Starts a program for a name, its work and the file of its errors."""


def starter_of(client: str, peer: Path | None) -> Start:
    """Return what starts the program of this client.

    :param peer: the script that runs Kafka's classes, for the Java client
    :raises NoClientError: the client can't be run here
    """
    if client == "java":
        return _java(java_command(peer, "TransactionalCopier.java"))
    if client == "franz-go":
        return _json_program(franz_go_command())
    return _json_program([sys.executable, "-m", MODULES[client]])


MODULES: Mapping[str, str] = {
    "librdkafka": "campaigns.transactions.confluent_copier",
    "aiokafka": "campaigns.transactions.aio_copier",
}


def _java(command: Sequence[str]) -> Start:
    def start(name: str, work: Work, log_path: Path) -> CopierProgram:
        return CopierProgram(name, [*command, *work.to_arguments()], "", log_path)

    return start


def _json_program(command: Sequence[str]) -> Start:
    def start(name: str, work: Work, log_path: Path) -> CopierProgram:
        return CopierProgram(name, command, work.to_json(), log_path)

    return start
