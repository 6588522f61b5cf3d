"""The report of all runs: the result file and the table."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.table import Table

from campaigns.transactions.oracle import Account


class Zombie(msgspec.Struct, kw_only=True):
    """A program that was paused, replaced and resumed."""

    name: str
    held: int
    """Partitions that its consumer had when it was paused."""
    was_open: bool
    """Whether a transaction of its own was open then, as far as it had told."""
    begun: int = 0
    """Transactions that it began after SIGCONT."""
    committed: int = 0
    """Transactions that it was told are committed, after SIGCONT."""
    aborted: int = 0
    """Transactions that it was told are aborted, after SIGCONT."""
    held_at_end: int = 0
    """Partitions that its consumer had at its end, or when the campaign stopped waiting for that."""
    last_word: str = ""
    """``fenced``, ``failed`` or ``ended``; empty if it went on."""
    error: str = ""
    seconds: float = 0.0
    """From SIGCONT until it ended, or until the campaign stopped waiting."""

    @property
    def is_idle(self) -> bool:
        """Whether it went on without partitions, and so sent nothing that could have been fenced."""
        return not (self.last_word or self.was_open or self.begun or self.held_at_end)

    @property
    def complaints(self) -> list[str]:
        """Broken promises. A transaction whose end was under way when it was paused may have been committed."""
        complaints = []
        if self.committed > self.was_open:
            complaints.append(f"{self.name} committed {self.committed} transactions as a zombie")
        if self.last_word != "fenced" and not self.is_idle:
            complaints.append(f"{self.name} was a zombie and was not fenced: {self}")
        return complaints

    def __str__(self) -> str:
        opened = "one transaction open" if self.was_open else "no transaction open"
        ended = f"{self.last_word} {self.error}" if self.last_word else "went on"
        return (
            f"paused with {self.held} partitions and {opened}; after SIGCONT it began {self.begun}, committed"
            f" {self.committed}, aborted {self.aborted}, had {self.held_at_end} partitions; after"
            f" {self.seconds:.1f} s: {ended}"
        )


class RunReport(msgspec.Struct, kw_only=True):
    """One client on one cluster."""

    client: str
    version: int
    """The finalized level of ``transaction.version``."""
    nodes: int
    seed: int
    generation: int = 0
    """2 if each of the client's transactions had an epoch of its own (KIP-890), else 1; 0 if there were none."""
    seconds: float = 0.0
    kills: dict[str, int] = msgspec.field(default_factory=dict)
    """Faults that were done, by kind."""
    records: int = 0
    """Records of the input."""
    commits: int = 0
    """Markers that ended a transaction of the output, over all partitions."""
    aborts: int = 0
    transactions: int = 0
    """Transactions that programs were told are committed."""
    told_aborts: int = 0
    """Transactions that programs aborted on purpose."""
    uncommitted: int = 0
    """Records that only ``read_uncommitted`` shows."""
    fenced: int = 0
    """Zombies that were fenced."""
    zombies: list[Zombie] = msgspec.field(default_factory=list)
    restarts: int = 0
    """Programs that ended with an error though nobody had killed or replaced them."""
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    """Errors that programs were told when they aborted or ended, by text."""
    recoveries_s: list[float] = msgspec.field(default_factory=list)
    """After each fault, until a transaction was committed."""
    account: Account = msgspec.field(default_factory=Account)
    sha256: str = ""
    """Hash of the lines that ``read_committed`` shows."""
    capture_sha256: str = ""
    find_hanging: str = ""
    """The finding of Kafka's tool: ``none``, a count, or why it was not run."""
    wrong: list[str] = msgspec.field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong, and the output is the input."""
        return not self.wrong and self.account.is_exact and self.sha256 == self.capture_sha256

    @property
    def killed(self) -> tuple[int, int, int]:
        """Brokers killed, clients killed, zombies."""
        both = self.kills.get("kill-both", 0)
        brokers = sum(self.kills.get(kind, 0) for kind in ("kill-broker", "kill-coordinator", "kill-leader"))
        return brokers + both, self.kills.get("kill-client", 0) + both, self.kills.get("zombie", 0)


class CampaignReport(msgspec.Struct, kw_only=True):
    """The result file."""

    created: str
    capture: str
    partitions: int
    runs: Sequence[RunReport]


COLUMNS = (
    *("client", "version", "nodes", "generation", "records", "transactions", "aborted", "only uncommitted"),
    *("brokers killed", "clients killed", "zombies", "lost", "doubled", "other", "longest s", "hanging", "s"),
)


def table(runs: Sequence[RunReport]) -> Table:
    """Return a row for each run, and the sum."""
    grid = Table(title="Copied in transactions while brokers and clients were killed", title_justify="left")
    for column in COLUMNS:
        grid.add_column(column, justify="left" if column == "client" else "right")
    for run in runs:
        account = run.account
        other = account.foreign + account.disordered + account.leaked
        grid.add_row(
            f"{'' if run.is_good else '✗ '}{run.client}",
            *map(str, (run.version, run.nodes, run.generation, account.records, run.transactions)),
            *map(str, (run.told_aborts, run.uncommitted, *run.killed, account.lost, account.doubled, other)),
            f"{max(run.recoveries_s, default=0.0):.1f}",
            run.find_hanging,
            f"{run.seconds:.0f}",
        )
    killed = [sum(column) for column in zip(*(run.killed for run in runs), strict=True)] or [0, 0, 0]
    grid.add_section()
    grid.add_row(
        *("all", "", "", ""),
        *(
            str(sum(count))
            for count in zip(*((run.account.records, run.transactions) for run in runs), strict=True)
        ),
        *(str(sum(getattr(run, name) for run in runs)) for name in ("told_aborts", "uncommitted")),
        *map(str, killed),
        *(str(sum(getattr(run.account, name) for run in runs)) for name in ("lost", "doubled")),
    )
    return grid
