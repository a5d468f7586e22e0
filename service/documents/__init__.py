"""The one typed form of every document that crosses the border of the service. Leaves: no server, database or engine."""
