"""What lists are sorted and filtered by, and which switch made a generation.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

plans = sa.table("plans", sa.column("id"), sa.column("document", sa.JSON), sa.column("model"))
operations = sa.table(
    "operations",
    sa.column("id"),
    sa.column("document", sa.JSON),
    sa.column("created_s"),
    sa.column("updated_s"),
    sa.column("model"),
)
generations = sa.table(
    "generations", sa.column("topology"), sa.column("at_s"), sa.column("model"), sa.column("operation_id")
)


def upgrade() -> None:
    """Add the columns, fill them from the documents, and index what is sorted."""
    op.add_column("plans", sa.Column("model", sa.String))
    op.add_column("operations", sa.Column("model", sa.String))
    op.add_column("operations", sa.Column("created_s", sa.Double))
    op.add_column("generations", sa.Column("operation_id", sa.String))
    op.execute(sa.update(plans).values(model=plans.c.document["model"].as_string()))
    op.execute(_operations())
    op.execute(_generations())
    with op.batch_alter_table("operations") as table:
        table.alter_column("created_s", existing_type=sa.Double(), nullable=False)
    for name in ("intents", "plans", "operations"):
        op.create_index(f"ix_{name}_created_s_id", name, ["created_s", "id"])


def _operations() -> sa.Update:
    """An operation began with its first phase; older ones are about the model of their plan."""
    said = operations.c.document
    of_plan = sa.select(plans.c.model).where(plans.c.id == said["plan_id"].as_string()).scalar_subquery()
    began_s = said["phases", 0, "at"].as_float()
    return sa.update(operations).values(
        model=sa.func.coalesce(said["model"].as_string(), of_plan),
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
    return sa.update(generations).values(
        operation_id=first, model=sa.func.coalesce(generations.c.model, model)
    )
