"""The driver process of a vLLM engine: importing it, its steps, the calls between them."""
