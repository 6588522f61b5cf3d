"""The clocks of one simulated machine: they run at a rate of their own, and the wall clock jumps."""

from __future__ import annotations


class MachineClock:
    """Monotonic and wall clock of a machine, as functions of virtual time. A restart of the process changes neither.

    :param epoch_ms: the wall clock at virtual time 0, before any offset
    """

    __slots__ = ("_base_s", "_base_world_s", "epoch_ms", "offset_ms", "rate")

    def __init__(self, epoch_ms: int, *, rate: float = 1.0, offset_ms: int = 0) -> None:
        self.epoch_ms = epoch_ms
        self.rate = rate
        """Seconds of this machine for each virtual second."""
        self.offset_ms = offset_ms
        """Distance of the wall clock from where it should be; jumps add to it."""
        self._base_s = 0.0
        self._base_world_s = 0.0

    def monotonic_s(self, world_s: float) -> float:
        """Return the machine's monotonic clock at that virtual time. It never goes back."""
        return self._base_s + (world_s - self._base_world_s) * self.rate

    def wall_ms(self, world_s: float) -> int:
        """Return the machine's wall clock at that virtual time, ms since the epoch."""
        return self.epoch_ms + self.offset_ms + int(self.monotonic_s(world_s) * 1000)

    def set_rate(self, rate: float, world_s: float) -> None:
        """Run at another rate from now on, without a jump. :raises ValueError: the rate is not positive"""
        if rate <= 0:
            raise ValueError(f"a clock's rate is greater than 0, not {rate}")
        self._base_s, self._base_world_s = self.monotonic_s(world_s), world_s
        self.rate = rate

    def jump(self, ms: int) -> None:
        """Let the wall clock jump. The monotonic clock doesn't notice."""
        self.offset_ms += ms
