"""Kafka's configuration: keys, definitions, values, and the effect of each key in this broker."""
