"""A broker that still reads a tree, as the controller of the quorum has it."""

from __future__ import annotations

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.brokers.migration import MigrationState, brokers_of_tree, ending, migration_state
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import Moment
from blumfeld.metadata.image.records import image_of
from blumfeld.wire.messages.metadata_records import RegisterBrokerRecord, ZkMigrationStateRecord
from blumfeld.wire.schema import Message


def of_tree(broker_id: int, *, reads: bool = True) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id, broker_epoch=7, fenced=False, is_migrating_zk_broker=reads, rack=None
    )


def silent(controller: Controller) -> set[int]:
    """The brokers that are fenced when no broker is heard from."""
    fenced = set()
    for now_ms in range(0, 30_000, 500):  # a controller that looks seldom was paused itself
        found = controller.fence_expired(float(now_ms))
        if found is not None:
            fenced.add(found[0])
            controller.sessions.gone(found[0])
    return fenced


def state(value: int) -> Message:
    return ZkMigrationStateRecord(zk_migration_state=value)


def test_a_migration_ends_when_no_broker_reads_the_tree_any_more() -> None:
    under_way = image_of("c", [state(2), of_tree(1), of_tree(2, reads=False)])
    assert migration_state(under_way) is MigrationState.MIGRATION
    assert brokers_of_tree(under_way) == [1]
    assert ending(under_way) == []
    assert ending(image_of("c", [state(2), of_tree(1, reads=False)])) == [state(3)]


def test_a_migration_that_is_over_or_never_was_ends_nothing() -> None:
    assert ending(image_of("c", [])) == []
    assert ending(image_of("c", [state(3)])) == []
    assert migration_state(image_of("c", [state(99)])) is MigrationState.NONE


def test_a_broker_that_reads_the_tree_is_fenced_by_no_silence_and_no_closed_port() -> None:
    """It sends no heartbeats, so nothing would unfence it: its life is its znode."""
    controller = Controller(image_of("c", [state(2), of_tree(1), of_tree(2, reads=False)]), BrokerConfig({}))
    controller.take_over(0.0, None)
    moment = Moment(now_ms=0.0, wall_ms=0, next_offset=1, new_uuid=lambda: bytes(16), new_secret=bytes)
    assert controller.fence_dead(1, 7, moment).records == []
    assert controller.fence_dead(2, 7, moment).records != []
    assert silent(controller) == {2}


def test_a_broker_that_goes_back_to_the_tree_keeps_no_session() -> None:
    controller = Controller(image_of("c", [state(2), of_tree(1, reads=False)]), BrokerConfig({}))
    controller.take_over(0.0, None)
    controller.replay([of_tree(1)], 1, 1)
    assert silent(controller) == set()
