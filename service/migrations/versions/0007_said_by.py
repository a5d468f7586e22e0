"""Whose key said an intent, and indexes for what is said to plans and plans of an intent.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column, which says nothing of older intents, and index what lists are read by."""
    op.add_column("intents", sa.Column("said_by", sa.String))
    op.create_index("ix_plans_intent_id", "plans", ["intent_id"])
    op.create_index("ix_approvals_at_s_plan_id", "approvals", ["at_s", "plan_id"])
