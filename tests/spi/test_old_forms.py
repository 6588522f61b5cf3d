"""Handlers in the form before ``ApiHandler.handle`` gave steps are served until 0.2.0, with a warning."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext, TakesSteps
from blumfeld.spi.old_forms import by_elements, check_keys, error_steps
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.broker.harness import BrokerHarness


def leaving(handle: Any, **old: Any) -> ApiHandler:
    """A handler of LeaveGroup."""
    return ApiHandler(
        key=13,
        min_version=4,
        max_version=5,
        handle=handle,
        error_response=lambda request, code, message: LeaveGroupResponse(error_code=code),
        **old,
    )


def asked(members: int) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=f"{n}") for n in range(members)])


@pytest.mark.parametrize(("members", "way"), [(1, "handle"), (2, "steps"), (2_000, "steps")])
def test_a_handler_with_in_steps_is_served(members: int, way: str) -> None:
    """Large requests, and small ones for which ``handle`` says so, are served in steps."""
    ways: list[str] = []

    def handle(request: LeaveGroupRequest, _context: RequestContext) -> LeaveGroupResponse:
        if len(request.members) > 1:
            raise TakesSteps
        ways.append("handle")
        return LeaveGroupResponse()

    def in_steps(_request: LeaveGroupRequest, _context: RequestContext) -> Steps[LeaveGroupResponse]:
        yield None
        ways.append("steps")
        return LeaveGroupResponse()

    with pytest.warns(DeprecationWarning, match="Blumfeld 0.2.0 will not have in_steps"):
        handler = leaving(handle, in_steps=in_steps)
    harness = BrokerHarness()
    harness.broker.register([handler])
    assert harness.ask(asked(members), 4) == LeaveGroupResponse()
    assert ways == [way]


def test_a_handler_with_error_in_steps_tells_errors_by_it() -> None:
    def handle(_request: LeaveGroupRequest, _context: RequestContext) -> LeaveGroupResponse:
        raise RuntimeError("a defect")

    def error_in_steps(_request: Any, code: int, _message: str | None) -> Steps[LeaveGroupResponse]:
        yield None
        return LeaveGroupResponse(error_code=code)

    with pytest.warns(DeprecationWarning, match="error_in_steps"):
        handler = leaving(handle, error_in_steps=error_in_steps)
    harness = BrokerHarness()
    harness.broker.register([handler])
    for members in (1, 2_000):
        assert harness.ask(asked(members), 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_old_functions_serve_a_handler_by_its_elements() -> None:
    sizes: list[int] = []

    def handle(request: LeaveGroupRequest, _context: RequestContext) -> LeaveGroupResponse:
        check_keys(member.member_id for member in request.members)
        sizes.append(len(request.members))
        return LeaveGroupResponse(error_code=len(sizes))

    part = leaving(handle)
    with pytest.warns(DeprecationWarning, match="in_steps"):
        handler = leaving(handle, in_steps=by_elements(lambda: part, ("members",), ("members",)))
    harness = BrokerHarness()
    harness.broker.register([handler])
    assert harness.ask(asked(2_000), 4).error_code == 1, "the error of the first part"
    assert sum(sizes) == 2_000
    assert len(sizes) > 10
    steps = error_steps(part, asked(1), 7, None)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == LeaveGroupResponse(error_code=7)
    with pytest.raises(TakesSteps):
        check_keys(["x" * 100_000])
