"""The share of the machine's memory that network buffers take by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.kernel.runtime.machine_memory import buffer_bytes_max, memory_bytes

GIB, MIB = 1 << 30, 1 << 20
FRAME = 100 * MIB


@pytest.mark.parametrize(
    ("memory", "expected"), [(512 * MIB, FRAME), (2 * GIB, 128 * MIB), (24 * GIB, 256 * MIB)]
)
def test_the_bound_fits_the_machine_and_holds_a_frame(memory: int, expected: int) -> None:
    """A sixteenth, 256 MiB at most; however small the machine, one request of the largest size."""
    assert buffer_bytes_max(FRAME, memory) == expected


def test_a_container_counts_as_the_machine(tmp_path: Path) -> None:
    """Its limit, where it has one."""
    limit = tmp_path / "memory.max"
    whole = memory_bytes(str(limit))
    assert whole > 64 * MIB
    limit.write_text("max\n")
    assert memory_bytes(str(limit)) == whole
    limit.write_text(f"{64 * MIB}\n")
    assert memory_bytes(str(limit)) == 64 * MIB
