"""An answer that may not be there yet: the one way in which anything here is asynchronous outside a task.

A :class:`Completion` costs one small object and no task, so it may be used for every request. It is
single-threaded: completed and read on the loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

_OPEN = 0
_VALUE = 1
_ERROR = 2


class Completion(Generic[T]):
    """A value, or an error, that arrives once.

    Callbacks run in the order in which they were added, inside ``complete``/``fail``, or at once when the
    completion is already done. A callback must not raise.
    """

    __slots__ = ("_callbacks", "_error", "_state", "_value")

    def __init__(self) -> None:
        self._state = _OPEN
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Completion[T]], None]] | None = None

    @classmethod
    def of(cls, value: T) -> Completion[T]:
        """One that is complete from the start."""
        completion = cls()
        completion._state = _VALUE
        completion._value = value
        return completion

    @property
    def done(self) -> bool:
        """Whether a value or an error has arrived."""
        return self._state != _OPEN

    @property
    def error(self) -> BaseException | None:
        """The error that arrived, or ``None``."""
        return self._error

    def result(self) -> T:
        """The value.

        :raises BaseException: the error that arrived instead
        :raises RuntimeError: nothing has arrived yet
        """
        if self._state == _VALUE:
            return self._value  # type: ignore[return-value]
        if self._error is not None:
            raise self._error
        raise RuntimeError("the completion is still open")

    def complete(self, value: T) -> None:
        """Deliver the value. The second delivery of any kind raises ``RuntimeError``."""
        self._settle(_VALUE)
        self._value = value
        self._call()

    def fail(self, error: BaseException) -> None:
        """Deliver an error in place of the value."""
        self._settle(_ERROR)
        self._error = error
        self._call()

    def when_done(self, callback: Callable[[Completion[T]], None]) -> None:
        """Call ``callback(self)`` once a value or an error is there; at once if it is."""
        if self._state != _OPEN:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def _settle(self, state: int) -> None:
        if self._state != _OPEN:
            raise RuntimeError("the completion was already delivered")
        self._state = state

    def _call(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                callback(self)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for it in a task of the running loop."""
        if self._state == _OPEN:
            import asyncio

            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: Completion[T]) -> None:
                if not future.done():
                    future.set_result(None)

            self.when_done(wake)
            yield from future.__await__()
        return self.result()


Steps: TypeAlias = Generator[Completion[Any] | None, None, T]
"""Work that can be put aside at each ``yield``, and its result: see :mod:`blumfeld.spi.steps`."""
