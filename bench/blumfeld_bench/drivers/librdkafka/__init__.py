"""The driver that loads a server through librdkafka's clients."""
