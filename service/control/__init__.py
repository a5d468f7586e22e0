"""The loop that keeps what is promised."""
