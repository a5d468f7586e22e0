"""Promises: what is active, the controller, what switches were good for, how far goals were kept.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "promises",
        sa.Column("intent_id", sa.String, primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("activated_s", sa.Double, nullable=False),
    )
    op.create_table(
        "control",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("mode", sa.String, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("resumed_s", sa.Double, nullable=False),
    )
    op.create_table(
        "outcomes",
        sa.Column("operation_id", sa.String, primary_key=True),
        sa.Column("at_s", sa.Double, nullable=False, index=True),
        sa.Column("document", sa.JSON, nullable=False),
    )
    op.create_table(
        "attainments",
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("intent_id", sa.String, primary_key=True),
        sa.Column("words", sa.String, primary_key=True),
        sa.Column("window", sa.String, primary_key=True),
        sa.Column("hour_s", sa.Double, primary_key=True),
        sa.Column("counted", sa.String, nullable=False),
        sa.Column("needed", sa.Double, nullable=False),
        sa.Column("met", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
    )
    op.create_table(
        "loads",
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("begins_s", sa.Double, primary_key=True),
        sa.Column("document", sa.JSON, nullable=False),
    )
