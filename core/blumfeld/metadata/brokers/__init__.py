"""Commands of brokers and controllers: registration, sessions, features, producer ids. Pure."""
