"""The time and memory that metadata costs by its size: start, fail-over of the controller, catch-up of a broker.

The partitions exist in the metadata alone. Their replicas lie on brokers that are registered, fenced, and never run: no
machine of this size could run them. The controllers, and the broker that catches up, are real processes.

:mod:`campaigns.metadata_scale.serving` is the other measurement: all replicas are real.
"""
