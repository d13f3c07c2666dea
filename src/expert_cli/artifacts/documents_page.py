"""The first documents of token stores as one HTML file, which needs no network and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expert_cli.artifacts.html_page import page_environment, page_part
from expert_cli.utils.files import write_text


def write_documents(stores: Sequence[Any], to: Path) -> None:
    """Write what `pretokenize --show` found of each store into the file `to`; stores: its reports, with what they show."""
    style = page_part("report.css") + page_part("documents.css")
    template = page_environment().from_string(page_part("documents.html.j2"))
    write_text(to, template.render(stores=stores, style=style))
