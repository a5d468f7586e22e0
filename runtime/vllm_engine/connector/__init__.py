"""What vLLM loads of ours, in its scheduler and in its workers."""
