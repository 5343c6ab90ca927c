"""Tables of notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: int,
    caption: str = "",
    marked: int | None = None,
    below: Iterable[str] = (),
) -> str:
    """HTML of a table whose first `left` columns are texts; the row `marked` stands out. Escapes everything."""

    def cells(tag: str, values: Sequence[object], style: str) -> str:
        return "".join(
            f'<{tag} style="text-align: {"left" if column < left else "right"}{style}">{html.escape(str(value))}</{tag}>'
            for column, value in enumerate(values)
        )

    lines = ["<table>"]
    if caption:
        lines.append(f'<caption style="text-align: left">{html.escape(caption)}</caption>')
    lines.append(f"<thead><tr>{cells('th', head, '')}</tr></thead><tbody>")
    for index, row in enumerate(rows):
        lines.append(f"<tr>{cells('td', row, '; font-weight: bold' if index == marked else '')}</tr>")
    lines.append("</tbody></table>")
    lines.extend(f"<p>{html.escape(sentence)}</p>" for sentence in below)
    return "\n".join(lines)
