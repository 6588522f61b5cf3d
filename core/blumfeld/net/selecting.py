"""The place of a loop's selector, taken by what serves connections itself; all else stays in an ordinary selector."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping
from typing import Any


class TakenSelector(selectors.BaseSelector):
    """asyncio's side of it. A driver adds ``select``, which waits for its own and for ``_others``, calls its callbacks
    with ``_polling`` set, and then :meth:`call_after_poll` if ``_after_poll`` has something.
    """

    def __init__(self) -> None:
        self._others = selectors.DefaultSelector()
        """The loop's wake-up pipe, connecting sockets, pipes of child processes."""
        self._polling = False
        self._after_poll: list[Callable[[], None]] = []

    def raised(self, error: Exception) -> None:
        """A callback raised: tell who is to know, or raise it."""
        raise NotImplementedError

    def after_poll(self, callback: Callable[[], None]) -> bool:
        """Call ``callback()`` once, after all callbacks of this poll; False if there is no poll under way."""
        if self._polling:
            self._after_poll.append(callback)
        return self._polling

    def call_after_poll(self) -> None:
        """Call what waits for the end of the poll, all of it whatever one of them raises."""
        callbacks, self._after_poll = self._after_poll, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                self.raised(error)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As asyncio's own."""
        return self._others.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """As asyncio's own."""
        return self._others.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As asyncio's own."""
        return self._others.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """As asyncio's own."""
        return self._others.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """As asyncio's own."""
        return self._others.get_map()

    def close(self) -> None:
        """Close the selector of the others."""
        self._others.close()
