"""Three nodes of one cluster under load, while nodes are killed, paused, stopped and cut off.

The same script measures this build and Apache Kafka: the longest time without an acknowledgement, and whether an
acknowledged record was lost or doubled. docs/cluster-faults.md says how to run it and how to read it.
"""
