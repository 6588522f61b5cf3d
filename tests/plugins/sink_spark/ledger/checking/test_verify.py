"""``verify``: it finds nothing in a whole archive, and names every kind of damage."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from blumfeld_sink_spark.commands.upkeep.verify import NOT_SHOWN
from blumfeld_sink_spark.ledger.checking import deep, statistics
from blumfeld_sink_spark.ledger.checking.verify import against_broker, verify
from blumfeld_sink_spark.ledger.ledger import CHECKPOINT, Ledger, record_path
from blumfeld_sink_spark.range_counts import HIDDEN
from blumfeld_sink_spark.records import CommitRecord, DecoderCount, FileEntry, Span
from blumfeld_sink_spark.stores.roots import open_store
from tests.plugins.sink_spark.archive_tools import archive, captured, write_capture
from tests.plugins.sink_spark.command import refused, run
from tests.plugins.sink_spark.ledger.ledger_tools import Crash, FailingStore, Work, opened
from tests.plugins.sink_spark.results import changed

pytestmark = pytest.mark.archive

TOPIC = "usdm"
COMMITS = 5
DAY_NS = 86_400_000_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small archive that real decoders made: five commits, across midnight. Tests share it and must not change it."""
    folder = tmp_path_factory.mktemp("verify")
    rows = captured([write_capture(folder / "capture")], TOPIC)
    records = archive(folder / "archive", rows, batch_rows=35, query="q", decoders=("binance-usdm",))
    assert len(records) == COMMITS
    return folder / "archive"


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the archive that a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "archive"))


def trades(root: Path) -> list[Path]:
    return sorted(root.glob("trades/**/*.parquet"))


@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["quick", "deep"])
def test_a_whole_archive_is_whole(made: Path, deep: tuple[str, ...]) -> None:
    done = run("verify", made, *deep)
    assert done.exit_code == 0, done.output
    assert f"{TOPIC}-0: 0..160" in done.output
    assert f"whole: {COMMITS} commits" in done.output
    assert (
        "161 offsets counted: 161 messages, of which 161 have rows (0 rejections in quarantine)"
        in done.output
    )
    document = msgspec.json.decode(run("verify", made, "--json", *deep).output)
    assert document["whole"]
    assert document["partitions"] == [{"topic": TOPIC, "partition": 0, "first": 0, "last": 160}]


def test_a_lost_ledger_is_told_as_such(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    shutil.copytree(made, root)
    shutil.rmtree(root / "_commits")
    for more in ([], ["--against", "127.0.0.1:1"], ["--bootstrap", "127.0.0.1:1"]):
        done = run("verify", root, *more)
        assert done.exit_code == 1, done.output
        assert "named by no record" in done.output
        assert "not whole: 0 commits" in done.output


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def edit(root: Path, batch: int, change: Callable[[CommitRecord], CommitRecord]) -> None:
    decoder = msgspec.json.Decoder(CommitRecord)
    damage(root / record_path("q", batch), lambda data: msgspec.json.encode(change(decoder.decode(data))))


def edit_entry(root: Path, path: str, batches: int = COMMITS, **fields: Any) -> None:
    """Changes what the ledger says of the file at ``path``."""

    def changed_record(record: CommitRecord) -> CommitRecord:
        files = [replace(entry, **fields) if entry.path == path else entry for entry in record.files]
        return replace(record, files=tuple(files))

    for batch in range(batches):
        edit(root, batch, changed_record)


def first_of(root: Path, table: str) -> tuple[Path, str]:
    """Returns a file of a table, and its path in the ledger."""
    file = min(root.glob(f"{table}/**/*.parquet"))
    return file, str(file.relative_to(root))


def shorten_a_range(root: Path) -> None:
    def shorter(record: CommitRecord) -> CommitRecord:
        (taken,) = record.ranges
        return replace(record, ranges=(replace(taken, start=taken.start + 1),))

    edit(root, 2, shorter)


def name_a_file_twice(root: Path) -> None:
    first = msgspec.json.decode((root / record_path("q", 0)).read_bytes(), type=CommitRecord)
    edit(root, 1, lambda record: replace(record, files=(*record.files, first.files[0])))


def spoil_the_checkpoint(root: Path) -> None:
    """A start believes the checkpoint and reads only the records after it."""
    Ledger(open_store(str(root))).load().checkpoint("q")
    assert run("verify", root).exit_code == 0
    path = root / "_commits" / "q" / CHECKPOINT
    point = msgspec.json.decode(path.read_bytes())
    point["covered"][0]["end"] -= 1
    path.write_bytes(msgspec.json.encode(point))


MORE = "usdm+00000+more.parquet"
Harm = tuple[Callable[[Path], object], str]
"""A damage, and the regular expression of the problem that names it."""
QUICK: dict[str, Harm] = {
    "a checkpoint that lies": (spoil_the_checkpoint, r"q/checkpoint\.json: doesn't sum up the records to batch 4"),
    "a lost file": (lambda root: trades(root)[0].unlink(), r"trades/.*: is missing \(\d+ rows\)"),
    "a cut file": (
        lambda root: damage(trades(root)[0], lambda data: data[:-1]),
        r"trades/.*: has [\d,]+ bytes, its record says [\d,]+",
    ),
    "a file that no record names": (
        lambda root: shutil.copy(trades(root)[0], trades(root)[0].with_name(MORE)),
        r"more\.parquet: is named by no record; .*If a commit record was lost, bring it back; else run vacuum",
    ),
    "a lost record": (
        lambda root: (root / record_path("q", 2)).unlink(), "batch 3 of query q can't follow batch 1"
    ),
    "a torn record": (
        lambda root: damage(root / record_path("q", 2), lambda data: b'{"version":1,'),
        r"_commits/q/0000000002\.json: isn't a commit record",
    ),
    "a renamed record": (
        lambda root: (root / record_path("q", 4)).rename(root / record_path("q", 5)),
        r"0000000005\.json: says that it is batch 4 of q",
    ),
    "a shorter range": (shorten_a_range, r"leaves usdm-0 70\.\.71 out, and doesn't name it as lost"),
    "a file that two records name": (name_a_file_twice, r"\.parquet: is named by two records"),
    "a removed file that never was": (
        lambda root: edit(root, 1, lambda record: replace(record, removed=("trades/x.parquet",))),
        r"trades/x\.parquet: is taken away by batch 1 of q, and no record names it",
    ),
    "another symbol in the record": (  # readers choose files by it
        lambda root: edit_entry(root, first_of(root, "trades")[1], symbol="ETHUSDT"),
        r"trades/.*: its record says symbol ETHUSDT, its path says BTCUSDT",
    ),
    "another partition in the record": (
        lambda root: edit_entry(root, first_of(root, "trades")[1], partition=7),
        r"trades/.*: its record says partition 7, its path says 0",
    ),
}  # fmt: skip


def rewrite(
    root: Path, change: Callable[[pa.Table], pa.Table], file: Path | None = None, *, honest: bool = False
) -> None:
    """Changes the rows of a file, and its size and hash in the record with them: only the rows show the damage.

    :param honest: the record gets the file's new number of rows, too
    """
    file = file or trades(root)[0]
    pq.write_table(change(pq.read_table(file, partitioning=None)), file)
    fields = {"rows": pq.read_metadata(file).num_rows} if honest else {}
    commit_as_it_is(root, file, **fields)


def commit_as_it_is(root: Path, file: Path, **fields: Any) -> None:
    """Gives the record the size and hash that the file has now."""
    data = file.read_bytes()
    fields |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    edit_entry(root, str(file.relative_to(root)), **fields)


def all_in(column: str, value: object) -> Callable[[Path], None]:
    """Returns a damage that puts this value into every row of a file."""
    return lambda root: rewrite(root, lambda rows: changed(rows, **{column: [value] * rows.num_rows}))


def same_rows_twice(root: Path) -> None:
    """A compaction names its new file and forgets to remove the old ones."""
    first = trades(root)[0]
    merged = first.with_name("usdm+all+00000000000000000000-00000000000000000161.c1.parquet")
    shutil.copy(first, merged)
    digest = hashlib.sha256(merged.read_bytes()).hexdigest()

    def named(record: CommitRecord) -> CommitRecord:
        (entry,) = [entry for entry in record.files if entry.path == str(first.relative_to(root))]
        more = replace(entry, path=str(merged.relative_to(root)), partition=-1, sha256=digest)
        return replace(record, files=(*record.files, more))

    edit(root, 0, named)


def drop_messages(root: Path) -> None:
    """A writer drops the rows of messages 4 to 23 from every file. Its record describes the files as they are."""

    def kept(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.or_(pc.less(rows["k_offset"], 4), pc.greater(rows["k_offset"], 23)))

    for file in sorted(root.glob("*/**/*+00000000000000000000-*.parquet")):
        rewrite(root, kept, file, honest=True)


def swap_a_row(root: Path) -> None:
    """A row moves to another offset, so that the number of rows stays the same."""

    def moved(rows: pa.Table) -> pa.Table:
        offsets = rows["k_offset"].to_pylist()
        return changed(rows, k_offset=[*offsets[:-1], offsets[-1] - 1])

    rewrite(root, moved)


def widen_the_times(root: Path) -> None:
    """The times of a trade file lie a day later in the ledger: ``export --to`` leaves its rows out."""
    file, path = first_of(root, "trades")
    times = pq.read_table(file, partitioning=None)["ts_event"].to_pylist()
    edit_entry(root, path, ts_min=min(times) + DAY_NS, ts_max=max(times) + DAY_NS)


def move_rows_to_another_date(root: Path) -> None:
    """Readers choose folders by date."""
    file, path = first_of(root, "trades")
    times = pc.add(pq.read_table(file, partitioning=None)["ts_event"], DAY_NS).combine_chunks()
    rewrite(root, lambda rows: changed(rows, ts_event=times), file)
    edit_entry(root, path, ts_min=pc.min(times).as_py(), ts_max=pc.max(times).as_py())


def lie_in_the_footer(root: Path) -> None:
    """The least offset of a row group is wrong in the file's own footer: ``book --at`` begins at another row group."""
    file, _ = first_of(root, "book_deltas")
    least = pc.min(pq.read_table(file, partitioning=None)["k_offset"]).as_py()
    data = file.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    was, now = (number.to_bytes(8, "little") for number in (least, least + 1))
    assert was in data[footer:]
    file.write_bytes(data[:footer] + data[footer:].replace(was, now))
    commit_as_it_is(root, file)


DEEP: dict[str, Harm] = {
    "other times in the record": (
        widen_the_times, r"trades/.*.* record says ts_event from (\d+) to (\d+), its rows have (?!\1)\d+ to (?!\2)\d+"
    ),
    "rows of another date": (move_rows_to_another_date, r"trades/.*: has rows of [\d-]+ and lies under [\d-]+"),
    "rows of another symbol": (
        all_in("symbol", "ETHUSDT"), r"trades/.*: has rows of the symbol ETHUSDT and lies under BTCUSDT"
    ),
    "a footer that lies": (
        lie_in_the_footer, r"book_deltas/.* group 0 says k_offset from (\d+) to \d+, its rows have (?!\1)\d+ to \d+"
    ),
    "dropped messages": (
        drop_messages, r"usdm-0 0\.\.35: 35 of its messages had rows .*, 15 have rows now; no row of offsets 4\.\.24"
    ),
    "a row at another offset": (
        swap_a_row, r"35 of its messages had rows when it was committed, 34 have rows now; no row of offsets 32"
    ),
    "a flipped bit": (
        lambda root: damage(trades(root)[0], lambda data: data[:10] + bytes([data[10] ^ 1]) + data[11:]),
        r"trades/.*: has other bytes than when it was committed",
    ),
    "a lost row": (
        lambda root: rewrite(root, lambda rows: rows.slice(1)), r"trades/.*: has \d+ rows, its record says \d+"
    ),
    "a stray offset": (all_in("k_offset", 159), r"has rows of usdm-0 offset 159, which isn't in its range"),
    "a stray partition": (all_in("k_partition", 3), r"has rows of partition 3"),
    "a spoilt file": (
        lambda root: damage(trades(root)[0], lambda data: b"x" * len(data)), r"trades/.*: can't be read"
    ),
    "the same rows twice": (
        same_rows_twice, r"rows of usdm-0 offset \d+ and \d+ more messages are in trades/.* too"
    ),
}  # fmt: skip
COUNTED = ("dropped messages", "the same rows twice")
"""Damage that changes the numbers of rows in a record. Its counts show it without a look into the files."""


@pytest.mark.parametrize("harm", QUICK)
def test_damage_to_the_ledger_or_a_file_is_named(root: Path, harm: str) -> None:
    act, wanted = QUICK[harm]
    act(root)
    status, error = refused("verify", root)
    assert status == 1
    assert re.search(wanted, error), error


@pytest.mark.parametrize("harm", DEEP)
def test_damage_inside_a_file_is_named_by_deep_alone(root: Path, harm: str) -> None:
    act, wanted = DEEP[harm]
    act(root)
    assert run("verify", root).exit_code == int(harm in COUNTED)
    status, error = refused("verify", root, "--deep")
    assert status == 1
    assert re.search(wanted, error), error


def test_arrows_threads_hold_no_memory_of_the_interpreter(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that drops such memory while the process ends aborts it: every twentieth ``verify --deep`` ended with 134.
    While Arrow holds it, a bytearray can't grow.
    """
    store = open_store(str(root))
    ledger = Ledger(store)
    ledger.load()
    files = [entry for record in ledger.records("q") for entry in record.files]
    read: list[bytearray] = []

    def as_bytearray(_: object, path: str) -> bytearray:
        read.append(bytearray((root / path).read_bytes()))
        return read[-1]

    def grown(entry: FileEntry, file: pq.ParquetFile) -> Iterator[str]:
        read[-1].append(0)
        return iter(())

    monkeypatch.setattr(type(store), "read", as_bytearray)
    monkeypatch.setattr(statistics, "problems", grown)
    list(deep.problems(store, files, {}))
    assert len(read) == len(files)


def test_the_times_of_a_file_of_gaps_are_compared(tmp_path: Path) -> None:
    """Its rows have no range of offsets, and ``archive gaps --from`` chooses by its times all the same."""
    lines = write_capture(tmp_path / "capture", 5).read_text().splitlines(keepends=True)
    (tmp_path / "capture").write_text("".join(line for line in lines if '"t":3,' not in line))
    root = tmp_path / "archive"
    archive(root, captured([tmp_path / "capture"], TOPIC), query="q", decoders=("binance-usdm",))
    assert run("verify", root, "--deep").exit_code == 0
    file, path = first_of(root, "gaps")
    [time] = pq.read_table(file, partitioning=None)["ts_event"].to_pylist()
    edit_entry(root, path, batches=1, ts_max=time - 1)
    done = run("verify", root, "--deep")
    assert done.exit_code == 1
    assert (
        f"{path}: its record says ts_event from {time} to {time - 1}, its rows have {time} to {time}"
        in done.stderr
    )


def test_files_of_a_batch_that_is_being_published_are_nobodys_fault(tmp_path: Path) -> None:
    store = opened(tmp_path)
    Work().publish(store)
    counting = FailingStore(store, -1, Crash, after=False)
    work = Work().next()
    steps = 6 + 2 + 1 + 4  # tasks' files, gaps, intent, some of the moves
    with pytest.raises(Crash):
        work.publish(FailingStore(counting, steps, Crash, after=False))
    assert verify(store).problems == []


def test_other_files_under_the_root_are_not_the_ledgers(root: Path) -> None:
    for path in (
        "bars/date=2024-08-08/x.parquet",
        "trades/_delta_log/0.json",
        "notes.txt",
        "_progress/a.jsonl",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"1")
    assert run("verify", root).exit_code == 0


def test_the_broker_s_offsets_are_compared() -> None:
    covered = {("t", 0): (5, 9), ("t", 1): (0, 9), ("t", 2): (0, 9), ("t", 3): (0, 9)}
    earliest = {("t", 0): 0, ("t", 1): 0, ("t", 2): 12, ("t", 4): 3, ("t", 5): 7}
    latest = {("t", 0): 12, ("t", 1): 5, ("t", 2): 20, ("t", 4): 8, ("t", 5): 7}
    assert list(against_broker(covered, earliest, latest)) == [
        (False, "t-0: 2 offsets behind the broker's end 12"),
        (True, "t-1: is archived up to 9, and ends at 5 on the broker. Was the topic made anew? Then archive it under "
         "another root"),
        (True, "t-2: 10..12 isn't archived, and the broker has it no more"),
        (True, "t-3: is archived, and the broker has no such partition"),
        (True, "t-4: nothing is archived; the broker has 3..8"),
        (False, "t-5: nothing is archived; the broker has 7..7"),
    ]  # fmt: skip


def test_a_range_of_which_messages_were_dropped_is_not_whole(root: Path) -> None:

    def dropped(record: CommitRecord) -> CommitRecord:
        [count] = record.counts
        fewer = replace(count, messages=5, with_rows=5)
        return replace(record, counts=(fewer,), messages=5)

    edit(root, 0, dropped)
    done = run("verify", root)
    assert done.exit_code == 1
    assert "usdm-0 0..35: 35 offsets, but 5 messages and 0 skipped: 30 not accounted for" in done.stderr


def test_an_archive_of_an_older_version_is_not_counted_and_not_called_whole(root: Path) -> None:
    for batch in range(2):
        edit(root, batch, lambda record: replace(record, counts=(), messages=15))
    done = run("verify", root, "--deep")
    assert done.exit_code == NOT_SHOWN
    assert (
        "query q: 2 batches (the first is 0) are not counted: an older version wrote them. They have 70 offsets and 30 "
        "messages; nothing says what the other 40 offsets were"
    ) in done.stdout
    assert f"not counted: {COMMITS} commits" in done.stdout
    document = msgspec.json.decode(run("verify", root, "--json").output)
    assert (document["whole"], document["verdict"], len(document["not_counted"])) == (False, "not counted", 1)


def test_hidden_offsets_are_not_explained(root: Path) -> None:
    """Offsets that Spark's connector passes in silence may be markers, or messages that got lost."""

    def hidden(record: CommitRecord) -> CommitRecord:
        [count] = record.counts
        fields = {"messages": 33, "with_rows": 33, "skipped": {HIDDEN: 2}, "spans": (Span(40, 42, HIDDEN),)}
        decoders = {name: DecoderCount(read=33, quarantined=0) for name in count.decoders}
        fewer = replace(count, **fields, decoders=decoders)
        return replace(record, counts=(fewer,), messages=33, reader="jvm")

    edit(root, 1, hidden)
    done = run("verify", root)
    assert done.exit_code == NOT_SHOWN, done.output
    assert (
        "batch 1 of query q: usdm-0 35..70: 2 offsets gave no message, and the reader (jvm) shows no reason: 40..42"
        in done.stdout
    )
    assert f"not explained: {COMMITS} commits" in done.stdout
