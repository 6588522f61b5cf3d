"""Requests with many users hold nobody up, whether their client has rights or not."""

from __future__ import annotations

from types import GeneratorType, SimpleNamespace
from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.steps import CHUNK_ELEMENTS
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    RequestEntryData,
)
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from blumfeld.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from blumfeld_quotas.alter import AlterQuotas
from blumfeld_quotas.handlers import handlers as quota_handlers
from blumfeld_security.scram.credentials import Credentials
from blumfeld_security.scram.handlers import scram_handlers

USERS = [f"user-{number}" for number in range(5_000)]
REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def handler(key: int) -> ApiHandler:
    section = SimpleNamespace(section=lambda _: Credentials({}))
    metadata: Any = SimpleNamespace(image=section, controller=Controller(2, 5))
    composition: Any = SimpleNamespace(metadata=metadata, node_id=1)
    [found] = [h for h in (*scram_handlers(metadata, 1), *quota_handlers(composition)) if h.key == key]
    return found


def many_steps(made: Any) -> Any:
    assert isinstance(made, GeneratorType)
    turns = 0
    while True:
        try:
            next(made)
        except StopIteration as end:
            assert turns >= len(USERS) // 512
            return end.value
        turns += 1


def test_a_refusal_of_many_users_is_made_in_steps() -> None:
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name=u) for u in USERS])
    answer = many_steps(handler(51).error_response(request, REFUSED, None))
    assert [(each.user, each.error_code) for each in answer.results] == [(u, REFUSED) for u in USERS]


def test_a_refusal_of_many_quotas_is_made_in_steps() -> None:
    request = AlterClientQuotasRequest(entries=[RequestEntryData() for _ in USERS])
    answer = many_steps(handler(49).error_response(request, REFUSED, None))
    assert [each.error_code for each in answer.entries] == [REFUSED] * len(USERS)


def test_many_users_are_described_in_steps() -> None:
    context: Any = SimpleNamespace(is_large=True, authorize=lambda *_: True)
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=u) for u in USERS])
    assert len(many_steps(handler(50).handle(request, context)).results) == len(USERS)


def test_no_request_changes_more_credentials_than_the_controller_decides_on_in_a_turn() -> None:
    """65,000 of them would hold its loop for half a second."""
    context: Any = SimpleNamespace(is_large=True, authorize=lambda *_: True)
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name=u) for u in USERS])
    with pytest.raises(BrokerError) as refused:
        handler(51).handle(request, context)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert str(refused.value).endswith("5000 credentials in one request; allowed: 1000")


def test_many_quotas_are_decided_part_by_part() -> None:
    asked: list[list[str]] = []

    def submit(request: AlterClientQuotasRequest, *_: Any, **__: Any) -> Completion[Any]:
        asked.append([str(entry.entity[0].entity_name) for entry in request.entries])
        return Completion.of(AlterQuotas().decide(image, request, None).response)  # type: ignore[arg-type]

    image: Any = SimpleNamespace(section=lambda _: {})
    metadata = SimpleNamespace(image=image, submit=submit)
    [alter] = [h for h in quota_handlers(SimpleNamespace(metadata=metadata, node_id=1)) if h.key == 49]
    names = [*USERS, USERS[0]]
    entries = [RequestEntryData(entity=[EntityData(entity_type="user", entity_name=name)]) for name in names]
    context: Any = SimpleNamespace(
        listener=SimpleNamespace(kind="broker"),
        is_large=True,
        authorize=lambda *_: True,
        principal=None,
        peer_host="",
        client_id="",
    )
    answer = many_steps(alter.handle(AlterClientQuotasRequest(entries=entries), context))
    assert max(map(len, asked)) <= CHUNK_ELEMENTS
    told = sorted((entry.entity[0].entity_name, entry.error_code) for entry in answer.entries)
    twice = (USERS[0], int(ErrorCode.INVALID_REQUEST))
    assert told == sorted([*((name, 0) for name in USERS), twice])


@pytest.mark.parametrize("change", [AlterClientQuotasRequest(), AlterUserScramCredentialsRequest()])
def test_a_controller_listener_of_another_node_names_no_controller(change: Any) -> None:
    context: Any = SimpleNamespace(
        listener=SimpleNamespace(kind="controller"),
        is_large=False,
        authorize=lambda *_: True,
        principal=None,
        peer_host="",
        client_id="",
    )
    with pytest.raises(BrokerError) as refused:
        handler(change.meta.key).handle(change, context)
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
