"""KV cache: block pool, and the memory that workers share."""
