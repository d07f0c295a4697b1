"""The JSON-RPC server: descriptors, frames, messages, dispatch."""
