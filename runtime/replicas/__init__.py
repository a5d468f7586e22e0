"""A model as a set of replicas: which of them serves a request, and how one set becomes another."""
