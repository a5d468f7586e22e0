"""Intent to checked Intent: schema, bounds, contradictions, inventory, read-back."""
