"""The forms in which files have rows, and what a manifest's field_mapping makes of their columns."""

from __future__ import annotations

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.forms import Form
from expert_cli.data.rows.kinds import KINDS, choose_columns

FORMS: dict[str, tuple[type[Rows], Form]] = {
    name: (kind, form) for kind in KINDS.values() for name, form in kind.row_forms.items()
}


def mapping_of(form: Form) -> ColumnMapping:
    named = {name: value for name, value in form.mapping.items() if name != "roles"}
    roles = tuple((said, role) for role, saying in form.mapping.get("roles", {}).items() for said in saying)
    return ColumnMapping(**named, roles=roles)


def columns_of(form: Form) -> Columns:
    return choose_columns(list(form.row), mapping_of(form), "x")
