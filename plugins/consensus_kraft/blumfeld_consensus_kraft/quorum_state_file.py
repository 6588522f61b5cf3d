"""``quorum-state``: the epoch and the vote of a voter, which are on the device before it tells anyone (KIP-595)."""

from __future__ import annotations

from blumfeld.log.quorum_state import FILE_NAME, QuorumState, decode_quorum_state, encode_quorum_state
from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import AuxFiles
from blumfeld_consensus_kraft.aux_file_writer import AuxFileWriter

_SOURCE = f"{CLUSTER_METADATA_TOPIC}-0/{FILE_NAME}"


class QuorumStateFile:
    """Reads the file once, and writes it off the loop, in the order of the calls.

    The file lasts as long as the log's directory does: call it when ``RaftLog.flush`` has settled.

    :raises MalformedFile: the file can't be read. A voter without its vote could vote twice, so it must not start
    :raises OSError: the same
    """

    def __init__(self, runtime: Runtime, aux: AuxFiles) -> None:
        data = aux.read(FILE_NAME)
        self.state = QuorumState(data_version=0) if data is None else decode_quorum_state(data, _SOURCE)
        """The state that is on the device."""
        self._writer = AuxFileWriter(runtime, aux, FILE_NAME)
        self._pending = 0

    def persist(self, state: QuorumState) -> Completion[None]:
        """Write the state; ``data_version`` 0 for ``kraft.version`` 0, else 1.

        The completion is delivered when this state is on the device, or a later one in its place: before that no
        answer may leave that depends on it. It fails with ``OSError``. Then the file has this state or the one before,
        and the next call may write it.
        """
        if state == self.state and not self._pending:
            return Completion.of(None)
        self._pending += 1
        done = self._writer.write(encode_quorum_state(state))

        def written(done: Completion[None]) -> None:
            self._pending -= 1
            if done.error is None:
                self.state = state

        done.when_done(written)
        return done
