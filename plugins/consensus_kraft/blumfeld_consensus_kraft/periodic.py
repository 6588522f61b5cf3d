"""Commands that the controller gives itself, each after its interval: preferred leaders, unclean elections."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from blumfeld.metadata.controller import Controller, PeriodicCommand
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld_consensus_kraft.deciding import Decisions, Part

BUSY_MS = 10
"""Until a command is tried again whose time came while a large decision was being placed."""

Decide = Callable[[ControllerState, Moment], ControllerDecision]


class PeriodicCommands:
    """Makes the decisions of :meth:`Controller.periodic`, from :meth:`start` to :meth:`stop`.

    An interval begins when the last part of the decision before was made, so a command never overtakes itself.
    """

    def __init__(self, runtime: Runtime, decisions: Decisions, moment: Callable[[], Moment]) -> None:
        self._runtime = runtime
        self._decisions = decisions
        self._moment = moment
        self._controller: Controller | None = None
        self._timers: dict[str, Timer] = {}

    def start(self, controller: Controller) -> None:
        """Begin anew with a controller that has taken over."""
        self.stop()
        self._controller = controller
        for command in controller.periodic():
            self._plan(command, command.interval_ms)

    def stop(self) -> None:
        """Give no more commands. Parts of those under way are dropped by :meth:`Decisions.drop`."""
        self._controller = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _plan(self, command: PeriodicCommand, delay_ms: float) -> None:
        if self._controller is not None:
            self._timers[command.name] = self._runtime.call_later(delay_ms, lambda: self._give(command))

    def _give(self, command: PeriodicCommand) -> None:
        controller = self._controller
        if controller is None:
            return
        if self._decisions.are_busy:
            self._plan(command, BUSY_MS)
            return
        decide = self._planned_anew(command, lambda _, moment: command.decide(moment))
        self._decisions.make(Part(command.name, decide, None), controller.state, self._moment)

    def _planned_anew(self, command: PeriodicCommand, decide: Decide) -> Decide:
        """Returns ``decide`` such that the next interval begins behind its last part, or behind a defect."""

        def decided(state: ControllerState, moment: Moment) -> ControllerDecision:
            try:
                decision = decide(state, moment)
            except Exception:
                self._plan(command, command.interval_ms)
                raise
            if decision.rest is None:
                self._plan(command, command.interval_ms)
                return decision
            return replace(decision, rest=self._planned_anew(command, decision.rest))

        return decided
