"""What crosses the wire: messages, events, the method table, error kinds, and their export as schemas.

Rule 1: nothing here does I/O, reads a clock or draws a random number.
Rule 2: a message is a `TypedDict`; its JSON Schema is generated from it by pydantic (`schema.py`), and input is checked
by its annotations (`validate.py`). Importing a message builds nothing, so start-up stays short.
"""
