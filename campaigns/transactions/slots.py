"""The copying programs of a run: each slot has a transactional id, a living program, and those that went before it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from campaigns.transactions.programs import CopierProgram, Start, Work
from campaigns.waits import await_true

READY_S = 90.0
"""Longest wait until a program has its producer id. A JVM compiles its program, and a transaction may have to end."""
END_S = 60.0
RESTARTS_MAX = 50
"""Programs of a run that may end by themselves. Beyond, the client can't do its work, and the run is broken off."""


class TooManyRestarts(Exception):  # noqa: N818 - the verdict of a run
    """CopierProgram after program ends with an error."""


class Slot:
    """One transactional id and its programs."""

    def __init__(self, number: int, start: Start, work: Work, folder: Path) -> None:
        self.number = number
        self.programs: list[CopierProgram] = []
        self.work = work
        self._start = start
        self._folder = folder

    @property
    def program(self) -> CopierProgram:
        """The newest program."""
        return self.programs[-1]

    def begin(self) -> CopierProgram:
        """Start a program; it fences the one before it."""
        name = f"copier-{self.number}-{len(self.programs)}"
        self.programs.append(self._start(name, self.work, self._folder / f"{name}.log"))
        return self.program


class Slots:
    """All slots of a run."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = slots
        self.restarts = 0
        self.wrong: list[str] = []

    def begin(self) -> None:
        """Start a program in each slot, and wait until all are ready."""
        for slot in self.slots:
            slot.begin()
        for slot in self.slots:
            self.await_ready(slot)

    def await_ready(self, slot: Slot) -> None:
        """Wait until the slot's program has its producer id.

        :raises TooManyRestarts: as :meth:`replace_ended`
        """

        def is_ready() -> bool:
            self.replace_ended()
            return slot.program.story.ready

        if not await_true(is_ready, READY_S):
            program = slot.program
            self.wrong.append(f"{program.name} is not ready after {READY_S:.0f} s: {program.story.error}")

    @property
    def programs(self) -> list[CopierProgram]:
        """All programs that ever were."""
        return [program for slot in self.slots for program in slot.programs]

    @property
    def transactions(self) -> int:
        """Transactions that programs were told are committed."""
        return sum(program.story.transactions for program in self.programs)

    def first_commit(self, since: float) -> float | None:
        """Return the instant of the first transaction that was committed after an instant; None if there was none."""
        later = (at for program in self.programs for at in list(program.story.commit_times) if at > since)
        return min(later, default=None)

    def draw(self, fate: random.Random) -> Slot:
        """Return a slot by chance."""
        return fate.choice(list(self.slots))

    def replace_ended(self) -> None:
        """Start a successor where a program has ended by itself, which the client may do after an error that is fatal
        to it. A program that says it was fenced, though it had no successor, is wrong.

        :raises TooManyRestarts: one program after the other ends
        """
        for slot in self.slots:
            program = slot.program
            if program.is_alive:
                continue
            program.await_end(1)
            self.restarts += 1
            story = program.story
            if story.last_word == "fenced":
                self.wrong.append(f"{program.name} was fenced without a successor: {story.error}")
            elif story.last_word != "failed":
                self.wrong.append(f"{program.name} ended without a word")
            if self.restarts > RESTARTS_MAX:
                raise TooManyRestarts(f"{program.name} ended as the {self.restarts}th: {story.error}")
            slot.begin()

    def finish(self) -> None:
        """End all newest programs in good order."""
        for slot in self.slots:
            slot.program.finish()
        for slot in self.slots:
            program = slot.program
            if not program.await_end(END_S):
                self.wrong.append(f"{program.name} does not end")
            elif program.story.last_word != "ended":
                self.wrong.append(
                    f"{program.name} ended with {program.story.last_word} {program.story.error}"
                )

    def kill(self) -> None:
        """Kill all that are left."""
        for program in self.programs:
            if program.is_alive:
                program.kill()

    def errors(self) -> dict[str, int]:
        """Return what programs were told when they aborted or ended, by text."""
        said: Counter[str] = Counter()
        for program in self.programs:
            said.update(f"retried: {error}" for error in program.story.retries)
            if program.story.last_word in ("fenced", "failed"):
                said[f"{program.story.last_word}: {program.story.error}"] += 1
        return dict(said.most_common())
