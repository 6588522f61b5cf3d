"""Starts of Spark that fail: the error names the cause, and no JVM stays."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.runtime.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def _settings(**spark: str) -> ArchiveSettings:
    keys = {f"spark.{name.replace('_', '.')}": value for name, value in spark.items()}
    return ArchiveSettings(topics=("any",), master="local[1]", spark={"spark.driver.memory": "512m", **keys})


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(ArchiveError, match=r"BindException: .*Cannot assign requested address"):
        Session(_settings(driver_bindAddress="192.0.2.1"), None)


def test_a_setting_that_spark_refuses_is_named() -> None:
    with pytest.raises(ArchiveError, match="Executor memory must be a positive number"):
        Session(_settings(executor_memory="12potatoes"), None)


@pytest.mark.parametrize("moment", ["while it starts", "while Spark starts in it"])
def test_a_jvm_that_is_killed_is_told_as_such(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    from pyspark import SparkContext, java_gateway

    def kill(session: Session) -> None:
        while session._process is None:
            time.sleep(0.01)
        os.kill(session._process.pid, signal.SIGKILL)

    if moment == "while it starts":
        before: Callable[..., object] = java_gateway.launch_gateway

        def launched(*given: object) -> object:
            threading.Thread(target=kill, args=[sessions[0]]).start()
            return before(*given)

        monkeypatch.setattr(java_gateway, "launch_gateway", launched)
    else:
        monkeypatch.setattr(SparkContext, "_do_init", lambda *given, **more: kill(sessions[0]))
    sessions: list[Session] = []
    made = Session._start

    def start(self: Session, *given: object) -> object:
        sessions.append(self)
        return made(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "_start", start)
    with pytest.raises(ArchiveError, match=r"Spark's JVM \(process \d+\) ended by signal SIGKILL"):
        Session(_settings(), None)
