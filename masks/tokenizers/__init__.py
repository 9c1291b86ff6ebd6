"""Tokenizer files to token bytes: one module a format, each a pure function to a `TokenTable`."""
