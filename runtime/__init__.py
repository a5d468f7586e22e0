"""Topology to running engine: the engines, the router and the live switch."""
