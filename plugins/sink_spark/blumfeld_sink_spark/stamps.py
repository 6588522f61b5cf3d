"""Kafka's times as the archive's, and the time of a message's receipt: its header's, else Kafka's timestamp.

Kafka's timestamps are any int64 of ms. Times here are ns since the epoch. One that int64 can't hold as ns becomes the
nearest that it holds: a producer that takes µs for ms must not make rows of the year 1772.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NS_MAX = 2**63 - 1
_US_MAX = NS_MAX // 1000


def record_us(ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the timestamps of a Kafka batch in µs, which raw rows have."""
    held: npt.NDArray[np.int64] = np.clip(ms, -(_US_MAX // 1000) - 1, _US_MAX // 1000 + 1) * 1000
    return np.clip(held, -_US_MAX, _US_MAX, out=held)


def kafka_ns(rows: pa.RecordBatch) -> pa.Array:
    """Returns the timestamps of raw rows in ns; a missing one is 0."""
    micros = rows.column("timestamp").cast(pa.int64())
    if not micros.null_count:
        with suppress(pa.ArrowInvalid):  # the fast way: nearly always all timestamps fit
            return pc.multiply_checked(micros, 1000)
    held = pc.max_element_wise(pc.min_element_wise(pc.fill_null(micros, 0), _US_MAX), -_US_MAX)
    return pc.multiply(held, 1000)


def received_ns(
    rows: pa.RecordBatch, stamped: pa.Array, header: str
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Returns the number in ``header`` (ASCII digits; the last one if a record has several), else ``stamped``; and for
    each record whether it has the header and no number in it.

    A number beyond ``NS_MAX`` is none.
    """
    bad = np.zeros(rows.num_rows, dtype=bool)
    if not header or "headers" not in rows.schema.names:
        return stamped, bad
    headers = rows.column("headers")
    message, pairs = pc.list_parent_indices(headers), pc.list_flatten(headers)
    key, value = pc.struct_field(pairs, 0), pc.struct_field(pairs, 1)
    named = pc.equal(key, header)
    message, value = message.filter(named), value.filter(named)
    bad[message.to_numpy()] = True
    digits = pc.fill_null(pc.match_substring_regex(value, r"\A[0-9]{1,19}\z"), False)
    message, value = message.filter(digits), value.filter(digits)
    ns = value.cast(pa.string()).cast(pa.uint64())
    fits = pc.less_equal(ns, pa.scalar(NS_MAX, pa.uint64()))
    there = message.filter(fits).to_numpy()
    received = np.array(stamped)
    received[there] = ns.filter(fits).to_numpy(zero_copy_only=False)
    bad[there] = False
    return pa.array(received), bad
