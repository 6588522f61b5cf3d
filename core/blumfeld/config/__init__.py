"""Kafka's configuration: keys, definitions, values, and which of them this broker honours."""
