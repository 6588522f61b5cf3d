"""A selector for asyncio's loop that lets a driver serve connections itself. All other descriptors stay in an ordinary
selector inside."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping
from typing import Any


class TakenSelector(selectors.BaseSelector):
    """asyncio's side of such a selector.

    A driver adds ``select``. It waits for its own descriptors and for ``_others``, calls its callbacks with
    ``_polling`` set, and then calls :meth:`call_after_poll` if ``_after_poll`` isn't empty.
    """

    def __init__(self) -> None:
        self._others = selectors.DefaultSelector()
        """The selector for all other descriptors: the loop's wake-up pipe, connecting sockets, pipes of children."""
        self._polling = False
        self._after_poll: list[Callable[[], None]] = []

    def raised(self, error: Exception) -> None:
        """Handle an exception of a callback: report it, or raise it."""
        raise NotImplementedError

    def after_poll(self, callback: Callable[[], None]) -> bool:
        """Call ``callback()`` once, after all callbacks of this poll. Returns False if no poll is under way."""
        if self._polling:
            self._after_poll.append(callback)
        return self._polling

    def call_after_poll(self) -> None:
        """Make the calls that wait for the end of the poll. All are made, even if one raises."""
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
        """Close the inner selector."""
        self._others.close()
