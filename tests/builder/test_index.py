"""An index of wheels: a lock has their addresses, and a build from it downloads what doesn't lie here."""

from __future__ import annotations

import shutil
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from blumfeld.plugging.errors import ManifestError
from blumfeld_builder.build import Recipe, Request, chosen_wheels, read_recipe, supply_of
from blumfeld_builder.wheels.lock import lock_text
from blumfeld_builder.wheels.wheel import Wheel
from tests.builder.fakes import MANIFEST, make_workshop


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an index of the wheels of a workshop, and its folder: one folder below for each distribution."""
    make_workshop(tmp_path / "made")
    for wheel in (tmp_path / "made/wheels").iterdir():
        folder = tmp_path / "simple" / wheel.name.partition("-")[0].replace("_", "-")
        folder.mkdir(parents=True)
        wheel.rename(folder / wheel.name)
        (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple", tmp_path / "simple"
    server.shutdown()
    server.server_close()


def chosen(folder: Path, lock: str | None = None) -> tuple[Recipe, list[Wheel]]:
    """The wheels of a build, with a work folder of its own."""
    work = folder / ("locked" if lock else "resolved")
    work.mkdir()
    recipe = read_recipe(Request(manifest=str(folder / "broker.toml"), out="", lock=lock))
    return recipe, chosen_wheels(recipe, supply_of(recipe, str(work)), str(work), lambda line: None)


def test_a_lock_from_an_index_has_the_addresses_and_downloads_from_them(
    tmp_path: Path, index: tuple[str, Path]
) -> None:
    address, folder = index
    text = MANIFEST.replace('wheels = ["wheels"]', f'index = "{address}"')
    (tmp_path / "broker.toml").write_text(text)
    recipe, wheels = chosen(tmp_path)
    lock = lock_text(wheels, recipe.wanted, recipe.target)
    urls = [wheel["url"] for package in tomllib.loads(lock)["packages"] for wheel in package["wheels"]]
    assert len(urls) == len(wheels) == 7
    assert all(url.startswith(f"{address}/") for url in urls)

    (tmp_path / "pylock.toml").write_text(lock)
    again, taken = chosen(tmp_path, str(tmp_path / "pylock.toml"))
    assert [wheel.sha256 for wheel in taken] == [wheel.sha256 for wheel in wheels]
    assert lock_text(taken, again.wanted, again.target) == lock

    [served] = (folder / "tiny-library").glob("*.whl")
    served.write_bytes((folder / "blumfeld/blumfeld-0.1.0-py3-none-any.whl").read_bytes())
    shutil.rmtree(tmp_path / "locked")
    with pytest.raises(
        ManifestError, match=r"packages: found 7 wheels that don't lie here.*another wheel:.*hash"
    ):
        chosen(tmp_path, str(tmp_path / "pylock.toml"))
