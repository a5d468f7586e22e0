"""What is done with words and plans, without a service."""
