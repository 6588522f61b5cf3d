"""Work in steps: what a handler does for a large request, so that other connections get their turns between.

A handler that has many elements to serve is a generator (:data:`Steps`). It yields ``None`` where a turn for others
may come, or an open :class:`~blumfeld.spi.completion.Completion` that it waits for. It returns the answer. The
dispatcher drives it with the scheduler (:mod:`blumfeld.spi.scheduler`).

:func:`small_at_once` makes a handler of such a generator: a small request is served at once. :func:`in_parts` makes one
of a function that answers each element for itself: it serves a large request as a row of small ones, and puts their
answers together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import wraps
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from blumfeld.moved import old_names
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Serve: TypeAlias = "Callable[[Any, RequestContext], Any]"
"""Serves one request: a function that may be an ``ApiHandler.handle``."""
ErrorInSteps: TypeAlias = "Callable[[Any, int, str | None], Steps[Message]]"
"""(request, error code, message) → the steps to the response that says so for everything asked."""


class PartlyFailed(Exception):  # noqa: N818 - it brings an answer
    """Raised by :func:`in_parts` where a part met a defect, which is its cause. No client sees it."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer
        """The response: the answers of the parts before, and UNKNOWN_SERVER_ERROR for the others."""


CHUNK_ELEMENTS = 128
"""Elements of one part of a large request: at 5 µs each it takes less than a millisecond."""
CHARACTERS_AN_ELEMENT = 256
"""Characters of a key that count as one element more. To hash a key of 32 kB takes a millisecond."""
KEY_CHARACTERS_AT_ONCE = 80_000
"""Characters of all keys of a request that is served at once. A part of a large request has fewer."""
BUCKETS = 1_021
STEP_ELEMENTS = 512
"""Elements that are only looked at between two yields."""


def in_parts(
    handle: Serve,
    error_response: Callable[[Any, int, str | None], Message],
    asked: tuple[str, ...],
    answered: tuple[str, ...],
    *,
    chunk: int = CHUNK_ELEMENTS,
    once: Callable[[Any], Hashable] | None = None,
    named: str = "",
) -> Serve:
    """Serve a large request part by part, each with up to ``chunk`` elements of its arrays. A small one goes to
    ``handle`` at once, unless it has long keys.

    :param handle: serves a small request, or a part. It must answer the elements in their order, one for one, whatever
        other elements are in the request
    :param error_response: answers a part with an error for each element
    :param asked: the path of the nested arrays in the request, such as ``("topics", "partitions")``
    :param answered: the path of those in the response
    :param once: the key of an element of the outermost array, for a handler that answers equal elements once, and may
        answer them differently for being equal. Two of them then come in the same part, and the others are left out
    :param named: the attribute of an outermost element with a key whose length is work, such as a group's id, which is
        hashed. An element that is a string itself counts by its length
    :return: an ``ApiHandler.handle``. Its steps end with the same response as ``handle`` gives for the whole. The
        request is used up by them. A defect in a part raises :class:`PartlyFailed` at the end; the parts after it
        aren't served
    """
    steps = steps_by_parts(handle, error_response, asked, answered, chunk, once, named)

    @wraps(handle)
    def serve(request: Any, context: RequestContext) -> Any:
        if context.is_large or _has_long_keys(getattr(request, asked[0]), named):
            return steps(request, context)
        return handle(request, context)

    return serve


def errors_by_elements(
    error_response: Callable[[Any, int, str | None], Message],
    asked: tuple[str, ...],
    answered: tuple[str, ...],
) -> ErrorInSteps:
    """Build an error's answer part by part: an ``ApiHandler.error_response``. The request is used up by it.

    :param error_response: answers the elements in their order, one for one
    :param asked: the path of the nested arrays in the request, as of :func:`in_parts`
    :param answered: the path of those in the response
    """

    def steps(request: Any, code: int, message: str | None) -> Steps[Message]:
        def refuse(part: Any, _: object) -> Message:
            return error_response(part, code, message)

        serve = steps_by_parts(refuse, error_response, asked, answered)
        return serve(request, cast("RequestContext", None))

    return steps


def steps_by_parts(
    handle: Serve,
    error_response: Callable[[Any, int, str | None], Message],
    asked: tuple[str, ...],
    answered: tuple[str, ...],
    chunk: int = CHUNK_ELEMENTS,
    once: Callable[[Any], Hashable] | None = None,
    named: str = "",
) -> Callable[[Any, RequestContext], Steps[Any]]:
    """As :func:`in_parts`, for a request that is to be served part by part whatever its size."""

    def steps(request: Any, context: RequestContext) -> Steps[Any]:
        elements: list[Any] | None = getattr(request, asked[0])
        if elements is None:
            return handle(request, context)
        if once is not None:
            elements = yield from _pairs(elements, once)
        whole: Any = None
        defect: Exception | None = None
        for part, depth in parts_of(elements, asked[1:], chunk, pairs=once is not None, named=named):
            small = replace(request, **{asked[0]: part})
            answer: Any
            try:
                if defect is not None:
                    raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
                answer = yield from result_of(handle(small, context))
            except BrokerError as error:
                answer = error_response(small, int(error.code), error.message)
            except Exception as error:
                defect = error
                answer = error_response(small, int(ErrorCode.UNKNOWN_SERVER_ERROR), None)
            if whole is None:
                whole = answer
            else:
                _take_error(whole, answer)
                _join(getattr(whole, answered[0]), getattr(answer, answered[0]), depth, answered[1:])
            yield None
        if defect is not None:
            raise PartlyFailed(whole) from defect
        return whole

    return steps


def _has_long_keys(elements: list[Any] | None, named: str) -> bool:
    """Whether the keys of a small request are too long to be hashed at once, though they are few."""
    if not elements:
        return False
    if named:
        return sum(len(getattr(element, named)) for element in elements) > KEY_CHARACTERS_AT_ONCE
    return type(elements[0]) is str and sum(map(len, elements)) > KEY_CHARACTERS_AT_ONCE


def small_at_once(steps: Callable[[Any, RequestContext], Steps[Any]]) -> Serve:
    """Make an ``ApiHandler.handle`` of steps: those of a small request run :func:`at_once`."""

    @wraps(steps)
    def serve(request: Any, context: RequestContext) -> Any:
        begun = steps(request, context)
        return begun if context.is_large else at_once(begun)

    return serve


def at_once(steps: Steps[Any]) -> Any:
    """Run steps without a turn for others.

    :return: their result; or a completion of it if they wait for something. They go on in the moment in which that
        comes
    """
    try:
        while (awaited := next(steps)) is None or awaited.done:
            pass
    except StopIteration as end:
        return end.value
    return _Resumed(steps, awaited)


class _Resumed(Completion[Any]):
    """The result of steps that wait.

    It is an object, because a function that hands itself on as the callback refers to itself. Then the request would
    stay in memory until the garbage collector runs.
    """

    __slots__ = ("_steps",)

    def __init__(self, steps: Steps[Any], awaited: Completion[Any]) -> None:
        super().__init__()
        self._steps = steps
        awaited.when_done(self._go_on)

    def _go_on(self, _: Completion[Any]) -> None:
        try:
            while (awaited := next(self._steps)) is None or awaited.done:
                pass
        except StopIteration as end:
            if isinstance(end.value, Completion):
                end.value.when_done(self._take)
            else:
                self.complete(end.value)
        except Exception as error:
            self.fail(error)
        else:
            awaited.when_done(self._go_on)

    def _take(self, done: Completion[Any]) -> None:
        if done.error is None:
            self.complete(done.result())
        else:
            self.fail(done.error)


def result_of(served: Any) -> Steps[Any]:
    """The steps to the response, of what an ``ApiHandler.handle`` has given: steps, a completion, or the response.

    :raises BaseException: the error of the steps, or of the completion
    """
    if isinstance(served, GeneratorType):
        served = yield from served
    return (yield from waited(served)) if isinstance(served, Completion) else served


def waited(awaited: Completion[Any]) -> Steps[Any]:
    """Wait for a completion within steps, and return its value.

    :raises BaseException: the completion's error
    """
    if not awaited.done:
        yield awaited
    return awaited.result()


def first_repeated(keys: Iterable[K]) -> Steps[K | None]:
    """Returns the first key that was there before, ``None`` if all are different."""
    seen, number, repeated = Buckets(), 0, None
    for key in keys:
        bucket = seen.of(key)
        if key in bucket:
            repeated = key
            break
        bucket[key] = None
        number += 1
        if not number % STEP_ELEMENTS:
            yield None
    if number > STEP_ELEMENTS:
        yield from seen.let_go()
    return repeated


def _pairs(elements: Sequence[Any], key: Callable[[Any], Hashable]) -> Steps[list[Any]]:
    """Each element once, where its equals are twice in a row."""
    times = Buckets()
    for number, element in enumerate(elements):
        element_key = key(element)
        bucket = times.of(element_key)
        bucket[element_key] = bucket.get(element_key, 0) + 1
        if not number % STEP_ELEMENTS:
            yield None
    kept: list[Any] = []
    for number, element in enumerate(elements):
        element_key = key(element)
        count = times.of(element_key).pop(element_key, 0)
        if count:
            kept += [element] * min(count, 2)
        if not number % STEP_ELEMENTS:
            yield None
    yield from times.let_go()
    return kept


def parts_of(
    elements: list[Any], inner: tuple[str, ...], size: int, *, pairs: bool = False, named: str = ""
) -> Iterator[tuple[list[Any], int]]:
    """Cut an array of nested arrays into parts of about ``size`` elements, counted at all depths.

    An element with too many inner ones is cut itself, and its pieces are parts of their own. Each part comes with a
    number of levels: so many levels of its first element go on with the last element of the part before. It is 0 for a
    part that begins with a new element. ``elements`` is emptied on the way, so that its memory goes with the parts.

    :param pairs: an element may be there twice in a row (``once``), and both come in the same part. Without it equal
        neighbours mean nothing: all small numbers and short strings of one value are one object
    """
    part: list[Any] = []
    room = size
    for number, element in enumerate(elements):
        elements[number] = None
        weight = _weight(element, inner, size)
        if named and weight < size:  # only many inner elements cut it
            weight = min(weight + len(getattr(element, named)) // CHARACTERS_AN_ELEMENT, size)
        if weight > size:
            if part:
                yield part, 0
                part, room = [], size
            begun = False
            for piece, depth in parts_of(getattr(element, inner[0]), inner[1:], size):
                yield [replace(element, **{inner[0]: piece})], depth + 1 if begun else 0
                begun = True
            continue
        if weight > room and part and not (pairs and part[-1] is element):
            yield part, 0
            part, room = [], size
        part.append(element)
        room -= weight
    if part or not elements:
        yield part, 0


def _weight(element: Any, inner: tuple[str, ...], enough: int) -> int:
    """An element and all below it; counting ends above ``enough``."""
    if type(element) is str:
        return min(1 + len(element) // CHARACTERS_AN_ELEMENT, enough)
    weight = 1
    if inner:
        below: Sequence[Any] = getattr(element, inner[0]) or ()
        if len(below) >= enough or len(inner) == 1:
            return weight + len(below)
        for child in below:
            weight += _weight(child, inner[1:], enough)
            if weight > enough:
                break
    return weight


def _join(whole: list[Any], part: list[Any], depth: int, inner: tuple[str, ...]) -> None:
    """Append a part's answers; the first goes on with the last for ``depth`` levels."""
    begin = 0
    if depth and whole and part:
        begin = 1
        _take_error(whole[-1], part[0])
        if inner:
            _join(getattr(whole[-1], inner[0]), getattr(part[0], inner[0]), depth - 1, inner[1:])
    whole += part[begin:]


def _take_error(whole: Any, part: Any) -> None:
    """An error of a part that stands above its elements becomes the error of the whole. It would be lost otherwise."""
    code = getattr(part, "error_code", 0)
    if code and not whole.error_code:
        whole.error_code = code


def drained(steps: Steps[T]) -> T:
    """The result of steps that wait for nothing, all of them at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Buckets:
    """A dictionary of a million keys in many small ones: none of them takes long to grow, or to be freed."""

    def __init__(self, *, few: bool = False) -> None:
        """``few``: for some hundred keys one dictionary will do."""
        self._buckets: list[dict[Any, Any]] = [{} for _ in range(1 if few else BUCKETS)]

    def of(self, key: Hashable) -> dict[Any, Any]:
        """The dictionary that a key is in, if it is in any."""
        return self._buckets[hash(key) % len(self._buckets)]

    def __contains__(self, key: Hashable) -> bool:
        return key in self.of(key)

    def __bool__(self) -> bool:
        return any(self._buckets)

    def let_go(self) -> Steps[None]:
        """Free it a piece at a time; it is empty afterwards."""
        for number in range(len(self._buckets)):
            self._buckets[number] = {}
            yield None


def let_go(lists: Iterable[list[Any]]) -> Steps[None]:
    """Empty lists a piece at a time: to free a million objects at once takes 100 ms."""
    for items in lists:
        while items:
            del items[-STEP_ELEMENTS:]
            yield None


if not TYPE_CHECKING:
    __getattr__ = old_names(__name__)
