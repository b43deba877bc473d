"""One self-contained HTML page that shows where a model looked, from one JSON document."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from regard.look.document import Document

SCRIPTS = (
    "core.js",
    "packing.js",
    "colour.js",
    "matrix.js",
    "chart.js",
    "tiles.js",
    "heads.js",
    "heat.js",
    "grid.js",
    "text.js",
    "neurons.js",
    "decoding.js",
    "edits.js",
    "patches.js",
    "positions.js",
    "history.js",
    "export.js",
    "page.js",
)


def render(document: Document | Mapping[str, Any]) -> str:
    """The whole page as HTML: styles, scripts and data inside it, nothing fetched from anywhere."""
    checked = document if isinstance(document, Document) else Document.from_mapping(document)
    style = _viewer("style.css")
    # One function around all files: their names meet each other and nothing else.
    script = "(() => {\n" + "\n".join(_viewer(name) for name in SCRIPTS) + "})();\n"
    return Template(_viewer("page.html")).substitute(
        # Half of a surrogate pair cannot be written to a file; in the document below it is escaped.
        title=html.escape(checked.title.encode("utf-8", "replace").decode()),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        document=embed(checked.to_mapping()),
    )


def framed(document: Document | Mapping[str, Any], height: int = 760) -> str:
    """The page in a frame that a notebook can show: it runs its own scripts and reaches nothing around it."""
    inside = html.escape(render(document), quote=True)
    return (
        f'<iframe srcdoc="{inside}" sandbox="allow-scripts allow-downloads" width="100%" height="{height}" '
        f'style="border: 0" title="Where the model looked"></iframe>'
    )


def embed(value: Any) -> str:
    """JSON that is safe between script tags: no character in it can end the tag, open a comment or break a line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _viewer(name: str) -> str:
    return resources.files("regard.look").joinpath("viewer", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What the page's security policy calls the text: only what we wrote runs."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
