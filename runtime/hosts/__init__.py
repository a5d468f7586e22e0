"""Several machines: an agent on each, and orders to it over TLS.

Nothing of this is imported where there is one.
"""
