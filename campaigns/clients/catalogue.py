"""The clients by name. A client's module is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module

from campaigns.clients.client import Client

CLIENTS = {
    "confluent-kafka": ("confluent", "ConfluentKafka"),
    "kcat": ("kcat", "Kcat"),
    "kafka-python": ("kafka_python", "KafkaPython"),
    "aiokafka": ("aio", "AioKafka"),
    "kafkajs": ("kafkajs", "KafkaJs"),
    "franz-go": ("franz_go", "FranzGo"),
    "java": ("java", "JavaTools"),
    "kafka-tools": ("java", "ConsoleTools"),
}
"""Module and class of each, in the order of the matrix's rows."""


def client_class(name: str) -> type[Client]:
    """The client of this name.

    :raises KeyError: there is none
    """
    module, attribute = CLIENTS[name]
    loaded_class: type[Client] = getattr(import_module(f"campaigns.clients.{module}"), attribute)
    return loaded_class
