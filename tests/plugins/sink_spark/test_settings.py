"""Settings are refused before anything opens, with their path and what is allowed."""

from __future__ import annotations

import asyncio
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.describing import describe
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.settings import ArchiveSettings, forgone, load

GOOD: dict[str, Any] = {"topics": ["ticks"]}


def test_options_go_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "archive.toml"
    file.write_text('[archive]\ntopics = ["a", "b"]\ntrigger_ms = 5\n[archive.kafka]\n"client.id" = "x"\n')
    settings = load(str(file), {"trigger_ms": 7, "root": None})
    assert (settings.topics, settings.trigger_ms, settings.root) == (("a", "b"), 7, "archive")
    assert settings.kafka == {"client.id": "x"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "archive.topics: found neither topics nor topic_pattern; allowed: one of the two"),
        ({**GOOD, "topic_pattern": "t.*"}, "archive.topics: found topics and topic_pattern; allowed: one of"),
        ({**GOOD, "decoders": []}, "archive.decoders: found none; allowed: NAME"),
        ({**GOOD, "max_offsets_per_trigger": -1}, "archive.max_offsets_per_trigger: found -1; allowed: 0"),
        ({**GOOD, "trigger_ms": -1}, "archive.trigger_ms: found -1; allowed: 0 (at once) or more"),
        ({**GOOD, "reconnect_timeout_ms": -2}, "archive.reconnect_timeout_ms: found -2; allowed: -1"),
        ({**GOOD, "skwe_ms": 5}, "archive.skwe_ms: found an unknown key; allowed: bootstrap, "),
        ({**GOOD, "skwe_ms": 5}, "topics, trigger_ms (did you mean skew_ms?)"),
        (
            {**GOOD, "reader": "magic"},
            'archive.reader: found "magic"; allowed: auto, jvm, python, direct',
        ),
        ({**GOOD, "row_group_rows": 0}, "archive.row_group_rows: found 0; allowed: 1 or more"),
        ({**GOOD, "root": "s3://bucket/x"}, "archive.checkpoint: found none; allowed: a local folder"),
        ({**GOOD, "name": "compact"}, 'archive.name: found "compact"; allowed: letters'),
        ({**GOOD, "name": "../x"}, 'archive.name: found "../x"; allowed: letters'),
        ({**GOOD, "decimal": "39,2"}, 'archive.decimal: found "39,2"; allowed: PRECISION,SCALE'),
        ({**GOOD, "decimal": "8,9"}, 'archive.decimal: found "8,9"; allowed: PRECISION,SCALE'),
        ({**GOOD, "decimal": "many"}, 'archive.decimal: found "many"; allowed: PRECISION,SCALE'),
        ({**GOOD, "raeder": "jvm"}, "archive.raeder: found an unknown key"),
        ({**GOOD, "trigger_ms": "soon"}, 'archive.trigger_ms: found "soon"; allowed: an integer'),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(None, given)
    assert str(refused.value).startswith("command line: archive.")
    assert said in str(refused.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SettingsError) as refused:
        load(None, {"trigger_ms": -1, "row_group_rows": 0, "topics": ["a"], "decoders": []})
    assert [line.split()[2] for line in str(refused.value).splitlines()] == [
        "archive.decoders:",
        "archive.trigger_ms:",
        "archive.row_group_rows:",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[archive]\ntopics = "ticks"\n', 'archive.topics: found "ticks"; allowed: a list'),
        ("archive = 1\n", "archive: found 1; allowed: a table"),
        ('[archiv]\ntopics = ["ticks"]\n', "archiv: found an unknown key; allowed: archive, build, config, "),
        ("[archive\n", "found no TOML: "),
    ],
)
def test_a_file_is_refused_as_a_nodes_manifest_is(tmp_path: Path, text: str, said: str) -> None:
    """The kernel says the same of the same text, so one file may be for both."""
    file = tmp_path / "broker.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load(str(file), {})
    assert str(refused.value).startswith(f"{file}: {said}")
    with pytest.raises(ManifestError) as by_kernel:
        make_plan(read_manifest(text, str(file)), str(file))
    assert str(by_kernel.value) == str(refused.value)


def test_a_nodes_sections_may_stand_beside(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[node]\nid = 7\n[archive]\ntopics = ["ticks"]\n[config]\n"num.partitions" = 2\n')
    assert load(str(file), {}).topics == ("ticks",)
    plan = make_plan(read_manifest(file.read_text(), str(file)), str(file))
    [sink] = plan.of_role("sink")
    assert isinstance(sink.options, ArchiveSettings)
    assert "sink" in asyncio.run(describe(plan)).text.split()


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load(str(tmp_path / "nowhere.toml"), GOOD)
    broken = tmp_path / "broken.toml"
    broken.write_text("[archive\n")
    with pytest.raises(SettingsError, match=r"broken\.toml"):
        load(str(broken), GOOD)


def test_topics_may_be_named_later_and_the_rest_is_checked() -> None:
    assert load(None, {}, topics_needed=False).topics == ()
    with pytest.raises(SettingsError, match="trigger_ms: found -1"):
        load(None, {"trigger_ms": -1}, topics_needed=False)


def test_a_node_whose_manifest_has_the_section_needs_the_package() -> None:
    points = [point for point in entry_points(group=GROUP) if point.name != "sink_spark"]
    manifest = read_manifest('[archive]\ntopics = ["ticks"]\n', "m.toml")
    said = r"^m.toml: archive: found a section of the package blumfeld-archive, which isn't installed; allowed: pip"
    with pytest.raises(ManifestError, match=said):
        make_plan(manifest, "m.toml", Registry(points))


@pytest.mark.parametrize(
    ("decoders", "said"),
    [
        (("binance-usdm",), True),
        (("raw",), False),
        (("okx", "ticks=raw"), False),
        (("confluent:trades",), True),
    ],
)
def test_what_a_replay_will_need_is_said_before_anything_is_archived(
    decoders: tuple[str, ...], said: bool
) -> None:
    assert ("--decoder raw" in forgone(ArchiveSettings(topics=("t",), decoders=decoders))) is said
