"""What the pages that people open in a browser share: how they are rendered, and their parts in `page/`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from expert_cli.utils.redaction import redact

if TYPE_CHECKING:
    import jinja2


def page_environment() -> jinja2.Environment:
    """Return what renders a page: everything is escaped, secrets are cut out; what is undefined is empty."""
    import jinja2
    from markupsafe import Markup

    def redacted(value: Any) -> Any:
        """Cut secrets out of a text before it is escaped; the page's own parts are markup."""
        return value if isinstance(value, (Markup, int, float)) else redact("" if value is None else str(value))

    return jinja2.Environment(
        autoescape=True, undefined=jinja2.ChainableUndefined, trim_blocks=True, lstrip_blocks=True, finalize=redacted
    )


@cache
def page_part(name: str) -> str:
    """Return a file of `page/`."""
    return files("expert_cli.artifacts").joinpath(f"page/{name}").read_text(encoding="utf-8")
