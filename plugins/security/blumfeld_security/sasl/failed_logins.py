"""Failed logins by address: an address with too many of them must wait. Pure."""

from __future__ import annotations

from blumfeld_security.addresses import origin

WINDOW_MS = 60_000
ADDRESSES_MAX = 10_000


class FailedLogins:
    """Counts failures of each address in windows of a minute; an IPv6 address counts with its whole /64.

    :param failures_max: failures in a window after which logins of the address are refused unseen; 0: no limit
    """

    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max
        self._windows: dict[str, tuple[float, int]] = {}
        """Address → (begin of its window, failures), the oldest window first."""

    def failed(self, address: str, now_ms: float) -> None:
        """Count a failure."""
        address = origin(address)
        begin_ms, failures = self._windows.get(address, (now_ms, 0))
        if now_ms - begin_ms >= WINDOW_MS:
            begin_ms, failures = now_ms, 0
        if not failures:
            self._windows.pop(address, None)  # begins anew, at the end of the order
            if len(self._windows) >= ADDRESSES_MAX:
                del self._windows[next(iter(self._windows))]
        self._windows[address] = (begin_ms, failures + 1)

    def must_wait(self, address: str, now_ms: float) -> bool:
        """Whether a login of this address is refused unseen."""
        begin_ms, failures = self._windows.get(origin(address), (now_ms, 0))
        return 0 < self._failures_max <= failures and now_ms - begin_ms < WINDOW_MS
