"""The tables as they are: made where there are none, completed where an earlier version made some.

Revision ID: 0008

Earlier versions, whatever revision they wrote down, are known by what their tables lack. A later migration adds what a database
that was made before it lacks: this one makes the newest tables, so each looks first what is there.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.engine.reflection import Inspector

from service.store.tables import Base

revision = "0008"
down_revision = None

plans, operations, generations = (
    sa.table(name, *(sa.column(column.name, column.type) for column in Base.metadata.tables[name].columns))
    for name in ("plans", "operations", "generations")
)

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
    """Make what is missing, and fill it from the documents that are kept."""
    bind = op.get_bind()
    before = sa.inspect(bind)
    there = set(before.get_table_names())
    Base.metadata.create_all(bind)
    lacked = {column for table in Base.metadata.sorted_tables for column in _lacked(table, before, there)}
    for column in lacked:
        op.add_column(column.table.name, sa.Column(column.name, column.type))
    names = {f"{column.table.name}.{column.name}" for column in lacked}
    if "plans.model" in names:
        op.execute(sa.update(plans).values(model=plans.c.document["model"].as_string()))
    if "operations.created_s" in names:
        op.execute(_operations())
        with op.batch_alter_table("operations") as batch:
            batch.alter_column("created_s", existing_type=sa.Double(), nullable=False)
    if "generations.operation_id" in names:
        op.execute(_generations())
    for table in Base.metadata.sorted_tables:
        for index in table.indexes:
            index.create(bind, checkfirst=True)
    if "audit" not in there:
        op.bulk_insert(Base.metadata.tables["audit_head"], [{"id": 1, "seq": 0, "hash": ""}])
        for statement in GUARDS[bind.dialect.name]:
            op.execute(sa.text(statement))


def _lacked(table: sa.Table, before: Inspector, there: set[str]) -> list[sa.Column[object]]:
    """The columns that a table of an earlier version has not got."""
    if table.name not in there:
        return []
    has = {column["name"] for column in before.get_columns(table.name)}
    return [column for column in table.columns if column.name not in has]


def _operations() -> sa.Update:
    """An operation began with its first phase; older ones are about the model of their plan."""
    documents = operations.c.document
    of_plan = sa.select(plans.c.model).where(plans.c.id == documents["plan_id"].as_string()).scalar_subquery()
    began_s = documents["phases", 0, "at"].as_float()
    return sa.update(operations).values(
        model=sa.func.coalesce(documents["model"].as_string(), of_plan),
        created_s=sa.func.coalesce(began_s, operations.c.updated_s),
    )


def _generations() -> sa.Update:
    """The switch to a generation's topology during which it was written is the one that made it."""
    result = operations.c.document["result"]
    made = sa.and_(
        result["phase"].as_string() == "done",
        result["target"].as_string() == generations.c.topology,
        generations.c.at_s.between(operations.c.created_s, operations.c.updated_s),
        sa.or_(generations.c.model.is_(None), generations.c.model == operations.c.model),
    )
    first = sa.select(sa.func.min(operations.c.id)).where(made).scalar_subquery()
    model = sa.select(sa.func.min(operations.c.model)).where(made).scalar_subquery()
    return sa.update(generations).values(operation_id=first, model=sa.func.coalesce(generations.c.model, model))
