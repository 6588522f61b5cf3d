"""Settings are refused before anything opens, with their path and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
        ({}, "archive.topics: give topics, or one topic_pattern"),
        ({**GOOD, "topic_pattern": "t.*"}, "and not both"),
        ({**GOOD, "decoders": []}, "archive.decoders: none given"),
        ({**GOOD, "max_offsets_per_trigger": -1}, "archive.max_offsets_per_trigger: negative"),
        ({**GOOD, "trigger_ms": -1}, "archive.trigger_ms: negative"),
        ({**GOOD, "reconnect_timeout_ms": -2}, "archive.reconnect_timeout_ms: allowed: -1"),
        ({**GOOD, "skwe_ms": 5}, "unknown field `skwe_ms`; allowed: skew_ms"),
        ({**GOOD, "reader": "magic"}, "allowed: auto, jvm, python, direct"),
        ({**GOOD, "row_group_rows": 0}, "archive.row_group_rows: allowed: 1 or more"),
        ({**GOOD, "root": "s3://bucket/x"}, "archive.checkpoint: is needed"),
        ({**GOOD, "name": "compact"}, "archive.name: 'compact'"),
        ({**GOOD, "name": "../x"}, "archive.name: '../x'"),
        ({**GOOD, "decimal": "39,2"}, "archive.decimal: '39,2'"),
        ({**GOOD, "decimal": "8,9"}, "archive.decimal: '8,9'"),
        ({**GOOD, "decimal": "many"}, "archive.decimal: 'many'"),
        ({**GOOD, "reader": "fast"}, "$.reader"),
        ({**GOOD, "raeder": "jvm"}, "raeder"),
        ({**GOOD, "trigger_ms": "soon"}, "$.trigger_ms"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(None, given)
    assert said in str(refused.value)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load(str(tmp_path / "nowhere.toml"), GOOD)
    broken = tmp_path / "broken.toml"
    broken.write_text("[archive\n")
    with pytest.raises(SettingsError, match=r"broken\.toml"):
        load(str(broken), GOOD)


def test_topics_may_be_named_later_and_the_rest_is_checked() -> None:
    assert load(None, {}, topics_needed=False).topics == ()
    with pytest.raises(SettingsError, match="trigger_ms: negative"):
        load(None, {"trigger_ms": -1}, topics_needed=False)


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
