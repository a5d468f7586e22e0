"""What a deployment says: its file, its models, engines and profiles, and the settings of a service."""
