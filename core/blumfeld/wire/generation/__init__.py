"""Source of the message codec, generated from the schema of each class and version. Pure."""
