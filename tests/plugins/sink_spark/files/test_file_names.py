"""Names of files: each parses back to its parts, and no other name parses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld_sink_spark.files import file_names

DAY = "2024-08-09"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (
            file_names.path_of("trades", DAY, "Y", "ticks", 3, 7, 42),
            f"trades/date={DAY}/Y/ticks+00003+{7:020}-{42:020}",
        ),
        (
            file_names.path_of("raw", DAY, None, "ticks", 0, 0, 1),
            f"raw/date={DAY}/ticks+00000+{0:020}-{1:020}",
        ),
        (
            file_names.path_of("trades", DAY, "X", "ticks", -1, 0, 9, 2),
            f"trades/date={DAY}/X/ticks+all+{0:020}-{9:020}.c2",
        ),
        (file_names.gaps_path(DAY, "A/B", "archive", 7), f"gaps/date={DAY}/A%2FB/archive+0000000007"),
    ],
    ids=["a file", "of a table without symbols", "of a compaction", "of gaps, by query and batch"],
)
def test_a_file_has_the_agreed_name(path: str, wanted: str) -> None:
    assert path == f"{wanted}.parquet"


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
    assert file_names.encode_symbol(symbol) == part
    assert file_names.decode_symbol(part) == symbol


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
    path = file_names.path_of("trades", "2024-08-09", symbol, topic, partition, start, start + 1, generation)
    assert path.count("/") == 3
    assert file_names.parse(path) == file_names.FileName(
        "trades", "2024-08-09", symbol, topic, partition, start, start + 1, generation
    )


@pytest.mark.parametrize(
    "path",
    ["gaps/date=2024-08-09/X/archive+0000000007.parquet", "_staging/ab.inprogress", "x.parquet", ""],
)
def test_other_paths_are_no_data_files(path: str) -> None:
    assert file_names.parse(path) is None


def test_the_names_of_a_partition_sort_as_its_offsets() -> None:
    starts = [0, 9, 10, 99, 10**12]
    paths = [file_names.path_of("t", "d", None, "x", 0, start, start + 1) for start in starts]
    assert paths == sorted(paths)
