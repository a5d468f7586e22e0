"""Who may do what, and what is left behind of it."""
