"""Words to Intent: rules without an LLM, and an LLM that only extracts."""
