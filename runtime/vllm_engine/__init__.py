"""The vLLM engine: stock vLLM engines side by side, through vLLM's public extension points only."""
