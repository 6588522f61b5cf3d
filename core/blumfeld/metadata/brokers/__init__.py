"""Commands of brokers and controllers: registration, features, producer ids. Pure."""
