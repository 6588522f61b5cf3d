"""One section of a manifest, read by a program of its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.sections import SECTIONS, read_section


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topics: tuple[str, ...] = ()
    limits: dict[str, int] = {}


def read(text: str, **laid_over: Any) -> Options:
    return read_section(text, "archive", Options, "file.toml", laid_over)


def test_the_sections_are_the_manifests() -> None:
    assert sorted(Manifest.__struct_fields__) == sorted(SECTIONS)


def test_values_of_the_command_line_are_laid_over() -> None:
    assert read("") == Options()
    assert read('[archive]\ntopics = ["a"]\nlimits = {x = 1}', topics=["b"]) == Options(("b",), {"x": 1})


@pytest.mark.parametrize(
    ("text", "laid_over", "said"),
    [
        ("[archive]\ntopics = 1", {}, "file.toml: archive.topics: found 1; allowed: a list"),
        ("[archive]", {"topics": 2}, "file.toml: archive.topics: found 2; allowed: a list"),
        (
            "[archive]\ntopcs = 1\nlimit = 2",
            {},
            "file.toml: archive.topcs: found an unknown key; allowed: limits, topics (did you mean topics?)\n"
            "file.toml: archive.limit: found an unknown key; allowed: limits, topics (did you mean limits?)",
        ),
        ("archive = 3", {}, "file.toml: archive: found 3; allowed: a table"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(text: str, laid_over: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError) as refused:
        read(text, **laid_over)
    assert str(refused.value) == said


def test_a_misspelled_section_is_refused_and_another_programs_is_not_looked_into() -> None:
    assert read("[network]\nno_such_key = 1") == Options()
    with pytest.raises(ManifestError, match=r"^file.toml: archvie: .* \(did you mean archive\?\)$"):
        read("[archvie]")
