"""The driver process of the built-in engine: sequences, block tables, versions, switches."""
