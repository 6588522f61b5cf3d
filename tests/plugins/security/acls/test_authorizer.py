"""The authorizer of a node: before it has an image, and as the image changes; and what a manifest may say of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.difference import difference
from blumfeld.metadata.image.records import image_of
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.context import Principal
from blumfeld.spi.hooks import CompositionRefused
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.steps import drained
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.acls.authorizer import AclAuthorizer, _let_go
from blumfeld_security.acls.composing import STANDARD_AUTHORIZER, acl_authorizer
from blumfeld_security.acls.rules import Acls, StandardRules, id_of
from blumfeld_security.acls.section import AclSection, record_of
from blumfeld_security.options import AclOptions
from tests.plugins.security.acls.test_rules import topic

ALICE, ROOT = Principal("a"), Principal("root")
READ = ("h", "Read", "Topic", "t")


class Told:
    """A consensus, and a trail that keeps verdicts."""

    def __init__(self) -> None:
        self.verdicts: list[tuple[Any, ...]] = []
        self.runtime = FakeRuntime()
        rules = StandardRules(frozenset({"User:root"}))
        self.authorizer = AclAuthorizer(rules, self, self.runtime.scheduler)  # type: ignore[arg-type]
        self.authorizer.follow(self)  # type: ignore[arg-type]

    def verdict(self, *said: Any) -> None:
        self.verdicts.append(said)

    def subscribe(self, listener: Any) -> None:
        self._listener = listener

    def step(self, image: Any, delta: ImageDelta) -> None:
        self._listener(image, delta)

    def tell(self, acls: Acls, **delta: Any) -> None:
        self.step(SimpleNamespace(section={"acls": acls}.__getitem__), ImageDelta(**delta))


def test_only_super_users_pass_before_there_is_an_image() -> None:
    authorizer = Told().authorizer
    assert not authorizer.authorize(ALICE, *READ)
    assert authorizer.authorize(ROOT, *READ)
    assert not authorizer.authorize_any(ALICE, "h", "Read", "Topic")
    assert authorizer.authorize_any(ROOT, "h", "Read", "Topic")


def test_the_acls_that_a_snapshot_replaces_are_freed_piece_by_piece() -> None:
    """All 100,000 at once would hold the loop for a tenth of a second."""

    def of(name: str) -> Acls:
        return Acls().updated((id_of(n), topic(f"{name}-{n}", "Read")) for n in range(5_000))

    node, old = Told(), of("old")
    pieces = old.pieces()
    assert sum(map(len, pieces)) >= 5_000
    assert sum(1 for _ in _let_go(pieces)) >= 5
    node.tell(old, first=True)
    node.tell(old, section_records={"acls": (record_of(id_of(1), topic("t", "Read")),)})
    assert not node.runtime.scheduler.waiting(Lane.METADATA), "a small change replaces nothing"
    records = tuple(record_of(id_of(n), topic(f"new-{n}", "Read")) for n in range(5_000))
    node.tell(of("new"), section_records={"acls": records})
    assert node.runtime.scheduler.waiting(Lane.METADATA) == 1
    node.runtime.run_turn()
    assert not node.runtime.scheduler.waiting(Lane.METADATA)


def test_a_step_with_acls_is_another_generation_and_others_are_not() -> None:
    node = Told()
    acls = Acls().updated([(id_of(1), topic("t", "Read"))])
    node.tell(Acls(), first=True)
    assert not node.authorizer.authorize(ALICE, *READ)
    loaded = node.authorizer.generation
    node.tell(acls, section_records={"scram": ()})
    assert node.authorizer.generation == loaded
    node.tell(acls, section_records={"acls": ()})
    assert node.authorizer.generation == loaded + 1
    assert node.authorizer.authorize(ALICE, *READ)


def test_rights_that_a_snapshot_lacks_have_ended() -> None:
    """The last ACL was removed while the node was behind: it takes over a snapshot without any."""
    kinds = SectionKinds([AclSection()])
    before = image_of("c", [record_of(id_of(1), topic("t", "Read"))], section_kinds=kinds)
    node = Told()
    node.step(before, before.first_delta())
    assert node.authorizer.authorize(ALICE, *READ)
    generation = node.authorizer.generation
    after = image_of("c", [], section_kinds=kinds)
    node.step(after, drained(difference(before, after)).delta)
    assert not node.authorizer.authorize(ALICE, *READ)
    assert node.authorizer.generation > generation


def test_a_quiet_question_is_no_event() -> None:
    node = Told()
    node.authorizer.authorize(ALICE, *READ, quiet=True)
    assert node.verdicts == []
    node.authorizer.authorize(ALICE, *READ)
    assert node.verdicts == [(False, "User:a", *READ)]


def composed(named: str = STANDARD_AUTHORIZER, **acls: Any) -> AclAuthorizer | None:
    composition: Any = SimpleNamespace(
        runtime=FakeRuntime(),
        config=BrokerConfig({"authorizer.class.name": named} if named else {}),
        options=SimpleNamespace(acls=AclOptions(**acls)),
    )
    return acl_authorizer(composition, SimpleNamespace())  # type: ignore[arg-type]


def test_acls_decide_where_the_manifest_names_kafkas_authorizer() -> None:
    assert composed("") is None
    assert composed(super_users=("User:admin",)) is not None


@pytest.mark.parametrize(
    ("named", "acls", "path"),
    [
        ("com.acme.Authorizer", {}, 'config."authorizer.class.name"'),
        ("", {"super_users": ("User:a",)}, "security.options.acls"),
        ("", {"allow_everyone_if_no_acl_found": True}, "security.options.acls"),
        (STANDARD_AUTHORIZER, {"super_users": ("User:a", "admin")}, "security.options.acls.super_users[1]"),
    ],
)
def test_what_would_have_no_effect_is_refused(named: str, acls: dict[str, Any], path: str) -> None:
    with pytest.raises(CompositionRefused) as refused:
        composed(named, **acls)
    assert refused.value.path == path
