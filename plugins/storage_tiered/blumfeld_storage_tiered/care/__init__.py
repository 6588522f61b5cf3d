"""What an operator asks about a store: is every byte as it was written, how much lies where, what does it cost."""
