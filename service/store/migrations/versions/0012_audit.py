"""Entries of the audit may go once a later entry says that they were exported.

Revision ID: 0012
"""

from alembic import op

revision = "0012"
down_revision = "0011"

GUARDS = {
    "sqlite": """
        CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
        WHEN OLD.seq > coalesce(
            (SELECT max(CAST(json_extract("after", '$.head') AS INTEGER)) FROM audit WHERE act = 'audit.export'), 0)
        BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END""",
    "postgresql": """
        CREATE OR REPLACE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF TG_OP = 'DELETE' THEN
                IF OLD.seq <= (SELECT max(split_part("after" ->> 'head', ':', 1)::bigint)
                               FROM audit WHERE act = 'audit.export')
                THEN RETURN OLD;
                END IF;
            END IF;
            RAISE EXCEPTION 'the audit is append-only';
        END $$""",
}
"""What keeps entries as they are, by database; the head of an export is its last number, a colon and a hash."""


def upgrade() -> None:
    """Let the guard against deletion look for that entry."""
    bind = op.get_bind()
    if bind.dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_no_delete")
    bind.exec_driver_sql(GUARDS[bind.dialect.name])
