"""Any node writes what a client changes there: ACLs at three nodes, with the security plug-in."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from blumfeld.kernel.composing.plan import Plan
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from blumfeld.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from blumfeld.wire.messages.metadata_records import AccessControlEntryRecord
from blumfeld_kit.simulation.secured.administrator import ANY_ACL
from tests.plugins.consensus_zk_compat.tree.test_merging import written
from tests.plugins.consensus_zk_compat.zk_nodes import ZkNodes

PATH = "/blumfeld/kafka-acl/Topic/t"
READ, ALLOW, TOPIC, LITERAL = 3, 3, 2, 3


class SecuredNodes(ZkNodes):
    """Everybody is a super user: the tests are of what is written."""

    def _plan(self, node_id: int, sections: dict[str, Any], **keys: str) -> Plan:
        acls = {"super_users": ["User:ANONYMOUS"]}
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        secured = sections | {"security": {"plugin": "security", "options": {"acls": acls}}}
        return super()._plan(node_id, secured, **keys, **{"authorizer.class.name": authorizer})

    async def allow(self, node_id: int, *users: str, resource_type: int = TOPIC) -> list[int]:
        """Create an ACL for each user at one node. Returns the error codes."""
        creations = [
            AclCreation(
                resource_type=resource_type,
                resource_name="t",
                resource_pattern_type=LITERAL,
                principal=user,
                host="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for user in users
        ]
        client = await self.connect(node_id)
        answer = await client.ask(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
        client.close()
        return [result.error_code for result in answer.results]

    async def revoke(self, node_id: int, user: str) -> int:
        """Delete a user's ACLs at one node. Returns how many there were."""
        wanted = replace(ANY_ACL, principal_filter=user)
        client = await self.connect(node_id)
        answer = await client.ask(DeleteAclsRequest(filters=[wanted]), 3, DeleteAclsResponse)
        client.close()
        (result,) = answer.filter_results
        assert result.error_code == 0
        return len(result.matching_acls)

    async def users(self, node_id: int) -> list[str]:
        """The principals of the ACLs that a node shows."""
        request = DescribeAclsRequest(**asdict(ANY_ACL))
        client = await self.connect(node_id)
        answer = await client.ask(request, 3, DescribeAclsResponse)
        client.close()
        assert answer.error_code == 0
        return sorted(acl.principal for resource in answer.resources for acl in resource.acls)

    def in_tree(self) -> bytes:
        return self.zookeeper.tree.get(PATH).data


def test_any_node_creates_and_deletes_acls_and_every_node_shows_them() -> None:
    nodes = SecuredNodes(3)

    async def story() -> None:
        await nodes.until(lambda: nodes.controller > 0)
        for node_id, user in enumerate(("User:a", "User:b", "User:c"), start=1):
            assert await nodes.allow(node_id, user) == [0]
            assert user in await nodes.users(node_id), "the node that answers has it"
            await nodes.pause(1_000)
        assert nodes.in_tree() == written("User:a", "User:b", "User:c")
        assert [await nodes.users(node_id) for node_id in (1, 2, 3)] == [["User:a", "User:b", "User:c"]] * 3
        assert await nodes.revoke(2, "User:a") == 1
        assert nodes.in_tree() == written("User:b", "User:c")
        await nodes.pause(1_000)
        for node_id in (1, 2, 3):
            kept = nodes.metadata(node_id)._node_image.image.kept.values()
            acls = [record for record in kept if isinstance(record, AccessControlEntryRecord)]
            assert sorted(acl.principal for acl in acls) == ["User:b", "User:c"]

    nodes.run(story())


def test_two_nodes_that_write_one_znode_at_once_lose_neither_acl() -> None:
    nodes = SecuredNodes(3)

    async def story() -> None:
        await nodes.until(lambda: nodes.controller > 0)
        tasks = [
            nodes.loop.create_task(nodes.allow(node_id, f"User:{node_id}.{number}"))
            for number in range(3)
            for node_id in (1, 2, 3)
        ]
        assert [await task for task in tasks] == [[0]] * 9
        await nodes.pause(1_000)
        wanted = sorted(f"User:{node_id}.{number}" for node_id in (1, 2, 3) for number in range(3))
        assert [await nodes.users(node_id) for node_id in (1, 2, 3)] == [wanted] * 3

    nodes.run(story())


def test_a_node_deletes_what_another_one_has_just_created() -> None:
    nodes = SecuredNodes(3)

    async def story() -> None:
        await nodes.until(lambda: nodes.controller > 0)
        for number in range(5):
            creator, deleter = 1 + number % 3, 1 + (number + 1) % 3
            assert await nodes.allow(creator, "User:a") == [0]
            assert await nodes.revoke(deleter, "User:a") == 1

    nodes.run(story())


def test_what_fails_without_a_zookeeper_is_answered() -> None:
    nodes = SecuredNodes(1)

    async def story() -> None:
        await nodes.until(lambda: nodes.controller > 0)
        nodes.zookeeper.stop_all()
        assert await nodes.allow(1, "User:a") in ([ErrorCode.NOT_CONTROLLER], [ErrorCode.REQUEST_TIMED_OUT])

    nodes.run(story())
