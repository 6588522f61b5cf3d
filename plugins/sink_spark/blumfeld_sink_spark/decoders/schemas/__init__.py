"""Decoders that need a schema: Confluent's wire format with Avro, Protobuf and JSON."""
