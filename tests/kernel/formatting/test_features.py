"""The feature levels that a new cluster finalizes."""

from __future__ import annotations

import pytest

from blumfeld.kernel.formatting.features import chosen_levels
from blumfeld.plugging.errors import ManifestError
from blumfeld.spi.hooks import Feature

FEATURES = {
    name: Feature(name, low, high, high)
    for name, low, high in (("metadata.version", 30, 30), ("zeta.version", 0, 2), ("group.version", 0, 1))
}
DEFAULTS = {"metadata.version": 30, "group.version": 1, "zeta.version": 2}


def levels(*given: str, release: str | None = None, kraft_version: int = 0) -> dict[str, int]:
    return chosen_levels(FEATURES, given, release, kraft_version=kraft_version)


def test_defaults_stand_in_the_order_of_kafkas_records() -> None:
    assert list(levels().items()) == list(DEFAULTS.items())
    assert levels(release="4.3-IV0") == levels(release="4.3") == DEFAULTS


def test_a_given_level_stands_in_place_of_the_default() -> None:
    assert list(levels("zeta.version=1").items()) == [*list(DEFAULTS.items())[:2], ("zeta.version", 1)]
    assert levels("group.version=0") == {"metadata.version": 30, "zeta.version": 2}
    assert levels("metadata.version=30") == DEFAULTS


def test_kraft_version_says_what_the_quorum_is() -> None:
    assert levels("kraft.version=1", kraft_version=1) == DEFAULTS
    assert levels("kraft.version=0") == DEFAULTS
    with pytest.raises(ManifestError, match=r"kraft.version: found 1; allowed: 0 for a static quorum"):
        levels("kraft.version=1")
    with pytest.raises(ManifestError, match=r"kraft.version: found 0; allowed: 1 with --standalone"):
        levels("kraft.version=0", kraft_version=1)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("group.version", "found group.version; allowed: NAME=LEVEL"),
        ("group.version=x", "allowed: NAME=LEVEL"),
        ("group.version=2", "group.version: found 2; allowed: 0 to 1"),
        ("metadata.version=29", "metadata.version: found 29; allowed: 30"),
        ("metadata.version=0", "metadata.version: found 0; allowed: 30"),
        (
            "nope=1",
            "nope: found a feature that this build doesn't have; allowed: group.version, kraft.version, ",
        ),
    ],
)
def test_a_level_that_cannot_be(given: str, complaint: str) -> None:
    with pytest.raises(ManifestError) as caught:
        levels(given)
    assert complaint in str(caught.value)


def test_another_release_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"found 4.2-IV1; allowed: 4.3-IV0 or 4.3: this build writes"):
        levels(release="4.2-IV1")
    with pytest.raises(ManifestError, match="a level beside --release-version"):
        levels("metadata.version=30", release="4.3")
