"""Self-contained HTML pages: the viewer of one JSON document, and static pages of text, tables and charts."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from string import Template
from typing import Any

from regard.errors import DataError
from regard.look.charts import STYLE
from regard.look.document import Document

SCRIPTS = [
    f"{name}.js"
    for name in (
        *("core", "packing", "colour", "matrix", "chart", "tiles", "heads", "heat", "grid", "text"),
        *("neurons", "calculator", "flow", "units", "decoding", "edits", "patches", "sound", "trees"),
        *("positions", "history", "export", "page"),
    )
]
"""In the order in which the page runs them."""


def render(document: Document | Mapping[str, Any]) -> str:
    """The whole page as HTML: styles, scripts and data inside it, nothing fetched from anywhere."""
    checked = document if isinstance(document, Document) else Document.from_mapping(document)
    style, script = _style_and_script()
    return Template(_viewer("page.html")).substitute(
        # Half of a surrogate pair cannot be written to a file; in the document below it is escaped.
        title=escape(checked.title.encode("utf-8", "replace").decode()),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        document=embed(checked.to_mapping()),
    )


def _style_and_script() -> tuple[str, str]:
    # One function around all files: their names meet each other and nothing else.
    return _viewer("style.css"), "(() => {\n" + "\n".join(_viewer(name) for name in SCRIPTS) + "})();\n"


_BESIDE_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); height: 100vh; }
iframe { box-sizing: border-box; width: 100%; height: 100%; border: 0; }
iframe + iframe { border-left: 2px solid #8886; }
@media (max-width: 900px) { body { grid-template-columns: minmax(0, 1fr); grid-auto-rows: 100vh; height: auto; } }
"""
_BESIDE_SCRIPT = """
const frames = [...document.querySelectorAll("iframe")];
addEventListener("message", (event) => {
  if (!event.data?.regard || !frames.some((frame) => frame.contentWindow === event.source)) return;
  const others = frames.filter((frame) => frame.contentWindow !== event.source);
  for (const frame of others) frame.contentWindow.postMessage(event.data, "*");
});
"""


def side_by_side(first: Document, second: Document) -> str:
    """Two models or checkpoints on the same inputs: both pages in one, where what is chosen in one is in the other."""
    counts = [len(one.sentences) for one in (first, second)]
    if counts[0] != counts[1]:
        raise DataError(f"{counts[0]} sentences beside {counts[1]}: both must show the same inputs")
    own, style = _style_and_script(), _BESIDE_STYLE
    # What a frame may do is no more than the page around it may.
    frames = "".join(
        f'<iframe srcdoc="{escape(render(replace(one, beside=True)), quote=True)}" '
        f'sandbox="allow-scripts allow-downloads" title="{escape(one.title, quote=True)}"></iframe>'
        for one in (first, second)
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}' '{_hash(own[0])}'; "
        f"script-src '{_hash(_BESIDE_SCRIPT)}' '{_hash(own[1])}'; img-src data:; media-src data:; base-uri 'none'"
    )
    title = escape(f"{first.title} beside {second.title}".encode("utf-8", "replace").decode())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title><style>{style}</style></head><body>{frames}<script>{_BESIDE_SCRIPT}</script></body></html>
"""


def framed(document: Document | Mapping[str, Any], height: int = 760) -> str:
    """The page in a frame that a notebook can show."""
    return in_a_frame(render(document), "Where the model looked", height)


def in_a_frame(page: str, title: str, height: int = 760) -> str:
    """A whole page in a frame: it runs its own scripts and reaches nothing around it."""
    return (
        f'<iframe srcdoc="{escape(page, quote=True)}" sandbox="allow-scripts allow-downloads" width="100%" '
        f'height="{height}" style="border: 0" title="{escape(title, quote=True)}"></iframe>'
    )


def embed(value: object) -> str:
    """JSON that is safe between script tags: no character in it can end the tag, open a comment or break a line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _viewer(name: str) -> str:
    return resources.files("regard.look").joinpath("viewer", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What the page's security policy calls the text: only what we wrote runs."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


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
th.text, td.text { text-align: left; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; }
code { font-size: .92em; } meter { width: 5rem; }
"""


def static_page(title: str, parts: Iterable[str]) -> str:
    """A page without scripts, light or dark as the reader likes; `parts` are HTML as the functions below make it."""
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


def percent(share: float | None, digits: int = 1) -> str:
    return "-" if share is None else f"{100 * share:.{digits}f} %"


class Html(str):
    """A cell that is HTML already."""


def meter(share: float) -> Html:
    return Html(f'<meter min="0" max="1" value="{share:.4f}"></meter>')


def table(names: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> str:
    """A table whose first columns are text, aligned left, and the others numbers."""

    def line(cells: Sequence[str], tag: str, scope: str = "") -> str:
        kinds = [' class="text"' if place < text_columns else "" for place in range(len(cells))]
        shown = [cell if isinstance(cell, Html) else escape(cell) for cell in cells]
        return f"<tr>{''.join(f'<{tag}{scope}{k}>{c}</{tag}>' for k, c in zip(kinds, shown, strict=True))}</tr>"

    top, body = line(names, "th", ' scope="col"'), "".join(line(row, "td") for row in rows)
    return f'<div class="scroll"><table><thead>{top}</thead><tbody>{body}</tbody></table></div>'
