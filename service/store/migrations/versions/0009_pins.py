"""What runs may be pinned, and a no may hold for as long as somebody says.

Revision ID: 0009

0008 makes the tables as they are now: only a database from before this lacks these columns.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

COLUMNS = {
    "control": (sa.Column("pinned_by", sa.String()), sa.Column("pinned_until_s", sa.Double())),
    "approvals": (sa.Column("barred_until_s", sa.Double()),),
}


def upgrade() -> None:
    """Add the columns that are not there."""
    for table, columns in COLUMNS.items():
        there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
        for column in columns:
            if column.name not in there:
                op.add_column(table, column)
