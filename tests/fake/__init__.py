"""A strict server of models for tests."""
