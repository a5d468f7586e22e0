"""What ``benchmarks.intents`` is made of: the utterances, the figures, and texts made by machine."""
