"""Plant bugs that someone could write, one at a time in a copy of the tree, and require that the tests see them.

``python tools/mutants.py [--only NAME...] [--list] [--moved] [--jobs N]``. The bugs are in ``tests/mutants/*.toml``,
one file a room. Exit status 1 if one survives, can't be planted, or if what should catch it is red without it.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import msgspec

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = ROOT / "tests" / "mutants"
SOURCES = ("core", "kit", "bench", "builder", "plugins", "campaigns", "examples")
"""Folders of the code that bugs are planted in."""
DISTRIBUTIONS = {
    "core": "blumfeld",
    "kit": "blumfeld_kit",
    "bench": "blumfeld_bench",
    "builder": "blumfeld_builder",
}
"""Folder of a distribution → its package."""
NOT_COPIED = (".*", "__pycache__", "build", "dist", "*.egg-info", "node_modules")
JOBS_MAX = 4

RUN_S_MAX = 120
"""For one command; a test that waits for a bug's sake has less."""
TEST_S_MAX = 30
PYTEST = (
    "-m",
    "pytest",
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=0",
    "--hypothesis-profile=whole",
    f"--timeout={TEST_S_MAX}",
)
TESTS_FAILED = 1
"""pytest's exit status for that. 2 to 5 say that nothing was tested: not collected, not found, wrongly called."""

LOG_COLUMNS = 180
"""For the table where there is no terminal."""

KILLED, SURVIVED, UNPLANTED, BROKEN = "killed", "SURVIVED", "NOT PLANTED", "BROKEN"
_SEED = re.compile(r"\bseed[ =:]+(\d+)", re.IGNORECASE)
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", re.MULTILINE)
_NO_MUTANT = re.compile(
    r"\b(?:NameError|UnboundLocalError|SyntaxError|IndentationError|ImportError|ModuleNotFoundError)\b"
)
"""Then the planted text is no bug that someone could write, but nonsense that any test would see."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One bug: ``old`` becomes ``new`` in ``file``, and ``command`` must turn red."""

    name: str
    file: str
    old: str
    """Exact text; occurs once."""
    new: str
    why: str
    """Which promise it breaks, in one sentence."""
    command: tuple[str, ...]
    """Arguments of pytest; or ``python`` and arguments of Python, of something that prints ``FAILED`` and its seed."""

    def problem(self, root: Path = ROOT) -> str | None:
        """Why it can't be planted in this tree."""
        path = root / self.file
        if not path.is_file():
            return f"{self.file} is not there"
        source = path.read_text()
        if (count := source.count(self.old)) != 1:
            return f"the text to replace occurs {count} times in {self.file}"
        try:
            ast.parse(source.replace(self.old, self.new))
        except SyntaxError as error:
            return f"{self.file} is no Python with it: {error}"
        return None


class Outcome(msgspec.Struct, frozen=True):
    """What a command came to."""

    status: int | None
    """``None``: it ran into the time limit."""
    output: str
    seconds: float


class Verdict(msgspec.Struct, frozen=True):
    """What became of a mutant."""

    mutant: Mutant
    verdict: str
    seconds: float = 0.0
    by: str = ""
    """The test or the seed that caught it; else what is wrong."""


def catalogue(folder: Path = CATALOGUE) -> list[Mutant]:
    """All mutants, by file.

    :raises ValueError: a file isn't as it should be, or a name is used twice
    """
    by_name: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            mutants = msgspec.convert(tomllib.loads(path.read_text())["mutant"], list[Mutant])
        except (msgspec.ValidationError, tomllib.TOMLDecodeError, KeyError) as error:
            raise ValueError(f"{path.name}: {error}") from error
        for mutant in mutants:
            if mutant.name in by_name:
                raise ValueError(f"{path.name}: {mutant.name} is there already")
            by_name[mutant.name] = mutant
    return list(by_name.values())


def found_in(mutant: Mutant, root: Path = ROOT) -> str | None:
    """The module that the mutant's text has gone to; ``None`` if it is where it was, nowhere, or in several."""
    if (root / mutant.file).is_file() and mutant.old in (root / mutant.file).read_text():
        return None
    modules = (path for folder in SOURCES for path in (root / folder).rglob("*.py"))
    matches = [path for path in modules if path.read_text().count(mutant.old) == 1]
    return matches[0].relative_to(root).as_posix() if len(matches) == 1 else None


def follow_moves(folder: Path = CATALOGUE, root: Path = ROOT) -> list[str]:
    """Write the new place of each text that has moved into the catalogue. Returns the names of the mutants."""
    followed = []
    for path in sorted(folder.glob("*.toml")):
        text = path.read_text()
        for mutant in msgspec.convert(tomllib.loads(text)["mutant"], list[Mutant]):
            if (place := found_in(mutant, root)) is not None:
                here = f'name = "{mutant.name}"\nfile = "'
                text = text.replace(f'{here}{mutant.file}"', f'{here}{place}"')
                followed.append(mutant.name)
        path.write_text(text)
    return followed


class Tree:
    """A copy of the project, in which one mutant at a time is planted and tested."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True)
        ours = [
            *(folder / name for name in DISTRIBUTIONS),
            *sorted(p for p in (folder / "plugins").iterdir() if p.is_dir()),
            folder,
        ]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, ours)),
            "PYTHONHASHSEED": "0",
            "COLUMNS": "200",
        }
        self._check_imports()

    def _check_imports(self) -> None:
        """The copy's packages must win over the installed ones, or every mutant would survive."""
        packages = [
            *DISTRIBUTIONS.values(),
            *(p.name for p in sorted((self.root / "plugins").glob("*/blumfeld_*"))),
        ]
        code = f"import {', '.join(packages)}\nfor m in ({', '.join(packages)},): print(m.__file__)"
        paths = self.python("-c", code).output.split()
        strangers = [path for path in paths if not Path(path).is_relative_to(self.root)]
        if len(paths) != len(packages) or strangers:
            raise RuntimeError(f"the copy at {self.root} does not import itself: {strangers or paths}")

    def python(self, *arguments: str) -> Outcome:
        """Run Python in the copy, with all that it starts, for at most ``RUN_S_MAX``."""
        began_s = time.monotonic()
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=RUN_S_MAX)
                status: int | None = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                status = None
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # one mutant's examples are no other's
        return Outcome(status, output, time.monotonic() - began_s)

    def run(self, command: tuple[str, ...]) -> Outcome:
        """Run a mutant's command."""
        if command[0] == "python":
            return self.python(*command[1:])
        return self.python(*PYTEST, *command)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Have the bug in the copy."""
        path = self.root / mutant.file
        source = path.read_text()
        self._write(path, source.replace(mutant.old, mutant.new))
        try:
            yield
        finally:
            self._write(path, source)

    @staticmethod
    def _write(path: Path, source: str) -> None:
        path.write_text(source)
        # Compiled code is told by time and size alone: two versions of a file within a second look the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):  # Python's and pytest's
            compiled.unlink()


def baseline_problem(outcome: Outcome) -> str | None:
    """Why what should catch a mutant proves nothing."""
    if outcome.status == 0:
        return None
    if outcome.status is None:
        return f"without the bug it takes more than {RUN_S_MAX} s"
    return f"red without the bug: {caught_by(outcome) or last_line(outcome)}"


def judge(mutant: Mutant, outcome: Outcome) -> Verdict:
    """Red counts only if tests failed: a module that can't be imported is no kill."""
    by = caught_by(outcome)
    if outcome.status == 0:
        return Verdict(mutant, SURVIVED, outcome.seconds, " ".join(mutant.command))
    if outcome.status is None:
        return Verdict(mutant, BROKEN, outcome.seconds, f"still running after {RUN_S_MAX} s")
    if outcome.status != TESTS_FAILED or not by or _NO_MUTANT.search(outcome.output):
        return Verdict(mutant, BROKEN, outcome.seconds, f"exit status {outcome.status}: {last_line(outcome)}")
    return Verdict(mutant, KILLED, outcome.seconds, by)


def caught_by(outcome: Outcome) -> str:
    """The test that failed, or the seed."""
    test = _FAILED_TEST.search(outcome.output)
    seed = _SEED.search(outcome.output)
    names = [test.group(1).rpartition("/")[2]] if test is not None else []
    if seed is not None:
        names.append(f"seed {seed.group(1)}")
    return ", ".join(names)


def last_line(outcome: Outcome) -> str:
    """Where programs say what went wrong."""
    lines = outcome.output.strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


class Hunt:
    """All mutants over a few copies, each of which has one at a time."""

    def __init__(self, trees: list[Tree]) -> None:
        self._jobs = len(trees)
        self._free: SimpleQueue[Tree] = SimpleQueue()
        for tree in trees:
            self._free.put(tree)

    @contextmanager
    def _tree(self) -> Iterator[Tree]:
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)

    def _baseline(self, command: tuple[str, ...]) -> str | None:
        with self._tree() as tree:
            return baseline_problem(tree.run(command))

    def _try(self, mutant: Mutant) -> Verdict:
        with self._tree() as tree:
            problem = mutant.problem(tree.root)
            if problem is not None:
                return Verdict(mutant, UNPLANTED, by=problem)
            with tree.planted(mutant):
                return judge(mutant, tree.run(mutant.command))

    def run(self, mutants: list[Mutant]) -> Iterator[Verdict]:
        """Each mutant's verdict as it is known. A command is first run without any bug, once."""
        pool = ThreadPoolExecutor(self._jobs)
        try:
            tries = []
            commands = list(dict.fromkeys(mutant.command for mutant in mutants))
            baselines = {pool.submit(self._baseline, command): command for command in commands}
            for done in as_completed(baselines):
                problem = done.result()
                for mutant in (m for m in mutants if m.command == baselines[done]):
                    if problem is None:
                        tries.append(pool.submit(self._try, mutant))
                    else:
                        yield Verdict(mutant, BROKEN, by=problem)
            for tried in as_completed(tries):
                yield tried.result()
        finally:
            pool.shutdown(cancel_futures=True)  # interrupted, it waits for what runs and begins nothing more


def hunt(mutants: list[Mutant], jobs: int) -> list[Verdict]:
    """Try them all, and say how far it is; in the order of the catalogue."""
    from rich.progress import track

    verdicts: dict[str, Verdict] = {}
    with tempfile.TemporaryDirectory(prefix="blumfeld-mutants-") as folder:
        trees = [Tree(Path(folder).resolve() / str(number)) for number in range(jobs)]
        for verdict in track(Hunt(trees).run(mutants), "mutants", total=len(mutants), transient=True):
            verdicts[verdict.mutant.name] = verdict
    return [verdicts[mutant.name] for mutant in mutants]


def show(verdicts: list[Verdict]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=False)
    for title, justify in (("mutant", "left"), ("promise that it breaks", "left"), ("verdict", "left")):
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    table.add_column("s", justify="right")
    table.add_column("caught by", overflow="fold")
    for it in verdicts:
        colour = "green" if it.verdict == KILLED else "bold red"
        table.add_row(
            it.mutant.name,
            it.mutant.why.strip(),
            f"[{colour}]{it.verdict}[/]",
            f"{it.seconds:.1f}" if it.seconds else "",
            it.by.replace("[", r"\["),
        )
    console = Console()
    if not console.is_terminal:
        console.width = LOG_COLUMNS
    console.print(table)


def main(arguments: list[str] | None = None) -> int:
    """0 if every mutant is killed, else 1; 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="tools/mutants.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants; part of a name will do")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--moved", action="store_true", help="follow code that has moved to another file")
    parser.add_argument(
        "--jobs", type=int, default=min(os.cpu_count() or 1, JOBS_MAX), help="copies at a time"
    )
    wanted = parser.parse_args(arguments)
    if wanted.moved:
        print("\n".join(follow_moves()) or "no code has moved")
        return 0
    mutants = catalogue()
    if wanted.only:
        mutants = [m for m in mutants if any(part in m.name for part in wanted.only)]
        if not mutants:
            parser.error(f"no mutant is called {' or '.join(wanted.only)}")
    if wanted.list:
        for mutant in mutants:
            print(f"{mutant.name:<40} {mutant.file}\n    {mutant.why.strip()}")
        return 0
    began_s = time.monotonic()
    verdicts = hunt(mutants, max(1, min(wanted.jobs, len(mutants))))
    show(verdicts)
    killed = sum(it.verdict == KILLED for it in verdicts)
    print(f"{killed} of {len(verdicts)} mutants killed in {time.monotonic() - began_s:.0f} s")
    return 0 if killed == len(verdicts) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
