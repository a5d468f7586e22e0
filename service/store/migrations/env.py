"""Alembic's entry: it runs the migrations on the connection, and in the transaction, that it is given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
