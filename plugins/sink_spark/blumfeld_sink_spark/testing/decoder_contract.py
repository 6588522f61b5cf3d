"""The contract of a decoder as tests. Subclass :class:`DecoderContract` and give it your decoder and some of your
messages: pytest then runs the tests on them.

.. code-block:: python

    class TestMyDecoder(DecoderContract):
        def make_decoder(self):
            return MyDecoder()

        def messages(self):
            return [b"EURUSD 1.08 100", b"EURUSD 1.09 5"]
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blumfeld.spi.decoders import Continuity, Decoder
from blumfeld_sink_spark.apply import decode_rows
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.testing.decoder_messages import (
    GARBAGE,
    OUTCOME,
    batch,
    first_of_pairs,
    garbled,
    hollowed,
    in_pieces,
    outcome_of,
    rejections_of,
    rows_of,
)

SEQUENCE_TYPES = {
    "row": pa.int32(),
    "venue": pa.string(),
    "symbol": pa.string(),
    "stream": pa.string(),
    "first_id": pa.int64(),
    "last_id": pa.int64(),
    "prev_id": pa.int64(),
    "ts_event": pa.int64(),
}


class DecoderContract:
    """The contract of ``blumfeld.spi.decoders.Decoder`` as tests."""

    fills_all = True
    """Whether ``messages`` fills each of the decoder's tables."""
    keeps_tombstones = False
    """Whether a null value gives a row."""
    reads_anything = False
    """Whether the decoder rejects nothing."""
    examples = 40
    """Number of batches that each rule is tried on."""

    def make_decoder(self) -> Decoder:
        """Returns a new decoder."""
        raise NotImplementedError("override make_decoder")

    def messages(self) -> Sequence[bytes]:
        """Returns values that the decoder reads, a few of each kind."""
        raise NotImplementedError("override messages")

    def bad_messages(self) -> Sequence[bytes]:
        """Returns values of your format that the decoder must reject. Bytes of no format are tried anyway."""
        return ()

    def every_batch(self, values: st.SearchStrategy[Any], rule: Callable[[Any], None]) -> None:
        """Hold a rule; a failure shows the smallest batch that was found."""

        @settings(max_examples=self.examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(messages_and_cuts=values)
        def hold(messages_and_cuts: Any) -> None:
            rule(messages_and_cuts)

        hold()

    # What it is

    def test_it_has_a_name_that_settings_can_say(self) -> None:
        """``archive.decoders`` names it, as ``NAME`` or ``TOPIC=NAME``; commits carry its version."""
        decoder = self.make_decoder()
        assert decoder.name
        assert not set(decoder.name) & set(" \t\n,=")
        assert isinstance(decoder.version, int)
        assert decoder.version >= 1

    def test_it_says_what_it_fills_and_how_streams_are_numbered(self) -> None:
        """Before it decodes anything."""
        decoder = self.make_decoder()
        assert decoder.tables
        assert len(set(decoder.tables)) == len(decoder.tables)
        assert all(isinstance(rule, Continuity) for rule in decoder.continuity.values())

    def test_it_goes_to_another_process(self) -> None:
        """Spark pickles it; before and after it has decoded."""
        decoder, rows = self.make_decoder(), batch(self.messages())
        made = rows_of(pickle.loads(pickle.dumps(decoder)).decode(rows))
        assert rows_of(decoder.decode(rows)) == made
        assert rows_of(pickle.loads(pickle.dumps(decoder)).decode(rows)) == made

    # What it gives

    def test_it_reads_its_messages(self) -> None:
        """No message is rejected, and each table gets a row where the decoder ``fills_all``."""
        decoder = self.make_decoder()
        decoded = decoder.decode(batch(self.messages()))
        assert not decoded.rejected
        filled = {name for name, table in decoded.tables.items() if table.num_rows}
        assert filled
        if self.fills_all:
            assert filled == set(decoder.tables)

    def test_the_archive_can_write_what_it_gives(self) -> None:
        """Tables that there are, columns that they have, types that can become theirs, nulls where they may be."""
        archive = ArchiveSettings(topics=("ticks",))
        applied = decode_rows([self.make_decoder()], batch(self.messages()), archive)
        assert applied.tables.keys() - {"quarantine"}
        assert "quarantine" not in applied.tables, applied.tables["quarantine"].column("error").to_pylist()

    def test_an_empty_batch_gives_nothing(self) -> None:
        """It comes up where a range holds only control records."""
        decoded = self.make_decoder().decode(batch([]))
        assert rows_of(decoded) == {}
        assert not decoded.rejected

    def test_the_same_bytes_give_the_same_rows(self) -> None:
        """Nothing but the bytes counts: no chance, no clock, nothing that was decoded before."""
        used = self.make_decoder()

        def rule(values: list[bytes]) -> None:
            rows = batch(values)
            made = used.decode(rows)
            assert rows_of(used.decode(rows)) == rows_of(made)
            assert rows_of(self.make_decoder().decode(rows)) == rows_of(made)
            assert rejections_of(self.make_decoder().decode(rows)) == rejections_of(made)

        self.every_batch(st.lists(self._any_value(), max_size=8), rule)

    def test_it_does_not_matter_where_batches_are_cut(self) -> None:
        """Spark cuts them anew when it tries again: the whole outcome stays the same."""
        decoder = self.make_decoder()

        def rule(messages_and_cuts: tuple[list[bytes], list[int]]) -> None:
            values, cuts = messages_and_cuts
            rows = batch(values)
            assert in_pieces(decoder, rows, cuts) == outcome_of(decoder.decode(rows))

        values = st.lists(self._any_value(), max_size=8)
        self.every_batch(st.tuples(values, st.lists(st.integers(0, 8), max_size=3)), rule)

    def test_a_message_is_judged_by_itself(self) -> None:
        """Alone in its batch as beside another, also where it lacks a value or has an empty list."""
        decoder = self.make_decoder()
        for whole in self.messages():
            for value in hollowed([whole]):
                rows = batch([whole, value])
                together, apart = outcome_of(decoder.decode(rows)), in_pieces(decoder, rows, [1])
                for kind, *both in zip(OUTCOME, together, apart, strict=True):
                    assert both[0] == both[1], (kind, value)

    def test_rows_name_their_message(self) -> None:
        """``row`` is int32, of a message of the batch, and doesn't fall."""
        decoder = self.make_decoder()

        def rule(values: list[bytes]) -> None:
            decoded = decoder.decode(batch(values))
            assert set(decoded.tables) <= set(decoder.tables)
            for table in (*decoded.tables.values(), decoded.sequences):
                if table is not None:
                    _check_rows(table, len(values))

        self.every_batch(st.lists(self._any_value(), max_size=8), rule)

    def test_sequences_have_their_columns(self) -> None:
        """The ids are possible, too: the last isn't before the first."""
        decoder = self.make_decoder()
        sequences = decoder.decode(batch(self.messages())).sequences
        if sequences is None:
            assert not decoder.continuity, "it says how streams are numbered and gives no numbers"
            return
        needed = SEQUENCE_TYPES.keys() - {"prev_id"}
        assert needed <= set(sequences.column_names)
        for name in set(sequences.column_names) & SEQUENCE_TYPES.keys():
            assert sequences.schema.field(name).type == SEQUENCE_TYPES[name], name
        for sequence in sequences.to_pylist():
            assert None not in [
                sequence[name] for name in ("venue", "symbol", "stream", "last_id", "ts_event")
            ]
            assert sequence["first_id"] is None or sequence["first_id"] <= sequence["last_id"]

    # What it can't read

    def test_it_never_raises_for_what_a_message_holds(self) -> None:
        """Whatever the bytes, and whatever is wrong with its own messages: cut off, turned, doubled."""
        decoder = self.make_decoder()

        def rule(values: list[bytes]) -> None:
            decoder.decode(batch(values))

        self.every_batch(st.lists(self._any_value(), max_size=8), rule)

    def test_a_bad_message_does_no_harm_to_its_neighbours(self) -> None:
        """They give the rows that they give without it."""
        decoder, good = self.make_decoder(), list(self.messages())
        alone = first_of_pairs(
            rows_of(decoder.decode(batch([each for message in good for each in (message, message)])))
        )

        def rule(bad: bytes) -> None:
            decoded = decoder.decode(batch([value for each in good for value in (each, bad)]))
            assert first_of_pairs(rows_of(decoded)) == alone
            assert all(rejected.row % 2 for rejected in decoded.rejected)

        self.every_batch(GARBAGE | garbled(good), rule)

    def test_a_message_is_rejected_whole_or_not_at_all(self) -> None:
        """Once, in one line, and nothing of it is in a table."""
        decoder = self.make_decoder()

        def rule(values: list[bytes]) -> None:
            decoded = decoder.decode(batch(values))
            rows = [rejected.row for rejected in decoded.rejected]
            assert len(set(rows)) == len(rows)
            assert all(0 <= row < len(values) for row in rows)
            assert all(rejected.error and "\n" not in rejected.error for rejected in decoded.rejected)
            for table in (*decoded.tables.values(), decoded.sequences):
                if table is not None:
                    assert not set(rows) & set(table.column("row").to_pylist())

        self.every_batch(st.lists(self._any_value(), max_size=8), rule)

    def test_every_message_is_accounted_for(self) -> None:
        """A row, a rejection, or an entry in ``passed_over`` with its kind: nothing vanishes uncounted. A null value
        needs none.
        """
        decoder = self.make_decoder()

        def rule(values: list[bytes | None]) -> None:
            decoded = decoder.decode(batch(values))
            rows = {rejected.row for rejected in decoded.rejected} | {
                skip.row for skip in decoded.passed_over
            }
            for table in decoded.tables.values():
                rows |= set(table.column("row").to_pylist())
            assert rows >= {row for row, value in enumerate(values) if value is not None}
            assert all(0 <= row < len(values) for row in rows)
            assert all(skip.kind and "\n" not in skip.kind for skip in decoded.passed_over)

        self.every_batch(st.lists(st.none() | self._any_value(), max_size=8), rule)

    def test_it_rejects_what_it_must(self) -> None:
        """Each of ``bad_messages``, and bytes that are nothing at all."""
        if self.reads_anything:
            pytest.skip("it says that it reads anything")
        for value in (b"\xff\xfe\x00 nothing at all", *self.bad_messages()):
            decoded = self.make_decoder().decode(batch([value]))
            assert [rejected.row for rejected in decoded.rejected] == [0], value[:40]
            assert rows_of(decoded) == {}

    def test_a_tombstone_is_nothing(self) -> None:
        """No row and no rejection; among messages too. Unless it ``keeps_tombstones``."""
        decoder = self.make_decoder()
        rows = batch([None, *self.messages(), None])
        decoded = decoder.decode(rows)
        assert not decoded.rejected
        if not self.keeps_tombstones:
            assert rows_of(decoded) == rows_of(decoder.decode(rows.slice(1, len(rows) - 2)), shift=1)

    def _any_value(self) -> st.SearchStrategy[bytes]:
        good = list(self.messages())
        return st.sampled_from([*good, *hollowed(good)]) | st.sampled_from(good) | GARBAGE | garbled(good)


def _check_rows(table: pa.Table, messages: int) -> None:
    assert table.schema.field("row").type == pa.int32()
    rows = table.column("row").to_pylist()
    assert rows == sorted(rows)
    assert all(0 <= row < messages for row in rows)
