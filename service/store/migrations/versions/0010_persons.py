"""Whose a key is: of a key that was made before, the person of its name.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

keys = sa.table("keys", sa.column("name", sa.String), sa.column("person", sa.String))


def upgrade() -> None:
    """Fill the column from the names."""
    if "person" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("keys")}:
        op.add_column("keys", sa.Column("person", sa.String))
    op.execute(sa.update(keys).values(person=keys.c.name).where(keys.c.person.is_(None)))
    with op.batch_alter_table("keys") as batch:
        batch.alter_column("person", existing_type=sa.String(), nullable=False)
