"""Parquet files that a command opens."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.files.parquet import opened

pytestmark = pytest.mark.archive

ROWS = pa.table({f"column{at}": range(1000) for at in range(8)})


class Remembering(io.BytesIO):
    """A file that remembers the threads that read it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.readers: set[int] = set()

    def read(self, size: int | None = -1) -> bytes:
        self.readers.add(threading.get_ident())
        return super().read(size)


def encoded() -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, row_group_size=300)
    return sink.getvalue()


@pytest.mark.parametrize(
    "read",
    [
        lambda file: file.read(),
        lambda file: pa.concat_tables(file.read_row_group(at) for at in range(file.num_row_groups)),
        lambda file: pa.Table.from_batches(file.iter_batches(300)),
    ],
    ids=["whole", "row groups", "batches"],
)
def test_a_file_in_python_is_read_by_the_calling_thread_alone(read: Callable[[Any], pa.Table]) -> None:
    """An Arrow thread that drops such a file while the process ends aborts it: a command on an archive in an object
    store could end with 134 behind its answer.
    """
    file = Remembering(encoded())
    assert read(opened(pa.PythonFile(file, mode="r"))).equals(ROWS)
    assert file.readers == {threading.get_ident()}


def test_bytes_and_other_files_are_read_too(tmp_path: Any) -> None:
    assert opened(encoded()).read().equals(ROWS)
    (tmp_path / "file").write_bytes(encoded())
    with pa.memory_map(str(tmp_path / "file")) as source:
        assert opened(source).read().equals(ROWS)
    with pytest.raises(pa.ArrowInvalid):
        opened(b"")
