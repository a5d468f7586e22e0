"""The changes of the tables from version to version; ``service.database`` runs them."""
