"""The ops console: a process of its own that shows the service to people, and keeps nothing itself."""
