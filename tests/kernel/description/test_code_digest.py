"""The digest of a distribution's code."""

from __future__ import annotations

import json
from importlib.metadata import PathDistribution
from pathlib import Path

from blumfeld.kernel.description.code_digest import code_digest, record_digest

WHEEL = """\
acme/__init__.py,sha256=aaa,3
acme/log.py,sha256=bbb,5
acme-1.0.dist-info/METADATA,sha256=ccc,7
acme-1.0.dist-info/RECORD,,
"""
INSTALLED = """\
../../../bin/acme,sha256=ddd,9
acme-1.0.dist-info/INSTALLER,sha256=eee,4
acme-1.0.dist-info/METADATA,sha256=ccc,7
acme-1.0.dist-info/RECORD,,
acme-1.0.pex-info/original-whl-info.json,sha256=fff,4
acme/__init__.py,sha256=aaa,3
acme/__pycache__/__init__.cpython-311.pyc,,
acme/log.py,sha256=bbb,5
"""


def test_a_wheel_and_what_it_was_installed_into_have_one_digest() -> None:
    # printf 'acme/__init__.py,sha256=aaa\nacme/log.py,sha256=bbb\n' | sha256sum
    known = "sha256:56dbca1b0b120439cc15ffc9a9e9f07999d01dc2384be0e76619313729f974e1"
    assert record_digest(WHEEL) == record_digest(INSTALLED) == known


def test_other_code_has_another_digest() -> None:
    assert record_digest(WHEEL.replace("bbb", "bbc")) != record_digest(WHEEL)
    assert record_digest(WHEEL.replace("log.py", "logs.py")) != record_digest(WHEEL)


def test_an_editable_distribution_has_none(tmp_path: Path) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    assert code_digest(PathDistribution(info)) is None
    (info / "RECORD").write_text(WHEEL)
    assert code_digest(PathDistribution(info)) == record_digest(WHEEL)
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///acme", "dir_info": {"editable": True}}))
    assert code_digest(PathDistribution(info)) is None
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///acme", "dir_info": {}}))
    assert code_digest(PathDistribution(info)) == record_digest(WHEEL)
