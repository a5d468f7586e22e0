"""The changes of the tables from version to version; ``service.store.database`` runs them."""
