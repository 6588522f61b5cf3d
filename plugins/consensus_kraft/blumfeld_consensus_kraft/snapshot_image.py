"""From a snapshot's file to an image, a little in each turn."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.metadata.image.checkpoint_reader import CheckpointReader
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.record_frame import decode_record
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.metadata.image.step import BrokenMetadata, ImageStep
from blumfeld.metadata.slices import SECTION_RECORD_COST, SLICE_RECORDS
from blumfeld.spi.aux_files import ChunkedAuxFiles
from blumfeld.spi.completion import Steps
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.primitives import DecodeError
from blumfeld_consensus_kraft.stored_state import Loaded

READ_BYTES = 1 << 20
"""Bytes that a worker reads at once."""


async def load_snapshot(
    runtime: Runtime,
    files: ChunkedAuxFiles,
    snapshot: CheckpointId,
    cluster_id: str,
    section_kinds: SectionKinds = NO_SECTIONS,
    progress: Callable[[], None] = lambda: None,
) -> Loaded:
    """Returns the image that a snapshot holds, with the voters in it. The loop serves others meanwhile.

    :param progress: called for each ``READ_BYTES``
    :raises ValueError: it is damaged, or holds a record that this build can't read
    :raises OSError: it can't be read
    """
    loading = _Loading(MetadataImage(cluster_id, section_kinds))
    reader = CheckpointReader(snapshot.name, snapshot.epoch)
    position = 0
    while data := await runtime.offload(files.read_at, snapshot.name, position, READ_BYTES):
        position += len(data)
        progress()
        try:
            for batch in reader.feed(data):
                await runtime.scheduler.completed(Lane.METADATA, loading.take(batch))
        except (BrokerError, DecodeError, BrokenMetadata) as error:
            raise ValueError(f"{snapshot.name}: {error}") from error
    reader.finish()
    return Loaded(
        image=loading.finish(snapshot),
        last_epoch=snapshot.epoch,
        last_timestamp_ms=reader.last_contained_ms,
        snapshot=snapshot,
        kraft_version=reader.kraft_version,
        voters=reader.voters,
    )


class _Loading:
    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._step = ImageStep(image)
        self._cost = 0
        """Cost of the records in the present step, in records of the core."""

    def take(self, batch: RecordBatch) -> Steps[None]:
        for record in records(batch):
            decoded = decode_record(record.value or b"")
            self._step.replay(decoded)
            is_in_section = type(decoded) in self._image.section_kinds.by_record
            self._cost += SECTION_RECORD_COST if is_in_section else 1
            if self._cost >= SLICE_RECORDS:
                self._next_step()
                yield None

    def _next_step(self) -> None:
        # To end a step takes as long as it has records: one step for all would hold the loop.
        self._step.finish(-1, -1)
        self._step, self._cost = ImageStep(self._image), 0

    def finish(self, snapshot: CheckpointId) -> MetadataImage:
        self._step.finish(snapshot.end_offset - 1, snapshot.epoch)
        return self._image
