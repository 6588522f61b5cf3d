"""The manifest: its sections, its rules and its errors."""
