"""The campaign of builds: what it lays over a manifest, what it takes for wrong, and its table. Nothing is built."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from blumfeld.kernel.manifest.sections import read_manifest
from campaigns import artefacts, builds
from campaigns.builds import (
    BUILDS,
    HEAD,
    Build,
    Figures,
    Served,
    measured,
    package_of,
    page_text,
    rss_bytes,
    table,
)
from campaigns.clients.kcat import Kcat
from campaigns.clients.verdicts import CheckFailed
from campaigns.figures import BEGIN, END

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "builds.md"
MANIFESTS = sorted(path.stem for path in BUILDS.glob("*.toml"))
PORT = 20_000


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of a password takes long."""
    monkeypatch.setattr(builds, "make_users", lambda _: None)


def build_of(name: str, folder: Path) -> Build:
    return Build(BUILDS / f"{name}.toml", folder)


def laid_over(build: Build, folder: Path, *, one_node: bool) -> Any:
    """The manifest as a run of the build has it."""
    settings = list(build._settings(folder, PORT, one_node))
    return read_manifest(build.path.read_text(), build.name, overrides=settings)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_run_keeps_its_data_in_its_folder(name: str, tmp_path: Path) -> None:
    """And its ports beside the one that was free for it."""
    build = build_of(name, tmp_path)
    manifest = laid_over(build, tmp_path, one_node=False)
    places = [*manifest.node.directories]
    places += [str(manifest.storage.options.get("store", f"file://{tmp_path}")).removeprefix("file://")]
    places += [str(manifest.security.options.get(key, tmp_path)) for key in ("plain_users", "peer_login")]
    assert all(place.startswith(str(tmp_path)) for place in places)
    assert manifest.metrics.bind in (None, f"127.0.0.1:{PORT + 5}")
    assert manifest.nodes == build.manifest.nodes


def test_one_node_of_several_has_internal_topics_of_one_replica(tmp_path: Path) -> None:
    build = build_of("everything", tmp_path)
    assert build.manifest.nodes > 1
    manifest = laid_over(build, tmp_path, one_node=True)
    assert manifest.nodes == 1
    assert {manifest.config[key] for key in builds.ONE_REPLICA} == {1}
    assert build.access.protocol == "SASL_PLAINTEXT", "its clients log in"


def test_what_a_build_does_not_name_is_left_out(tmp_path: Path) -> None:
    build = build_of("smallest", tmp_path)
    named = {f"blumfeld_{name}" for name in build.figures.plugins}
    assert named.isdisjoint(build.left_out)
    assert "blumfeld_net_uring" in build.left_out


def test_the_package_of_a_requirement_has_no_version() -> None:
    assert package_of("acme-storage-flat[fast] >=1,<2") == "acme_storage_flat"


# What clients get


class FakeClient:
    """A client that reads what it wrote, or ``lost`` less."""

    protocol = "classic"

    def __init__(self, name: str, lost: int = 0) -> None:
        self.name, self.lost = name, lost
        self.samples: Sequence[Any] = ()

    def produce(self, topic: str, samples: Sequence[Any]) -> None:
        self.samples = samples

    def consume(self, topic: str, group: str, count: int) -> Sequence[Any]:
        return self.samples[self.lost :]


def test_a_client_that_lacks_a_record_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_of("smallest", tmp_path)
    monkeypatch.setattr(builds, "ConfluentKafka", lambda *_: FakeClient("librdkafka"))
    monkeypatch.setattr(builds, "Kcat", lambda _: FakeClient("kcat"))
    build.use("127.0.0.1:1", 0)
    monkeypatch.setattr(builds, "Kcat", lambda _: FakeClient("kcat", lost=1))
    with pytest.raises(CheckFailed, match="kcat"):
        build.use("127.0.0.1:1", 0)


# What a node loads


def looked_at(build: Build, log: str, importable: Sequence[str] = ()) -> list[str]:
    """What is wrong with a build whose node printed this."""
    path = build.folder / "log"
    path.write_text(log)

    @contextmanager
    def running(*_: object, one_node: bool) -> Iterator[Any]:
        assert one_node
        assert os.environ["PEX_INTERPRETER"] == "1", "its own interpreter runs, not its launcher"
        yield SimpleNamespace(address="127.0.0.1:1", log_path=path)

    fakes: dict[str, Any] = {
        "running": running,
        "use": lambda *_: None,
        "_asked": lambda *_: " ".join(importable),
    }
    vars(build).update(fakes)
    build.look()
    assert "PEX_INTERPRETER" not in os.environ
    return build.figures.wrong


def modules_of(build: Build) -> list[str]:
    return [f"blumfeld_{name}" for name in build.figures.plugins]


def test_a_node_that_loads_what_it_names_is_right(tmp_path: Path) -> None:
    build = build_of("smallest", tmp_path)
    assert looked_at(build, f"ready on\nmodules: sys {' '.join(modules_of(build))}\n") == []
    assert build.figures.modules == 1 + len(build.figures.plugins)


def test_modules_that_are_too_many_or_too_few_are_told(tmp_path: Path) -> None:
    build = build_of("smallest", tmp_path)
    missing, *loaded = modules_of(build)
    wrong = looked_at(build, f"modules: {' '.join(loaded)} typer blumfeld_net_uring\n", ["blumfeld_quotas"])
    assert wrong == [
        "blumfeld_quotas is left out, and can be imported",
        "blumfeld_net_uring is loaded",
        "typer is loaded",
        f"{missing} is named, and wasn't loaded",
    ]


def test_a_strangers_package_must_be_loaded(tmp_path: Path) -> None:
    build = build_of("strangers-storage", tmp_path)
    wrong = looked_at(build, f"modules: {' '.join(modules_of(build))}\n")
    strangers = sorted(package_of(line) for line in build.manifest.build.requires if line.startswith("acme"))
    assert wrong == [f"{name} is named, and wasn't loaded" for name in strangers] != []


def test_a_node_that_tells_no_modules_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="without a list of its modules"):
        looked_at(build_of("smallest", tmp_path), "ready on\n")


# The run of a node


class FakeServed:
    """A node that ends with ``status``."""

    status: int | None = 0
    start_timeout_s = 1.0
    trace = ""
    made: list[tuple[Any, ...]]

    def __init__(self, *made: Any) -> None:
        FakeServed.made.append(made)

    def start(self) -> None: ...

    def stop(self) -> int | None:
        return self.status

    def traceback(self) -> str:
        return self.trace

    def printed(self) -> str:
        return "its last words"


@pytest.mark.parametrize(
    ("status", "trace", "is_right"), [(0, "", True), (1, "", False), (0, "Traceback", False)]
)
def test_a_node_must_end_in_good_order(
    status: int, trace: str, is_right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_of("everything", tmp_path)
    monkeypatch.setattr(builds, "Served", FakeServed)
    monkeypatch.setattr(FakeServed, "made", [], raising=False)
    monkeypatch.setattr(FakeServed, "status", status)
    monkeypatch.setattr(FakeServed, "trace", trace)
    for one_node in (False, True):
        with build.running(["broker.pyz"], one_node=one_node):
            pass
    assert [made[-1] for made in FakeServed.made] == [3, 1], "nodes that must serve"
    words = FakeServed.made[0][1]
    assert words[:3] == ["broker.pyz", "run", "--listen"]
    assert build.figures.wrong == ([] if is_right else [f"ended with {status}: its last words"] * 2)


def test_several_nodes_are_ready_when_all_serve(tmp_path: Path) -> None:
    log = tmp_path / "log"
    one, three = (Served("s", ["true"], log, ("127.0.0.1", 1), count) for count in (1, 3))
    log.write_text("node 2 is ready on 127.0.0.1:9102\n")
    assert (one.answers(), three.answers()) == (True, False)
    log.write_text("all 3 nodes serve\n")
    assert (one.answers(), three.answers()) == (False, True)


def test_the_memory_of_a_node_is_that_of_its_processes() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        both, alone = rss_bytes(parent.pid), rss_bytes(int(child))
        parent.communicate(b"\n")
    assert both > 1.5 * alone > 1 << 20
    assert rss_bytes(parent.pid) == 0, "it has gone"


# The result


def steps(monkeypatch: pytest.MonkeyPatch, **replaced: Callable[..., None]) -> None:
    for name in ("build", "measure", "look"):
        monkeypatch.setattr(Build, name, replaced.get(name, lambda *_: None))


@pytest.mark.parametrize(("size", "count"), [(12_000_000, 0), (12_000_001, 1)])
def test_the_smallest_build_has_a_limit(
    size: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(monkeypatch, build=lambda build: setattr(build.figures, "bytes", size))
    assert len(measured(BUILDS / "smallest.toml", tmp_path, 1).wrong) == count


def test_a_step_that_fails_is_told_and_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CheckFailed("no such wheel")

    def look(build: Build) -> None:
        raise AssertionError("a build that isn't there was looked at")

    steps(monkeypatch, measure=fail, look=look)
    assert measured(BUILDS / "ring.toml", tmp_path, 1).wrong == ["no such wheel"]


def test_the_table_has_a_cross_for_a_build_with_a_broken_promise() -> None:
    rows = [
        Figures("a", ["x", "y"], bytes=11_500_000, rss_bytes=42_000_000, start_s=0.256),
        Figures("b", ["z"], wrong=["typer is loaded"]),
    ]
    console = Console(width=200, file=io.StringIO())
    with console.capture() as shown:
        console.print(table(rows))
    lines = shown.get().splitlines()
    [right] = [line.split() for line in lines if "x, y" in line]
    [wrong] = [line for line in lines if "✗" in line]
    assert {"11.5", "42", "0.26", "✓"} <= set(right)
    assert " z " in wrong


def test_without_wheels_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(artefacts, "WHEELS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["builds"])
    assert builds.main()
    assert "make wheels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "has_archive", "built"),
    [
        ([], False, [name for name in MANIFESTS if name != "archive"]),
        ([], True, [name for name in MANIFESTS if name != "archive"]),
        (["--archive"], True, MANIFESTS),
        (["--only", "archive", "ring"], True, ["archive", "ring"]),
    ],
    ids=["without Spark", "with Spark", "by its flag", "by name"],
)
def test_the_archive_is_built_where_it_is_asked_for(
    arguments: list[str],
    has_archive: bool,
    built: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "blumfeld-0.1.0-py3-none-any.whl").touch()
    if has_archive:
        (tmp_path / "pyspark-4.1.0-py3-none-any.whl").touch()
    names: list[str] = []

    def measure(path: Path, folder: Path, rounds: int) -> Figures:
        names.append(path.stem)
        return Figures(path.stem, [], wrong=["broken"] if path.stem == "ring" else [])

    monkeypatch.setattr(artefacts, "WHEELS", tmp_path)
    monkeypatch.setattr(builds, "measured", measure)
    monkeypatch.setattr(Kcat, "absent", lambda: "")
    monkeypatch.setattr(sys, "argv", ["builds", *arguments])
    assert builds.main() == 1, "a broken promise is the exit status"
    assert names == built


def test_the_archive_without_spark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blumfeld-0.1.0-py3-none-any.whl").touch()
    monkeypatch.setattr(artefacts, "WHEELS", tmp_path)
    monkeypatch.setattr(Kcat, "absent", lambda: "")
    monkeypatch.setattr(sys, "argv", ["builds", "--archive"])
    assert builds.main()
    assert "pip wheel" in capsys.readouterr().err


def test_a_run_of_some_builds_leaves_the_figures_of_the_others() -> None:
    both = [Figures("ring", [], bytes=10_500_000), Figures("archive", [], bytes=727_000_000)]
    page = page_text(f"before\n{BEGIN}\n{END}\nafter\n", both)
    again = page_text(page, [Figures("ring", [], bytes=9_000_000)])
    assert again == page.replace("| ring | 10.5 MB", "| ring | 9.0 MB")
    assert [line.split()[1] for line in again.splitlines() if " MB | " in line] == ["archive", "ring"]


def test_the_page_has_its_place_for_the_figures() -> None:
    assert HEAD in page_text(PAGE.read_text(), [Figures("ring", [])])
