"""What turns the documents into the site: pages for the API, links out of `docs/`, formulas, live pages of the viewer.

mkdocs calls the functions `on_...` (see mkdocs.yml). Documents are written for reading in the repository too, so links
go to files of the repository; here they go to a copy of the file, or to the page that a document of the root becomes.
"""

import json
import posixpath
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    name: f"about/{name.lower()}"
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "RELEASING.md")
}
"""Documents of the root, and where on the site they are."""

REFERENCE = {
    "The front door": ("regard.tasks.run", "regard.tasks.config", "regard.tasks.planning", "regard.trainer.trainer"),
    "Training": (
        "regard.trainer.distillation",
        "regard.training.config",
        "regard.training.objectives",
        "regard.tasks.spec",
    ),
    "Data": ("regard.data.readers", "regard.data.iterables", "regard.data.batches", "regard.text"),
    "Decoding": ("regard.decode.config", "regard.decode.stepper", "regard.decode.constraints", "regard.tasks.ensemble"),
    "Looking": ("regard.look.watch", "regard.look.document", "regard.look.page", "regard.tasks.looking"),
    "Analysis": (
        *("regard.analysis.head_roles", "regard.analysis.pruning", "regard.analysis.training_curves"),
        *("regard.comparison.experiment", "regard.metrics.text"),
    ),
    "Parts": (
        *("regard.nn.attention", "regard.nn.masks", "regard.nn.positions", "regard.nn.blocks", "regard.nn.recurrent"),
        *("regard.nn.attention_scores", "regard.nn.kv_cache"),
    ),
    "Models": ("regard.models.transformer", "regard.models.gpt", "regard.models.bert", "regard.models.pointer_network"),
    "Other tools and servers": ("regard.interop.huggingface", "regard.serve", "regard.plugins", "regard.errors"),
}
"""The API reference: modules whose docstrings make its pages."""

LINK = re.compile(r"(?P<before>\]\(|src=\")(?P<target>[^)\"\s]+)(?P<after>[)\"])")
FENCE = re.compile(r"^(?P<space> *)```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)

FETCHED = re.compile(r'<(?:script|link)(?! rel="canonical")[^>]* (?:src|href)="(?P<address>(?:https?:)?//[^"]+)"')

_live: Path | None = None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in `docs/`: documents of the root, sources that are linked to, reference and live pages."""
    for name, place in ROOT_PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text(encoding="utf-8")))
    for title, modules in REFERENCE.items():
        body = "\n\n".join(f"::: {module}" for module in modules)
        files.append(File.generated(config, _reference(title), content=f"# {title}\n\n{body}\n"))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=_notebook(path)))
    rows = "\n".join(
        f"| [{title}]({posixpath.basename(_reference(title))}) | {', '.join(f'`{one}`' for one in modules)} |"
        for title, modules in REFERENCE.items()
    )
    index = f"# API reference\n\nFrom the docstrings of the code.\n\n| | modules |\n| --- | --- |\n{rows}\n"
    files.append(File.generated(config, "reference/index.md", content=index))
    linked = {
        target
        for file in list(files)
        if file.src_uri.endswith(".md")
        for match in LINK.finditer(file.content_string)
        if (target := _outside(file.src_uri, match["target"])) is not None
    }
    for target in sorted(linked):
        files.append(File.generated(config, f"source/{target}", abs_src_path=str(ROOT / target)))
    for name, page in live_pages().items():
        files.append(File.generated(config, f"live/{name}.html", content=page))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links as they are on the site, formulas as MathML, and comments for tests left out."""
    here = page.file.src_uri
    parts, end = [], 0
    for block in FENCE.finditer(markdown):
        parts += [_linked(markdown[end : block.start()], here), _block(block)]
        end = block.end()
    return "".join([*parts, _linked(markdown[end:], here)])


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Nothing is fetched from elsewhere: neither scripts nor styles nor fonts."""
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} fetches {found['address']}: keep a copy of it under docs/assets")
    return output


def on_post_build(config: MkDocsConfig) -> None:
    if _live is not None:
        shutil.rmtree(_live, ignore_errors=True)


def _notebook(path: Path) -> str:
    """A notebook as a page: its texts, and its code as blocks."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    made = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell, text in zip(cells, texts, strict=True)
    ]
    note = f"*This is the notebook [{path.name}](../notebooks/{path.name}), without its outputs.*"
    return "\n\n".join([made[0], note, *made[1:]]) + "\n"


def _block(block: re.Match[str]) -> str:
    if block["kind"] != "math":
        return block[0]
    from latex2mathml.converter import convert

    formula = convert(block["text"].strip(), display="block")
    # As wide as it needs to be, and never with a scroll bar at its side.
    return f'<div class="arithmatex" style="overflow-y: hidden; padding: 0.3em 0">{formula}</div>'


def _linked(text: str, here: str) -> str:
    def follow(match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        outside = _outside(here, match["target"])
        place = _document(here, target)
        if place is None and outside is None:
            return match[0]
        found = posixpath.relpath(place or f"source/{outside}", posixpath.dirname(here) or ".")
        return f"{match['before']}{found}{'#' + anchor if anchor and place else ''}{match['after']}"

    return LINK.sub(follow, text.replace("<!-- long -->\n", ""))


def _named(here: str, target: str) -> str | None:
    """The file of the repository that a link names; None where it names none."""
    path = target.partition("#")[0]
    if not path or re.match(r"[a-z]+:", path):
        return None
    origin = {place: name for name, place in ROOT_PAGES.items()}.get(here, f"docs/{here}")
    if here.startswith("notebooks/"):
        origin = here
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))


def _document(here: str, target: str) -> str | None:
    """Where on the site a document is that a link names."""
    named = _named(here, target)
    if named is None or not named.endswith(".md"):
        return None
    return named.removeprefix("docs/") if named.startswith("docs/") else ROOT_PAGES.get(named)


def _outside(here: str, target: str) -> str | None:
    """The file that a link names, where it is none of the documents and is there."""
    named = _named(here, target)
    if named is None or _document(here, target) is not None or not (ROOT / named).is_file():
        return None
    inside = named.startswith("docs/") and not named.endswith((".py", ".ipynb"))
    return None if inside and here not in ROOT_PAGES.values() else named


def _reference(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '-')}.md"


TOY = [
    ("merci", "thanks"),
    ("je suis étudiant", "I am a student"),
    ("je suis", "I am"),
    ("étudiant", "a student"),
    ("un étudiant", "a student"),
    ("merci étudiant", "thanks student"),
]
"""Pairs of a toy that trains in seconds."""


def live_pages() -> dict[str, str]:
    """Pages of the viewer by name, from models that are trained here in some seconds."""
    global _live
    import regard
    from regard.look.page import render

    _live = Path(tempfile.mkdtemp(prefix="regard-site-"))
    small: dict[str, Any] = {"width": 32, "heads": 2, "feed_forward": 64, "max_len": 32, "dropout": 0.0}
    run = regard.train(
        "tiny",
        _live / "toy",
        data={"train": TOY * 8, "max_len": 32},
        tokenizer={"kind": "word", "min_count": 1},
        model=small,
        train={"steps": 150, "warmup": 20, "batch_tokens": 256, "threads": 1, "save_every": 1000, "device": "cpu"},
    )
    texts = ["merci", "je suis étudiant", "un étudiant"]
    return {"translation": render(run.look(texts, beam=2, edits=True))}
