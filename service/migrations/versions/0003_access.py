"""Keys, approvals, and the audit with what keeps its entries as they are.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

REFUSED = "the audit is append-only"
GUARDS = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{act.lower()} BEFORE {act} ON audit BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        for act in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        f"CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$",
        "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
        "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit EXECUTE FUNCTION audit_refuse()",
    ],
}
"""What keeps entries as they are, by database."""


def upgrade() -> None:
    """Make the tables, and let the database itself refuse changes of what is in the audit."""
    _keys()
    _approvals()
    _audit()
    for statement in GUARDS[op.get_bind().dialect.name]:
        op.execute(sa.text(statement))


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("prefix", sa.String, primary_key=True),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("tenant", sa.String),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
        sa.Column("expires_s", sa.Double),
        sa.Column("revoked_s", sa.Double),
    )


def _approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("plan_id", sa.String, primary_key=True),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("verdict", sa.String, nullable=False),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("until_s", sa.Double),
        sa.Column("acknowledged", sa.JSON, nullable=False),
        sa.Column("note", sa.String, nullable=False),
    )


def _audit() -> None:
    text = ("who", "key", "role", "act", "subject", "origin", "request_id", "previous", "hash")
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("before", sa.JSON, nullable=False),
        sa.Column("after", sa.JSON, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in text),
    )
    for name in ("who", "act", "subject"):
        op.create_index(f"ix_audit_{name}", "audit", [name])
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("hash", sa.String, nullable=False),
    )
    op.bulk_insert(head, [{"id": 1, "seq": 0, "hash": ""}])
