"""A decoder as a stranger would bring it: installed, named in the archive's settings, used in Spark's workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from blumfeld_bench.drivers.wire_client import WireClient
from tests.examples.stranger import EXAMPLES, Stranger, stranger_of

pytestmark = pytest.mark.archive

EXAMPLE = EXAMPLES / "acme_decoder_ticks"
LINES = [
    b"1723161256000000001|17|EURUSD|B|1.08505|1000000",
    b"1723161256000000002|18|EURUSD|S|1.08504|0.5",
    b"no line",
    b"1723161256000000003|21|EURUSD|S|1.08503|7",
]
SETTINGS = """
[archive]
topics = ["ticks"]
decoders = ["ticks=acme-ticks"]
decoder_plugins = ["decoder_ticks"]
skew_ms = 0
"""
TRY = f"""
import json
from blumfeld_sink_spark.testing.decoder_messages import batch
from blumfeld_sink_spark import apply, settings
archive = settings.load("archive.toml", {{}})
made = apply.decode_rows(apply.decoders_for("ticks", archive), batch({LINES!r}), archive)
rows = {{name: table.num_rows for name, table in made.tables.items()}}
print(json.dumps([rows, made.decoders, made.sequences.column("last_id").to_pylist()]))
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    """With settings that name the plug-in."""
    stranger = stranger_of(EXAMPLE, "", tmp_path)
    (tmp_path / "site" / "try_it.py").write_text(TRY)
    (tmp_path / "archive.toml").write_text(SETTINGS)
    return stranger


def test_settings_find_it_by_its_plug_in(stranger: Stranger) -> None:
    """And what it reads fits the archive's tables."""
    rows, decoders, ids = json.loads(stranger.run("try_it"))
    assert rows == {"trades": 3, "quarantine": 1}
    assert decoders == {"acme-ticks": 1}
    assert ids == [17, 18, 21]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            '["decoder_ticks"]',
            '["decoder_clocks"]',
            r'decoder_plugins\[0\]: found "decoder_clocks", which isn.t installed; allowed: decoder_ticks',
        ),
        (
            '["decoder_ticks"]',
            '["storage_memory"]',
            r'archive\.decoder_plugins\[0\]: found "storage_memory", which fills storage; allowed: .*decoder_ticks',
        ),
        ("acme-ticks", "acme-clocks", "no decoder is called 'acme-clocks'; allowed: acme-ticks, binance"),
    ],
)
def test_one_that_there_is_not_is_refused(stranger: Stranger, old: str, new: str, complaint: str) -> None:
    """With its place in the settings, and with those that there are."""
    (stranger.folder / "archive.toml").write_text(SETTINGS.replace(old, new))
    with pytest.raises(AssertionError, match=complaint):
        stranger.run("try_it")


@pytest.mark.slow
def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    stranger.kit(EXAMPLE)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_archive_has_what_it_read(stranger: Stranger) -> None:
    """From a broker through Spark into files: its trades, what it rejected, and the numbers that are missing."""
    with stranger.broker() as address:
        with WireClient("127.0.0.1", int(address.partition(":")[2])) as client:
            client.create_topic("ticks", 1)
            client.wait_for_leaders("ticks")
        producer = Producer({"bootstrap.servers": address})
        for line in LINES:
            producer.produce("ticks", line)
        assert producer.flush(20) == 0
        stranger.run(
            *("blumfeld.cli.main", "archive", "once", "--config", "archive.toml", "--root", "archive"),
            *("--bootstrap", address, "--reader", "python", "--master", "local[1]"),
            *("--set", "spark.driver.memory=1g"),
            timeout_s=240,
        )
    import pyarrow.dataset as ds

    def column(table: str, name: str) -> list[int]:
        files = sorted((stranger.folder / "archive" / table).rglob("*.parquet"))
        values: list[int] = ds.dataset([str(file) for file in files]).to_table().column(name).to_pylist()
        return values

    assert column("trades", "trade_id") == [17, 18, 21]
    assert column("quarantine", "k_offset") == [2]
    # The other rows of `gaps` say where messages could not be read.
    assert [missing for missing in column("gaps", "missing") if missing is not None] == [2]
