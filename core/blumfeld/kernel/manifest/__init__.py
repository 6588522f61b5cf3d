"""The manifest as a person wrote it, its rules and its errors."""
