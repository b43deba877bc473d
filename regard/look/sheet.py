"""A self-contained page of text, tables and charts: no script, nothing fetched, light or dark as the reader likes."""

from collections.abc import Iterable, Sequence
from html import escape

from regard.look.charts import STYLE

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; margin: 2rem auto; max-width: 62rem;
  padding: 0 1rem; background: var(--ground); color: var(--ink); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p, li { max-width: 46rem; } .muted { color: var(--muted); }
figure { margin: 1rem 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; }
code { font-size: .92em; }
"""


def sheet(title: str, parts: Iterable[str]) -> str:
    """The whole page. `parts` are HTML as the functions below make it."""
    # Half of a surrogate pair cannot be written to a file.
    name = escape(title.encode("utf-8", "replace").decode())
    body = "\n".join(parts).encode("utf-8", "replace").decode()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}</title><style>{STYLE}{_STYLE}</style></head><body>
<h1>{name}</h1>
{body}
</body></html>
"""


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, *, muted: bool = False) -> str:
    return f'<p class="muted">{escape(text)}</p>' if muted else f"<p>{escape(text)}</p>"


def figure(svg: str) -> str:
    return f"<figure>{svg}</figure>"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the rows."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
