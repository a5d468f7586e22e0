"""What a device and a server do with a topology: step times, latencies under load, whole traces."""
