"""A model that is served: its engine, events, metrics and devices."""
