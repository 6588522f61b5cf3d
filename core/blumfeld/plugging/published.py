"""The plug-ins that this project publishes, each in a distribution of its own. Errors name it."""

from __future__ import annotations

DEFAULT_BUILD = "blumfeld-default"
"""The distribution that depends on the core and on each plug-in of ``IN_DEFAULT_BUILD``."""

IN_DEFAULT_BUILD = frozenset(
    {
        "consensus_kraft",
        "groups_classic",
        "groups_kip848",
        "net_asyncio",
        "replication_isr",
        "storage_local",
        "storage_memory",
        "transactions",
    }
)
PUBLISHED = IN_DEFAULT_BUILD | {
    "consensus_zk_compat",
    "net_uring",
    "quotas",
    "security",
    "sink_spark",
    "storage_tiered",
}
_OLDER_NAMES = {"sink_spark": "blumfeld-archive"}


def distribution_of(plugin: str) -> str | None:
    """Returns the distribution that brings a plug-in of this project; ``None`` for any other plug-in."""
    if plugin not in PUBLISHED:
        return None
    return _OLDER_NAMES.get(plugin) or "blumfeld-" + plugin.replace("_", "-")


def how_to_install(plugin: str) -> str:
    """Returns the command that installs a plug-in of this project; "" for any other plug-in."""
    name = distribution_of(plugin)
    if name is None:
        return ""
    whole = f", or {DEFAULT_BUILD} with all of the default build" if plugin in IN_DEFAULT_BUILD else ""
    return f"pip install {name}{whole}"
