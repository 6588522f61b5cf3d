"""Decisions that take several turns: which goes on, and what waits for it (ADR 0021)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.spi.completion import Steps
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.batching import Batch
from blumfeld_consensus_kraft.publishing import Reply


class Part(NamedTuple):
    """A decision to make, or the next part of one."""

    command: object
    """The request, or words for a work of the controller's own."""
    decide: Callable[[ControllerState, Moment], ControllerDecision]
    reply: Reply | None

    def settle(self, error: BrokerError) -> None:
        """Answer with an error."""
        if self.reply is not None:
            self.reply.settle(error)


class Encode(Protocol):
    """Makes the batches of a decision."""

    def __call__(self, records: Sequence[Message], *, atomic: bool) -> Steps[list[Batch]]:
        """As :func:`~blumfeld_consensus_kraft.batching.batches_of`."""
        ...


class Decisions:
    """Makes decisions one after the other; a small one at once.

    * A decision in parts gives the turn back, and other commands come between its parts.
    * A decision of several batches is encoded and placed in steps. Other commands wait until its last batch is placed,
      because what they decide on and what they write must not come between its batches.

    :param encode: makes batches, and changes nothing
    :param place: puts a batch into the log and the controller's image
    :param placed: is told when all batches of a part are placed
    :param undecided: is told of a defect that has changed nothing
    :param failed: is told that the log takes no more
    :param contradicted: is told of a defect that leaves the controller half changed
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        encode: Encode,
        place: Callable[[Batch], None],
        placed: Callable[[Part, ControllerDecision], None],
        undecided: Callable[[object, Exception], None],
        failed: Callable[[OSError], None],
        contradicted: Callable[[Exception], None],
    ) -> None:
        self._runtime = runtime
        self._encode = encode
        self._place = place
        self._placed = placed
        self._undecided = undecided
        self._failed = failed
        self._contradicted = contradicted
        self._parts: deque[tuple[Part, ControllerState, Callable[[], Moment]]] = deque()
        self._steps: Steps[None] | None = None
        """The decision that is being encoded or placed."""
        self._current: Part | None = None
        self._behind: deque[tuple[Callable[[], None], Reply]] = deque()
        self._work: Work | None = None
        """Goes on with all of these."""

    @property
    def are_busy(self) -> bool:
        """Whether a decision is being placed, so that no other record may be."""
        return self._steps is not None or bool(self._behind)

    def in_turn(self, decide: Callable[[], None], reply: Reply) -> None:
        """Call ``decide`` now, or behind the decision that is being placed, unless ``reply`` is settled by then."""
        if self.are_busy:
            self._behind.append((decide, reply))
        else:
            decide()

    def make(self, part: Part, state: ControllerState, moment: Callable[[], Moment]) -> None:
        """Decide, and place the records: now if they are few. None may be under way."""
        try:
            decision = part.decide(state, moment())
        except BrokerError as error:
            part.settle(error)
        except Exception as defect:
            self._undecided(part.command, defect)
            part.settle(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            if decision.rest is not None:
                self._parts.append((Part(part.command, decision.rest, part.reply), state, moment))
            self._steps = self._place_decision(part, decision)
            self._current = part
            self._step()
            if (self.are_busy or self._parts) and (self._work is None or self._work.done):
                self._work = self._runtime.scheduler.run(Lane.METADATA, self._go_on(), at_once=False)

    def drop(self, error: BrokerError) -> None:
        """Forget decisions that are under way, and what waits for them; they get ``error``."""
        waiting = [part.reply for part, _, _ in self._parts]
        waiting += [reply for _, reply in self._behind]
        if self._current is not None:
            waiting.append(self._current.reply)
        self._steps = self._current = None
        self._parts.clear()
        self._behind.clear()
        if self._work is not None:
            self._work.cancel()
        for reply in waiting:
            if reply is not None:
                reply.settle(error)

    def _step(self) -> None:
        """Do the next step of the decision. A small one has one."""
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration:
            self._steps = self._current = None

    def _go_on(self) -> Steps[None]:
        """Go on with a large decision, then with the commands that waited for its end, then with the next part."""
        while self.are_busy or self._parts:
            if self._steps is not None:
                self._step()
            elif self._behind:
                decide, reply = self._behind.popleft()
                if not reply.completion.done:
                    decide()
            else:
                self.make(*self._parts.popleft())
            yield None

    def _place_decision(self, part: Part, decision: ControllerDecision) -> Steps[None]:
        """Encode all, then place batch by batch: what can't be encoded has changed nothing."""
        try:
            batches = yield from self._encode(decision.records, atomic=decision.atomic)
        except BrokerError as error:
            self._not_placed(part, error)
            return
        except Exception as defect:
            self._undecided(part.command, defect)
            self._not_placed(part, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        try:
            for number, batch in enumerate(batches):
                if number:
                    yield None
                if batch.records:
                    self._place(batch)
            self._placed(part, decision)
        except OSError as error:
            part.settle(BrokerError(ErrorCode.NOT_CONTROLLER, str(error)))
            self._failed(error)
        except Exception as defect:
            part.settle(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._contradicted(defect)

    def _not_placed(self, part: Part, error: BrokerError) -> None:
        """Refuse a decision; the parts behind it go with it."""
        part.settle(error)
        self._parts = deque(one for one in self._parts if one[0].reply is not part.reply)
