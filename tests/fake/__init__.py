"""A strict Chat Completions server for tests."""
