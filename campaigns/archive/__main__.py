"""``python -m campaigns archive golden|oracle|kills|bad-input|bench``: prints a table of checks. The exit
status is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
from rich.console import Console

from campaigns.archive.bad_input import bad_input
from campaigns.archive.common.process import archive_command
from campaigns.archive.common.report import Report
from campaigns.archive.common.tallies import READERS
from campaigns.archive.crashes.killer import VICTIMS
from campaigns.archive.crashes.kills import PLAIN, TRANSACTIONS, Plan, kills, transactional_kills
from campaigns.archive.golden import golden, started
from campaigns.archive.oracle import oracle
from campaigns.figures import save
from campaigns.terminal import console_of

Act = Callable[[Path, Report, argparse.Namespace, Console], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand. Returns 0 if all checks passed, and 1 if one failed or there was none."""
    given = _parser().parse_args(arguments)
    console = console_of()
    report = Report(given.title)
    if given.keep:
        folder = Path(tempfile.mkdtemp(prefix="blumfeld-archive-"))
        console.print(f"everything stays in {folder}", highlight=False)
        _act(folder, report, given, console)
    else:
        with tempfile.TemporaryDirectory(prefix="blumfeld-archive-", ignore_cleanup_errors=True) as name:
            _act(Path(name), report, given, console)
    report.show(console)
    save(given.json, {**attrs.asdict(report), "good": report.good})
    return 0 if report.good else 1


def _act(folder: Path, report: Report, given: argparse.Namespace, console: Console) -> None:
    """Runs a subcommand. An exception becomes a failed check, so that the report shows the checks before it."""
    try:
        given.act(folder, report, given, console)
    except Exception as error:
        console.print_exception()
        report.add("the run itself", "broke off", [f"{type(error).__name__}: {error}"])


def _golden(folder: Path, report: Report, given: argparse.Namespace, console: Console) -> None:
    shared = {"capture": given.capture, "decoder": given.decoder, "reader": given.reader}
    golden(folder, report, readers=tuple(given.only.split(",")), **shared)


def _kills(folder: Path, report: Report, given: argparse.Namespace, console: Console) -> None:
    victims = tuple(given.victims.split(","))
    plan = Plan(given.kills, given.seed, given.rate, _sayer(console), given.patience, victims)
    if given.only in (PLAIN, ""):
        kills(folder, report, plan, reader=given.reader)
    if given.only in (TRANSACTIONS, ""):
        transactional_kills(folder, report, plan, reader=given.reader, peer=given.peer)


def _oracle(folder: Path, report: Report, given: argparse.Namespace, console: Console) -> None:
    captures = [path for paths in given.capture or [] for path in paths]
    shared = {"decoder": given.decoder, "reader": given.reader, "seed": given.seed}
    oracle(folder, report, captures=captures, **shared)


def _bad_input(folder: Path, report: Report, given: argparse.Namespace, console: Console) -> None:
    bad_input(folder, report, _sayer(console), reader=given.reader, only=given.only, patience=given.patience)


def _bench(folder: Path, report: Report, given: argparse.Namespace, console: Console) -> None:
    """Runs ``blumfeld archive bench`` with a broker of its own."""
    with ExitStack() as stack:
        bootstrap = started(stack, folder).address
        command = [*archive_command("bench"), str(given.capture), "--bootstrap", bootstrap]
        if given.out:
            command += ["--out", str(given.out)]
        status = subprocess.run([*command, *given.options], check=False).returncode
        report.add("blumfeld archive bench", f"exit status {status}", ["must be 0"] if status else [])


def _sayer(console: Console) -> Callable[[str], None]:
    return lambda line: console.print(line, highlight=False, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns archive",
        description="The archive from outside: real processes, and readers that know nothing of it.",
    )
    verbs = parser.add_subparsers(required=True, metavar="WHAT")
    verb = _verb(verbs, "golden", "counts and sums of one feed, by four readers", _golden)
    verb.add_argument("--capture", type=Path, help="a capture file; without one a small feed is made")
    verb.add_argument("--decoder", default="", help="found from the capture without it")
    verb.add_argument("--only", default=",".join(READERS), help="readers of the files, by comma")

    verb = _verb(verbs, "kills", "SIGKILL of driver, worker, JVM and broker while a feed is archived", _kills)
    verb.add_argument("--kills", type=int, default=20)
    verb.add_argument("--seed", type=int, default=0)
    verb.add_argument("--rate", type=int, default=800, help="messages a second")
    verb.add_argument("--peer", default="", metavar="SCRIPT", help="Apache Kafka: transactions with it, too")
    often = "by comma; one named twice is killed twice as often"
    verb.add_argument("--victims", default=",".join(VICTIMS), help=often)
    verb.add_argument("--only", default="", choices=(PLAIN, TRANSACTIONS), help="nothing but that")

    verb = _verb(verbs, "oracle", "books against the exchange's own, and gaps against its numbering", _oracle)
    captures = "capture files, those of one venue in order; as often as you like"
    verb.add_argument("--capture", type=Path, nargs="+", action="append", metavar="FILE", help=captures)
    verb.add_argument("--decoder", default="", help="found from the capture without it")
    verb.add_argument("--seed", type=int, default=0)

    verb = _verb(verbs, "bad-input", "refusals: their words, and that nothing is lost", _bad_input)
    verb.add_argument("--only", default="", metavar="TEXT", help="cases whose title has this in it")

    verb = _verb(verbs, "bench", "blumfeld archive bench, with a broker of its own", _bench)
    verb.add_argument("--capture", type=Path, required=True)
    verb.add_argument("--out", type=Path)
    verb.add_argument("options", nargs="*", help="further options of blumfeld archive bench, behind --")
    return parser


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, title: str, act: Act
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=title)
    verb.set_defaults(act=act, title=f"{name}: {title}")
    verb.add_argument("--reader", default="python", choices=("python", "jvm", "direct", "auto"))
    verb.add_argument("--patience", type=float, default=1.0, help="bounds in time are so many times as long")
    verb.add_argument("--json", type=Path, metavar="FILE", help="the summary, for programs")
    verb.add_argument("--keep", action="store_true", help="leave the folder with data, archive and logs")
    return verb


if __name__ == "__main__":
    sys.exit(main())
