"""What happened, for those who ask later.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("event", sa.String, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
    )
