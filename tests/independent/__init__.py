"""Other people's implementations, each in an environment of its own, on what ours made."""
