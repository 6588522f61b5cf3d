"""Names of files: each parses back to its parts, and no other name parses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld_sink_spark.files import naming


def test_a_data_file_has_the_agreed_name() -> None:
    assert naming.path_of("trades", "2024-08-09", "BTCUSDT", "ticks", 3, 17, 42) == (
        "trades/date=2024-08-09/BTCUSDT/ticks+00003+00000000000000000017-00000000000000000042.parquet"
    )


def test_tables_without_symbols_have_no_folder_for_them() -> None:
    assert naming.path_of("raw", "2024-08-09", None, "ticks", 0, 0, 1) == (
        "raw/date=2024-08-09/ticks+00000+00000000000000000000-00000000000000000001.parquet"
    )


def test_a_compacted_file_says_so() -> None:
    path = naming.path_of("trades", "2024-08-09", "X", "ticks", -1, 0, 9, generation=2)
    assert path.endswith("/ticks+all+00000000000000000000-00000000000000000009.c2.parquet")


def test_gaps_are_named_by_query_and_batch() -> None:
    assert naming.gaps_path("2024-08-09", "A/B", "archive", 7) == (
        "gaps/date=2024-08-09/A%2FB/archive+0000000007.parquet"
    )


@pytest.mark.parametrize(
    ("symbol", "part"),
    [
        ("BTC-USD", "BTC-USD"),
        ("XBT/USD", "XBT%2FUSD"),
        ("a=b c", "a%3Db%20c"),
        ("~", "%7E"),
        ("币", "%E5%B8%81"),
        ("%41", "%2541"),
        ("", "~"),
        ("_a", "%5Fa"),
        (".b_", "%2Eb_"),
    ],
)
def test_a_symbol_is_encoded_where_it_must_be(symbol: str, part: str) -> None:
    assert naming.encode_symbol(symbol) == part
    assert naming.decode_symbol(part) == symbol


@given(
    st.text(min_size=1),
    st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True),
    st.integers(-1, 99_999),
    st.integers(0, 2**63 - 1),
    st.integers(0, 3),
)
def test_a_path_says_what_it_was_made_of(
    symbol: str, topic: str, partition: int, start: int, generation: int
) -> None:
    path = naming.path_of("trades", "2024-08-09", symbol, topic, partition, start, start + 1, generation)
    assert path.count("/") == 3
    assert naming.parse(path) == naming.FileName(
        "trades", "2024-08-09", symbol, topic, partition, start, start + 1, generation
    )


@pytest.mark.parametrize(
    "path",
    ["gaps/date=2024-08-09/X/archive+0000000007.parquet", "_staging/ab.inprogress", "x.parquet", ""],
)
def test_other_paths_are_no_data_files(path: str) -> None:
    assert naming.parse(path) is None


def test_the_names_of_a_partition_sort_as_its_offsets() -> None:
    starts = [0, 9, 10, 99, 10**12]
    paths = [naming.path_of("t", "d", None, "x", 0, start, start + 1) for start in starts]
    assert paths == sorted(paths)
