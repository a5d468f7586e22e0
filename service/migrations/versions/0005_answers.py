"""Answers to requests that clients may send again.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table, and index what is forgotten by."""
    op.create_table(
        "answers",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("content_type", sa.String),
        sa.Column("location", sa.String),
        sa.Column("body", sa.LargeBinary),
    )
    op.create_index("ix_answers_created_s", "answers", ["created_s"])
