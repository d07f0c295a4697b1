"""Hames: a durable agent harness that other programs drive over stdio."""

__version__ = "0.1.0"

__all__ = ["__version__"]
