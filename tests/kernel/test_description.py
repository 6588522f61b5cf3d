"""What ``blumfeld plan`` prints, with the fakes' parts."""

from __future__ import annotations

from tests.kernel.fakes import described, plan_of

TEXT = """\
node 1 (broker, controller), data in data, from m.toml

plug-ins
  network      net_fake          unknown  paper
  storage      storage_fake      unknown
  consensus    consensus_fake    unknown
  replication  replication_fake  unknown
  groups       groups_fake       unknown

listeners
  PLAINTEXT   broker      127.0.0.1:9092            brokers come in by it
  OUTSIDE     broker      0.0.0.0:9093              advertised as kafka.example:9093
  ANY         broker      127.0.0.1, any free port
  CONTROLLER  controller  [::1]:9094

APIs on broker listeners
    0  Produce      0–13
   18  ApiVersions  0–4

APIs on controller listeners
   18  ApiVersions  0–4

an ack means
  acks=0    nothing
  acks=1    written: what storage promises
  acks=all  what replication promises

configuration, other than Kafka's defaults
  auto.create.topics.enable  false
  log.segment.bytes          1048576

this build does not
  transactions  a transactional.id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  security      every client is User:ANONYMOUS and may do everything, on PLAINTEXT only
  compaction    a topic with cleanup.policy=compact keeps every record: this storage does not compact
  APIs          """

CONFIG = """
[config]
"log.segment.bytes" = 1048576
"auto.create.topics.enable" = false
"""

LISTENERS = (
    'network.listeners=[{name="PLAINTEXT", bind="127.0.0.1:9092"}, '
    '{name="OUTSIDE", bind="0.0.0.0:9093", advertised="kafka.example:9093"}, '
    '{name="ANY", bind="127.0.0.1:0"}, {name="CONTROLLER", kind="controller", bind="[::1]:9094"}]'
)


def test_the_plan_of_a_manifest() -> None:
    text = described(plan_of(LISTENERS, text=CONFIG))
    fixed, _, missing = text.partition("  APIs          ")
    assert fixed + "  APIs          " == TEXT
    assert missing.startswith("Fetch, ListOffsets, Metadata, ")
    assert "Produce" not in missing.replace(",", " ").split()
    assert max(map(len, text.splitlines())) < 120


def test_several_log_directories_are_said_with_what_a_failure_takes() -> None:
    plan = plan_of('node.data_dirs=["/disk1", "/d2"]', "storage.plugin=storages_fake")
    assert described(plan).splitlines()[:5] == [
        "node 1 (broker, controller), data in /disk1 and /d2, from m.toml",
        "",
        "log directories",
        "  /disk1  the cluster's metadata, and partitions: the node stops if it fails",
        "  /d2     partitions: only they go offline if it fails",
    ]


def test_a_controller_alone_has_no_acks() -> None:
    text = described(plan_of('node.roles=["controller"]'))
    assert text.startswith("node 1 (controller), data in data")
    assert "an ack means" not in text
    assert "transactions" not in text
    assert "security  every client is User:ANONYMOUS" in text
