"""OpenSLO v1: ``export`` writes goals as documents, ``reader`` reads documents as goals.

Both say what gets lost.
"""
