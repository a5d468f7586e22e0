"""A worker process of the built-in engine: one rank, its weights and its KV memory."""
