"""``blumfeld tiered restore``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blumfeld.spi.runtime import Files
    from blumfeld_storage_tiered.commands.opened import OpenedStore
    from blumfeld_storage_tiered.restore.plan import Finding, RestoredTopic, RestorePlan


def command(
    context: typer.Context,
    manifests: Annotated[
        list[str],
        typer.Argument(metavar="MANIFEST…", help="The TOML files of all nodes, or one with nodes = N."),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Restore this topic, and no other that isn't named; may be repeated."),
    ] = None,
    node: Annotated[
        int | None, typer.Option(help="Write the directories of this node alone: the others are elsewhere.")
    ] = None,
    accept_losses: Annotated[
        bool,
        typer.Option("--accept-losses", help="Restore what is whole, although the store lacks some of it."),
    ] = False,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Give each topic retention.ms and retention.bytes -1.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be restored. Write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a topic and a finding.")] = False,
) -> None:
    """Restore a cluster whose disks are gone from its store, before its nodes start the first time.

    The directories must be formatted with the cluster's id, and empty. The store is only read. Exits with 0 if all was
    restored, with 1 if the store lacks something and nothing was written, with 2 if it can't be done.
    """
    from blumfeld_storage_tiered.commands.opened import run

    run(
        _restore(
            context.obj,
            manifests,
            tuple(topics or ()),
            node,
            accept_losses=accept_losses,
            keep_all=keep_all,
            dry_run=dry_run,
            as_json=as_json,
        )
    )


async def _restore(
    files: Files,
    manifests: Sequence[str],
    topics: Sequence[str],
    node: int | None,
    *,
    accept_losses: bool,
    keep_all: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    from blumfeld.plugging.errors import ManifestError, Problem
    from blumfeld_storage_tiered.commands.opened import FAILED, manifest_text, opened_store, same_store
    from blumfeld_storage_tiered.restore.directories import check_takes, formatted_node, restore_nodes
    from blumfeld_storage_tiered.restore.found import store_content
    from blumfeld_storage_tiered.restore.places import check_voters, places_of
    from blumfeld_storage_tiered.restore.plan import Retention, plan_restore

    places = places_of({path: manifest_text(path) for path in manifests})
    same_store(manifests)
    ids = [place.node_id for place in places]
    if node is not None and node not in ids:
        allowed = f"a node of these manifests: {', '.join(map(str, ids))}"
        raise ManifestError("--node", [Problem("", str(node), allowed)])
    async with opened_store(files, manifests[0]) as opened:
        nodes = []
        for place in places:
            if not dry_run and node in (None, place.node_id):
                restored = formatted_node(files, place, opened.cluster_id)
                check_takes(files, restored)
                voters = [] if restored.voters is None else restored.voters.voters
                check_voters(place.manifest, [voter.voter_id for voter in voters], ids)
                nodes.append(restored)
        content = await store_content(opened.runtime, opened.store, opened.cluster_id, topics)
        brokers = [place.node_id for place in places if place.is_broker]
        retention = Retention(
            keep_all=keep_all, broker_ms=places[0].retention_ms, now_ms=opened.runtime.now_ms()
        )
        plan = plan_restore(content, brokers, opened.options.metadata_topic, retention)
        if missing := sorted(set(topics) - {topic.name for topic in plan.topics}):
            raise OSError(
                f"--topic: {opened.shown} has no segment of {', '.join(missing)} that could be restored"
            )
        (_show_json if as_json else _show)(opened, plan)
        if plan.loses and not accept_losses:
            typer.echo(
                "blumfeld: the store lacks what is named above, and nothing was written. With --accept-losses the"
                " rest is restored",
                err=True,
            )
            return FAILED
        restore_nodes(files, plan, nodes)
        for restored in nodes:
            if not as_json:
                typer.echo(f"restored node {restored.node_id} in {', '.join(restored.directories)}")
    return 0


def _show(opened: OpenedStore, plan: RestorePlan) -> None:
    from blumfeld_storage_tiered.commands.opened import bytes_text

    age_s = max(0, opened.runtime.now_ms() - plan.time_ms) // 1000
    typer.echo(f"{opened.shown}, cluster {plan.cluster_id}; its last object was written {age_s} s ago")
    line = "{:<32} {:>10} {:>9} {:>12} {:>14}"
    typer.echo(line.format("topic", "partitions", "segments", "remote", "records"))
    for topic in plan.topics:
        segments = [segment for partition in topic.partitions for segment in partition.history.segments]
        size = bytes_text(sum(segment.size_bytes for segment in segments))
        records = sum(each.history.end_offset - each.history.start_offset for each in topic.partitions)
        typer.echo(line.format(topic.name, len(topic.partitions), len(segments), size, records))
    for finding in plan.findings:
        typer.echo(f"{finding.kind}: {finding.about}: {finding.text}")


def _show_json(opened: OpenedStore, plan: RestorePlan) -> None:
    import msgspec

    for shown in [*map(_topic_fields, plan.topics), *map(_finding_fields, plan.findings)]:
        typer.echo(msgspec.json.encode(shown).decode())


def _topic_fields(topic: RestoredTopic) -> dict[str, object]:
    from blumfeld.wire.primitives import uuid_text

    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "configs": topic.configs,
        "partitions": [
            {
                "partition": partition.number,
                "replicas": partition.replicas,
                "start_offset": partition.history.start_offset,
                "end_offset": partition.history.end_offset,
                "segments": len(partition.history.segments),
                "size_bytes": sum(segment.size_bytes for segment in partition.history.segments),
            }
            for partition in topic.partitions
        ],
    }


def _finding_fields(finding: Finding) -> dict[str, object]:
    return {"kind": finding.kind, "about": finding.about, "text": finding.text, "loses": finding.loses}
