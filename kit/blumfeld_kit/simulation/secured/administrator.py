"""An administrator: grants and revokes rights, and changes passwords."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import asdict, replace

from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
)
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from blumfeld.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from blumfeld.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from blumfeld.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes
from blumfeld_kit.simulation.secured.passwords import MECHANISM, USERS, Passwords, Token
from blumfeld_kit.simulation.secured.rights import (
    ALL,
    ALLOW,
    ALTER,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    Rule,
)
from blumfeld_kit.simulation.secured.verdicts import Moment, Verdicts

ACL_VERSION = 3
ANY = 1
PAUSE_S = 0.4
RULES_MAX = 24
"""ACLs beyond which the administrator takes away more than it gives."""
DENY_CHANCE = 0.2
RESOURCES: Sequence[tuple[int, str, int, Sequence[int]]] = (
    (TOPIC, "work", LITERAL, (ALL, READ, WRITE, DESCRIBE)),
    (TOPIC, "wares", LITERAL, (ALL, READ, WRITE, DESCRIBE)),
    (TOPIC, "wo", PREFIXED, (READ, WRITE, DESCRIBE)),
    (TOPIC, "w", PREFIXED, (READ, WRITE)),
    (TOPIC, "*", LITERAL, (READ, WRITE)),
    (GROUP, "*", LITERAL, (READ, DESCRIBE)),
    (CLUSTER, CLUSTER_NAME, LITERAL, (ALTER, DESCRIBE)),
)
"""(Type, name, pattern, operations)."""
ANY_ACL = DeleteAclsFilter(
    resource_type_filter=ANY,
    resource_name_filter=None,
    pattern_type_filter=ANY,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)


class Administrator:
    """An administrator. Run :meth:`run` as a task.

    :param hosts: addresses of users
    :param busy: called when a change was acknowledged, and other nodes may not have it yet
    """

    def __init__(
        self,
        routes: Routes,
        verdicts: Verdicts,
        passwords: Passwords,
        moment_of: Callable[[ClientConnection], Moment],
        hosts: Sequence[str],
        busy: Callable[[], None] = lambda: None,
    ) -> None:
        self._routes = routes
        self._verdicts = verdicts
        self._passwords = passwords
        self._moment_of = moment_of
        self._hosts = hosts
        self._busy = busy

    async def run(self, until_s: float) -> None:
        """Change one thing after the other until then."""
        loop, random = self._routes.network.loop, self._routes.random
        while loop.time() < until_s:
            try:
                if await self._act():
                    self._busy()
            except OSError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.random() * 2 * PAUSE_S)
        self._routes.close()

    async def _act(self) -> bool:
        """Do one thing. Return whether a change was acknowledged. :raises OSError: nobody knows"""
        random, newest = self._routes.random, self._verdicts.newest
        rules = () if newest is None else newest.rules
        drawn = random.random()
        if drawn < 0.1:
            return await self._describe()
        if drawn < 0.25:
            return await self._change_password()
        if drawn < 0.32:
            return await self._change_token()
        if drawn < 0.68 and len(rules) < RULES_MAX:
            return await self.create([self._any_rule() for _ in range(1 + random.randrange(3))])
        return await self.delete([self._any_filter() for _ in range(1 + random.randrange(2))])

    async def until_done(self, change: Callable[[], Awaitable[bool]]) -> None:
        """Repeat a change until it is acknowledged."""
        while True:
            try:
                if await change():
                    return
            except OSError:
                pass
            await asyncio.sleep(RETRY_S)

    async def create(self, rules: Sequence[Rule]) -> bool:
        """Create ACLs. Return whether they are there for sure. :raises OSError: nobody knows"""
        creations = [
            AclCreation(
                resource_type=rule.resource_type,
                resource_name=rule.name,
                resource_pattern_type=rule.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        ]
        connection = await self._routes.for_admin()
        since = self._change_begins(connection)
        answer = await connection.ask(CreateAclsRequest(creations=creations), ACL_VERSION, CreateAclsResponse)
        if not _are_done("CreateAcls", [result.error_code for result in answer.results]):
            return False
        self._verdicts.acknowledged(
            since, lambda state: set(rules) <= set(state.rules.values()), f"creation of {rules}"
        )
        return True

    async def delete(self, filters: Sequence[DeleteAclsFilter]) -> bool:
        """Delete the ACLs that a filter takes. Return whether they are gone for sure. :raises OSError: nobody knows"""
        connection = await self._routes.for_admin()
        since = self._change_begins(connection)
        answer = await connection.ask(
            DeleteAclsRequest(filters=list(filters)), ACL_VERSION, DeleteAclsResponse
        )
        if not _are_done("DeleteAcls", [result.error_code for result in answer.filter_results]):
            return False
        self._verdicts.acknowledged(
            since,
            lambda state: not any(_takes(each, rule) for each in filters for rule in state.rules.values()),
            f"deletion by {filters}",
        )
        return True

    async def set_password(self, user: str) -> bool:
        """Give a user the next password. Return whether it counts for sure. :raises OSError: nobody knows"""
        upsertion = self._passwords.next_upsertion(user)
        key = self._passwords.key(user, self._passwords.newest[user])
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        return await self._alter(request, user, key)

    async def _change_password(self) -> bool:
        random = self._routes.random
        user = USERS[random.randrange(len(USERS))]
        if random.random() < 0.7:
            return await self.set_password(user)
        deletion = ScramCredentialDeletion(name=user, mechanism=MECHANISM.number)
        return await self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]), user, None)

    async def _change_token(self) -> bool:
        """Give a user a delegation token, or take one back."""
        random, tokens = self._routes.random, list(self._passwords.tokens.values())
        if tokens and random.random() < 0.4:
            return await self._expire(tokens[random.randrange(len(tokens))])
        owner = USERS[random.randrange(len(USERS))]
        request = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=owner, max_lifetime_ms=-1
        )
        connection = await self._routes.for_admin()
        since = self._change_begins(connection)
        answer = await connection.ask(request, 3, CreateDelegationTokenResponse)
        if not _are_done("CreateDelegationToken", [answer.error_code]):
            return False
        token = Token(answer.token_id, owner, bytes(answer.hmac))
        self._passwords.tokens[token.token_id] = token
        self._verdicts.acknowledged(
            since, lambda state: token.token_id in state.tokens, f"a token of {owner}"
        )
        return True

    async def _expire(self, token: Token) -> bool:
        connection = await self._routes.for_admin()
        since = self._change_begins(connection)
        request = ExpireDelegationTokenRequest(hmac=token.secret, expiry_time_period_ms=-1)
        answer = await connection.ask(request, 2, ExpireDelegationTokenResponse)
        is_gone = answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        if is_gone or not _are_done("ExpireDelegationToken", [answer.error_code]):
            return False
        self._verdicts.acknowledged(
            since, lambda state: token.token_id not in state.tokens, f"an end of {token}"
        )
        return True

    async def _alter(self, request: AlterUserScramCredentialsRequest, user: str, key: bytes | None) -> bool:
        connection = await self._routes.for_admin()
        since = self._change_begins(connection)
        answer = await connection.ask(request, 0, AlterUserScramCredentialsResponse)
        [result] = answer.results
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND and key is None:
            return False
        if not _are_done("AlterUserScramCredentials", [result.error_code]):
            return False
        self._verdicts.acknowledged(
            since, lambda state: state.keys.get(user) == key, f"a credential of {user}"
        )
        return True

    async def _describe(self) -> bool:
        connection = await self._routes.any_broker()
        since = self._moment_of(connection)
        request = DescribeAclsRequest(**asdict(ANY_ACL))
        answer = await connection.ask(request, ACL_VERSION, DescribeAclsResponse)
        if _are_done("DescribeAcls", [answer.error_code]):
            self._verdicts.description(since, _described(answer))
        return False

    def _change_begins(self, connection: ClientConnection) -> Moment:
        return self._verdicts.change_begins(self._moment_of(connection).machine)

    def _any_rule(self) -> Rule:
        random = self._routes.random
        resource_type, name, pattern, operations = RESOURCES[random.randrange(len(RESOURCES))]
        everybody = random.random() < 0.15
        principal = "*" if everybody else USERS[random.randrange(len(USERS))]
        host = self._hosts[random.randrange(len(self._hosts))] if random.random() < 0.2 else "*"
        permission = DENY if random.random() < DENY_CHANCE else ALLOW
        operation = operations[random.randrange(len(operations))]
        return Rule(resource_type, name, pattern, f"User:{principal}", host, operation, permission)

    def _any_filter(self) -> DeleteAclsFilter:
        """Return a filter that takes one ACL, those of a user, or those on a resource."""
        random, newest = self._routes.random, self._verdicts.newest
        rules = [] if newest is None else list(newest.rules.values())
        rule = rules[random.randrange(len(rules))] if rules else self._any_rule()
        drawn = random.random()
        if drawn < 0.6:
            return DeleteAclsFilter(
                resource_type_filter=rule.resource_type,
                resource_name_filter=rule.name,
                pattern_type_filter=rule.pattern,
                principal_filter=rule.principal,
                host_filter=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        by_type = replace(ANY_ACL, resource_type_filter=rule.resource_type)
        if drawn < 0.8:
            return replace(by_type, principal_filter=rule.principal, permission_type=rule.permission)
        return replace(
            by_type,
            resource_name_filter=rule.name,
            pattern_type_filter=rule.pattern,
            operation=rule.operation,
        )


def _are_done(request: str, codes: Sequence[int]) -> bool:
    """Whether each part of a request succeeded. :raises ViolationError: a part can never succeed"""
    for code in codes:
        if code and not is_retriable(code):
            raise ViolationError(f"{request} of an administrator: {ErrorCode(code).name}")
    return not any(codes)


def _takes(acl_filter: DeleteAclsFilter, rule: Rule) -> bool:
    pairs = (
        (acl_filter.resource_type_filter, rule.resource_type),
        (acl_filter.pattern_type_filter, rule.pattern),
        (acl_filter.operation, rule.operation),
        (acl_filter.permission_type, rule.permission),
    )
    names = (
        (acl_filter.resource_name_filter, rule.name),
        (acl_filter.principal_filter, rule.principal),
        (acl_filter.host_filter, rule.host),
    )
    return all(wanted in (ANY, value) for wanted, value in pairs) and all(
        wanted in (None, value) for wanted, value in names
    )


def _described(answer: DescribeAclsResponse) -> list[Rule]:
    return [
        Rule(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]
