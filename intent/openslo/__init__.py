"""OpenSLO v1: ``export`` writes goals as documents, ``reader`` reads documents as goals; both say what gets lost."""
