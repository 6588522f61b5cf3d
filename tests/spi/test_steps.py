"""Serving by elements: parts of a bounded size, and the same answer as of the whole request."""

from __future__ import annotations

from copy import deepcopy
from types import GeneratorType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import RequestContext
from blumfeld.spi.steps import (
    CHARACTERS_AN_ELEMENT,
    KEY_CHARACTERS_AT_ONCE,
    Serve,
    at_once,
    drained,
    in_parts,
    let_go,
    parts_of,
    small_at_once,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.coordinator.fakes import FakeContext
from tests.everyday import examples


def context(*, is_large: bool) -> RequestContext:
    made = FakeContext(9, 8)
    made.is_large = is_large
    return made


LARGE, SMALL = context(is_large=True), context(is_large=False)
ASKED = ("groups", "topics", "partition_indexes")
ANSWERED = ("groups", "topics", "partitions")

topics = st.lists(st.integers(0, 40), max_size=4).map(
    lambda counts: [
        OffsetFetchRequestTopics(name=f"t{n}", partition_indexes=list(range(count)))
        for n, count in enumerate(counts)
    ]
)
requests = st.lists(topics | st.none(), max_size=6).map(
    lambda groups: OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=f"g{n}", topics=group_topics)
            for n, group_topics in enumerate(groups)
        ]
    )
)


def fetched(request: OffsetFetchRequest, _context: RequestContext) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(partition_index=index, committed_offset=index)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ]
    )


def refused(request: OffsetFetchRequest, code: int, _message: str | None) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=g.group_id, error_code=code) for g in request.groups]
    )


def served(handle: Any, error_response: Any = refused, chunk: int = 7) -> Serve:
    return in_parts(handle, error_response, ASKED, ANSWERED, chunk=chunk)


@given(requests, st.integers(1, 30))
@settings(max_examples=examples(300), deadline=None)
def test_the_answer_is_that_of_the_whole(request: OffsetFetchRequest, chunk: int) -> None:
    expected = fetched(deepcopy(request), LARGE)
    assert drained(served(fetched, chunk=chunk)(request, LARGE)) == expected


@given(requests, st.integers(1, 30))
@settings(max_examples=examples(200), deadline=None)
def test_a_part_is_bounded(request: OffsetFetchRequest, size: int) -> None:
    def weight(group: OffsetFetchRequestGroup) -> int:
        return 1 + sum(1 + len(topic.partition_indexes) for topic in group.topics or ())

    for part, _ in parts_of(request.groups, ASKED[1:], size):
        # A piece of a topic comes with the structs around it.
        assert sum(weight(group) for group in part) <= size + 2
    assert all(group is None for group in request.groups), "its memory goes with the parts"


@pytest.mark.parametrize("elements", [[0] * 50, ["a"] * 50])
def test_elements_that_are_one_object_are_cut_too(elements: list[Any]) -> None:
    """All zeros are one object, and so are all strings of the same one letter."""
    assert [len(part) for part, _ in parts_of(elements, (), 20)] == [20, 20, 10]


@pytest.mark.parametrize("length", [CHARACTERS_AN_ELEMENT - 1, 10 * CHARACTERS_AN_ELEMENT, 32_767])
def test_long_keys_count_by_their_length(length: int) -> None:
    """400 ids of 32 kB held the loop for 290 ms: a key is hashed, character by character."""
    topic = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    texts = [f"{n:02}".ljust(length, "x") for n in range(40)]
    groups = [
        OffsetFetchRequestGroup(group_id=text, topics=[None, [], topic][n % 3])
        for n, text in enumerate(texts)
    ]
    expected = fetched(OffsetFetchRequest(groups=deepcopy(groups)), LARGE)
    steps = in_parts(fetched, refused, ASKED, ANSWERED, chunk=20, named="group_id")
    assert drained(steps(OffsetFetchRequest(groups=deepcopy(groups)), LARGE)) == expected
    sizes = [len(part) for part, _ in parts_of(list(texts), (), 20)]
    named = [len(part) for part, _ in parts_of(groups, ASKED[1:], 20, named="group_id")]
    assert sum(sizes) == sum(named) == 40
    assert max(sizes) == max(1, 20 // (1 + length // CHARACTERS_AN_ELEMENT))
    assert max(named) <= max(sizes)


def test_it_waits_for_each_part_and_yields_between() -> None:
    open_ones: list[Completion[Any]] = []

    def handle(request: OffsetFetchRequest, context: RequestContext) -> Completion[Any]:
        open_ones.append(Completion())
        return open_ones[-1]

    groups = [OffsetFetchRequestGroup(group_id=f"g{n}", topics=[]) for n in range(14)]
    steps = served(handle)(OffsetFetchRequest(groups=groups), LARGE)
    assert next(steps) is open_ones[0]
    open_ones[0].complete(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="first")]))
    assert next(steps) is None, "others have their turn"
    assert next(steps) is open_ones[1]
    open_ones[1].complete(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="second")]))
    assert [g.group_id for g in drained(steps).groups] == ["first", "second"]


def test_an_error_of_one_part_is_told_where_the_others_have_their_answers() -> None:
    def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        if any(group.group_id == "g9" for group in request.groups):
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        return fetched(request, context)

    groups = [OffsetFetchRequestGroup(group_id=f"g{n}", topics=[]) for n in range(14)]
    answer = drained(served(handle)(OffsetFetchRequest(groups=groups), LARGE))
    assert [g.error_code for g in answer.groups] == [0] * 7 + [ErrorCode.NOT_COORDINATOR] * 7


def test_an_error_at_the_top_of_a_part_is_the_wholes() -> None:
    def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED if request.groups[0].group_id == "g7" else ErrorCode.NONE
        return OffsetFetchResponse(error_code=code)

    groups = [OffsetFetchRequestGroup(group_id=f"g{n}", topics=[]) for n in range(14)]
    answer = drained(served(handle)(OffsetFetchRequest(groups=groups), LARGE))
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def nothing(_request: object, _code: int, _message: str | None) -> DeleteGroupsResponse:
    return DeleteGroupsResponse()


@given(st.lists(st.sampled_from("abcdefgh"), max_size=40), st.integers(2, 10))
@settings(max_examples=examples(200), deadline=None)
def test_equal_elements_come_in_the_same_part(names: list[str], chunk: int) -> None:
    """A handler that refuses what is named twice refuses it here too, and answers it once."""

    def handle(request: DeleteGroupsRequest, _context: RequestContext) -> DeleteGroupsResponse:
        group_names = request.groups_names
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=42 if group_names.count(name) > 1 else 0)
                for name in dict.fromkeys(group_names)
            ]
        )

    serve = in_parts(handle, nothing, ("groups_names",), ("results",), chunk=chunk, once=lambda name: name)
    expected = handle(DeleteGroupsRequest(groups_names=list(names)), LARGE)
    assert drained(serve(DeleteGroupsRequest(groups_names=list(names)), LARGE)) == expected


def test_no_array_at_all_goes_straight() -> None:
    def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        return OffsetFetchResponse(error_code=1)

    request = OffsetFetchRequest()
    request.groups = None  # type: ignore[assignment]
    assert drained(served(handle)(request, LARGE)).error_code == 1
    assert drained(served(handle)(OffsetFetchRequest(), LARGE)).error_code == 1


def test_long_lists_are_let_go_piece_by_piece() -> None:
    items = list(range(5_000))
    steps = let_go([items])
    next(steps)
    assert 4_000 < len(items) < 5_000
    drained(steps)
    assert not items


def test_a_small_request_goes_to_the_handler_at_once() -> None:
    def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        assert context is SMALL
        return fetched(request, context)

    groups = [OffsetFetchRequestGroup(group_id=f"g{n}", topics=[]) for n in range(14)]
    assert served(handle)(OffsetFetchRequest(groups=groups), SMALL).groups[13].group_id == "g13"


@pytest.mark.parametrize("named", ["group_id", ""])
def test_a_few_long_keys_take_steps_before_anything_is_done(named: str) -> None:
    """They are hashed, character by character."""

    def never(_request: object, _context: RequestContext) -> OffsetFetchResponse:
        raise AssertionError("it is served in steps")

    long = "x" * (KEY_CHARACTERS_AT_ONCE // 2 + 1)
    groups: list[Any] = [OffsetFetchRequestGroup(group_id=long, topics=[])] * 2 if named else [long] * 2
    serve = in_parts(never, refused, ("groups",), ("groups",), named=named)
    assert isinstance(serve(OffsetFetchRequest(groups=groups), SMALL), GeneratorType)


class Waited:
    """Steps that wait for completions, and how far they are."""

    def __init__(self, count: int) -> None:
        self.awaited: list[Completion[int]] = [Completion() for _ in range(count)]
        self.reached = 0

    def serve(self, request: Any, _context: RequestContext) -> Steps[Any]:
        yield None
        for completion in self.awaited:
            self.reached += 1
            yield completion
            completion.result()
        return request


def test_a_small_requests_steps_run_at_once_and_go_on_where_their_completion_comes() -> None:
    waited = Waited(500)
    waited.awaited[0].complete(0)
    answered = small_at_once(waited.serve)("answer", SMALL)
    assert waited.reached == 2, "what is done is not waited for"
    for number, completion in enumerate(waited.awaited[1:], 2):
        assert not answered.done
        completion.complete(0)
        assert waited.reached == min(number + 1, 500)
    assert answered.result() == "answer"
    assert small_at_once(Waited(0).serve)("answer", SMALL) == "answer"


def test_a_large_requests_steps_have_not_begun() -> None:
    waited = Waited(1)
    steps = small_at_once(waited.serve)("answer", LARGE)
    steps.close()
    assert not waited.reached


@pytest.mark.parametrize("fails", [True, False])
def test_steps_may_end_with_a_completion_of_their_answer(fails: bool) -> None:
    waited, answer = Waited(1), Completion[str]()
    answered = at_once(waited.serve(answer, SMALL))
    waited.awaited[0].complete(0)
    assert not answered.done
    error = BrokerError(ErrorCode.NOT_COORDINATOR)
    if fails:
        answer.fail(error)
    else:
        answer.complete("late")
    assert answered.error is (error if fails else None)
    assert fails or answered.result() == "late"


def test_an_error_after_a_wait_is_the_answers() -> None:
    waited = Waited(2)
    answered = at_once(waited.serve("answer", SMALL))
    waited.awaited[0].fail(BrokerError(ErrorCode.NOT_COORDINATOR))
    assert answered.error is waited.awaited[0].error
