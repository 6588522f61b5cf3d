"""The pytest plug-in: a broker for a test, for a module or for the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest


@pytest.fixture(scope="session")
def blumfeld_options():
    return {"config": {"num.partitions": 5}}
"""
SHARED_SUITE = """
import pytest

pytestmark = pytest.mark.blumfeld(config={"num.partitions": 2})
seen = set()


@pytest.mark.parametrize("nth", [0, 1])
def test_a_module_and_a_run_have_one_broker(blumfeld_module, blumfeld_session, blumfeld, nth):
    seen.add((blumfeld_module.bootstrap_servers, blumfeld_session.bootstrap_servers))
    assert len(seen) == 1
    assert blumfeld_module is not blumfeld is not blumfeld_session
    brokers = (blumfeld, blumfeld_module, blumfeld_session)
    assert [broker.node.plan.config.int("num.partitions") for broker in brokers] == [2, 2, 5]
"""


def test_a_broker_may_be_shared_by_a_module_or_by_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shared.py").write_text(SHARED_SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
