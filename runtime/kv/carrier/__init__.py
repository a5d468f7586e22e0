"""Carriers: KV of running requests on its way to workers of another host."""
