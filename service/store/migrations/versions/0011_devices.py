"""Devices that are out.

Revision ID: 0011

0008 makes the tables as they are now: only a database from before this lacks this one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Make the table where it is not there."""
    if "devices_out" not in sa.inspect(op.get_bind()).get_table_names():
        op.create_table(
            "devices_out",
            sa.Column("device", sa.Integer(), primary_key=True, autoincrement=False),
            sa.Column("why", sa.String(), nullable=False),
            sa.Column("by", sa.String(), nullable=False),
            sa.Column("since_s", sa.Double(), nullable=False),
        )
