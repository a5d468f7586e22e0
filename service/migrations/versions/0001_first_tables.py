"""The tables as they were before migrations; where an older version has made some, what they lack.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make what is missing."""
    there = set(sa.inspect(op.get_bind()).get_table_names())
    for name, columns in tables().items():
        if name not in there:
            op.create_table(name, *columns)
    op.create_index("ix_journal_switch_id", "journal", ["switch_id"], if_not_exists=True)
    if "model" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("generations")}:
        op.add_column("generations", sa.Column("model", sa.String))


def tables() -> dict[str, tuple[sa.Column[object] | sa.ForeignKeyConstraint, ...]]:
    """Each table with what it is made of, in an order in which they can be made."""
    return {
        "intents": (
            sa.Column("id", sa.String, primary_key=True),
            sa.Column("document", sa.JSON, nullable=False),
            sa.Column("created_s", sa.Double, nullable=False),
        ),
        "amendments": (
            sa.Column("intent_id", sa.String, sa.ForeignKey("intents.id"), primary_key=True),
            sa.Column("version", sa.Integer, primary_key=True),
            sa.Column("body", sa.JSON, nullable=False),
        ),
        "plans": (
            sa.Column("id", sa.String, primary_key=True),
            sa.Column("intent_id", sa.String, sa.ForeignKey("intents.id"), nullable=False),
            sa.Column("document", sa.JSON, nullable=False),
            sa.Column("applied_by", sa.String),
            sa.Column("created_s", sa.Double, nullable=False),
        ),
        "operations": (
            sa.Column("id", sa.String, primary_key=True),
            sa.Column("done", sa.Boolean, nullable=False),
            sa.Column("document", sa.JSON, nullable=False),
            sa.Column("updated_s", sa.Double, nullable=False),
        ),
        "journal": (
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("switch_id", sa.String, nullable=False),
            sa.Column("phase", sa.String, nullable=False),
            sa.Column("detail", sa.String, nullable=False),
            sa.Column("at_s", sa.Double, nullable=False),
        ),
        "generations": (
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("topology", sa.String, nullable=False),
            sa.Column("model", sa.String),
            sa.Column("at_s", sa.Double, nullable=False),
        ),
    }
