"""One case of ``bad-input``: its surroundings, the expected message, and a check that no message is lost."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from blumfeld.feeds.binance import MadeFeed, Message
from blumfeld.testing.process import BrokerProcess
from campaigns.archive.common import ledger
from campaigns.archive.common.expected import differences, expected_of
from campaigns.archive.common.process import Archive, Outcome
from campaigns.archive.common.tallies import READERS
from campaigns.archive.common.topics import fill, make_topic

ONCE_S = 180.0
MESSAGES = 2_000


@attrs.frozen
class Found:
    """The result of a case."""

    said: str
    wrong: tuple[str, ...]
    seconds: float


@attrs.define
class Scene:
    """The surroundings of a case: a broker and a folder. It gathers the case's result."""

    folder: Path
    broker: BrokerProcess
    reader: str
    patience: float = 1.0
    """Factor for all time bounds, for a busy machine."""
    wrong: list[str] = attrs.field(factory=list)
    said: str = ""
    seconds: float = 0.0

    def filled(self, topic: str, seed: int = 0, count: int = MESSAGES) -> list[Message]:
        """Makes a topic of one partition, fills it with a made feed, and returns the feed."""
        messages = MadeFeed(seed).messages(count)
        make_topic(self.broker.address, topic)
        fill(self.broker.address, topic, messages)
        return messages

    def archive(self, topic: str, name: str = "archive", **settings: object) -> Archive:
        """Returns an archive of a topic, with the decoder of the made feed."""
        given = {"decoders": ["binance-usdm"], "reader": self.reader, **settings}
        return Archive(self.folder / name, self.broker.address, [topic], **given)

    def once(self, archive: Archive, **settings: object) -> Outcome:
        """Runs ``archive once`` to its end."""
        return archive.run("once", timeout_s=ONCE_S * self.patience, **settings)

    def must(self, outcome: Outcome, status: int, words: str, within_s: float) -> None:
        """Checks the exit status, that the message is one line and matches the regular expression, and the time."""
        self.said = next(
            (line for line in reversed(outcome.err.splitlines()) if line.startswith("blumfeld archive:")), ""
        )
        self.seconds = outcome.seconds
        if outcome.status != status:
            self.wrong.append(f"exit status {outcome.status}, must be {status}: {outcome.said}")
        if not re.search(words, self.said, re.IGNORECASE):
            self.wrong.append(f"must say /{words}/: {self.said or outcome.said}")
        if "Traceback" in outcome.err:
            self.wrong.append("it printed a traceback")
        if outcome.seconds > within_s * self.patience:
            self.wrong.append(
                f"it took {outcome.seconds:.0f} s, must be within {within_s * self.patience:.0f}"
            )

    def must_have(self, archive: Archive, topic: str, messages: list[Message]) -> None:
        """Checks that the files hold these messages exactly once, and that the ledger covers them."""
        self.wrong += differences(expected_of(messages), READERS["duckdb"](archive.root), "lost or doubled")[
            :3
        ]
        self.wrong += ledger.incomplete(archive.root, topic, {0: len(messages)})

    def then_all(self, archive: Archive, topic: str, messages: list[Message]) -> None:
        """Checks that the next run archives everything."""
        after = self.once(archive)
        if after.status != 0:
            self.wrong.append(f"going on afterwards: exit status {after.status}: {after.said}")
            return
        self.must_have(archive, topic, messages)


Act = Callable[[Scene], None]


@attrs.frozen
class Case:
    """A case: its title and its steps."""

    title: str
    act: Act


def run_case(case: Case, scene: Scene) -> Found:
    """Runs a case. An exception makes it fail."""
    began = time.monotonic()
    scene.folder.mkdir(parents=True)
    try:
        case.act(scene)
    except Exception as error:
        scene.wrong.append(f"{type(error).__name__}: {error}"[:400])
    return Found(scene.said, tuple(scene.wrong), scene.seconds or time.monotonic() - began)


@contextmanager
def stopped(process_id: int) -> Iterator[None]:
    """Stops a process by SIGSTOP for the time of the context."""
    import os

    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)
