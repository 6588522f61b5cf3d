"""A consensus declares what it lacks: shown with the reason if it is so, and an error if it isn't."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from blumfeld_kit import ConsensusContract
from blumfeld_kit.consensus_contract.kit import Ability


class Declares(ConsensusContract):
    """A consensus without a quorum. No test of it is collected."""

    __test__ = False
    lacks: ClassVar[Mapping[str, str]] = {"quorum": "another system has it"}


def works() -> None:
    """The ability is there."""


def fails() -> None:
    raise AssertionError("no quorum")


def test_what_is_declared_and_lacking_is_not_applicable_with_its_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="not applicable: quorum: another system has it"):
        Declares().try_ability(Ability.QUORUM, fails)


def test_a_declaration_that_is_not_needed_is_red() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"declares .quorum..*take the declaration away"):
        Declares().try_ability(Ability.QUORUM, works)


def test_what_is_lacking_and_not_declared_is_red() -> None:
    Declares().try_ability(Ability.FEATURES, works)
    with pytest.raises(AssertionError, match="no quorum"):
        Declares().try_ability(Ability.FEATURES, fails)


def test_a_declaration_of_something_unknown_names_what_is_allowed() -> None:
    class Mistaken(Declares):
        lacks: ClassVar[Mapping[str, str]] = {"qorum": "a typing error"}

    with pytest.raises(AssertionError, match=r"no ability .qorum.; allowed are forwarding, quorum"):
        Mistaken().check_declarations()
