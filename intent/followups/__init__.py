"""Follow-ups to an intent: ``amend`` makes its next version of what is said about it."""
