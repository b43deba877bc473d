"""How fast the viewer's page of a long text opens, and how smoothly its map moves, in headless Chromium.

python benchmarks/viewer.py [tokens]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "browser"))

import documents  # type: ignore[import-not-found]
from chromium import Chromium  # type: ignore[import-not-found]

from regard.look.page import render

LAYERS, HEADS, SECONDS = 6, 8, 4.0
MAP = "document.querySelector('canvas.tiled')"


def main(tokens: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        start = time.perf_counter()
        path.write_text(render(documents.long(tokens, HEADS, LAYERS)), encoding="utf-8")
        weights = tokens * tokens * HEADS * LAYERS
        print(f"{tokens:,} tokens, {LAYERS} layers of {HEADS} heads: {weights / 1e6:.0f} million weights")
        print(f"written in {time.perf_counter() - start:.1f} s, {path.stat().st_size / 1e6:.1f} MB")
        browser = Chromium()
        try:
            for view in ("heads", "map"):
                opened(browser, path, view)
            moved(browser, path, tokens)
        finally:
            browser.close()


def opened(browser: Chromium, path: Path, view: str) -> None:
    """From asking for the page to the view shown, by the browser's own clock."""
    page = browser.page(f"{path.as_uri()}#view={view}&attention={LAYERS - 1}&heads=0")
    page.wait("document.documentElement.dataset.drawn")
    print(f"the view '{view}' is shown after {int(page.js('document.documentElement.dataset.after')) / 1000:.2f} s")
    page.close()


def moved(browser: Chromium, path: Path, tokens: int) -> None:
    """Frames per second of the map while it is dragged: whole, at a cell per pixel, and near enough to read tokens."""
    page = browser.page(f"{path.as_uri()}#view=map&attention={LAYERS - 1}&heads=0", width=1200, height=1000)
    page.wait(f"{MAP} !== null")
    page.js(f"{MAP}.focus()")
    for larger in (1, 5):
        for _ in range(larger):
            page.key("+")
        x, y = page.middle("canvas.tiled")
        page.mouse("mousePressed", x, y, button="left", clickCount=1)
        before, start, step = int(page.js(f"{MAP}.dataset.frames")), time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            step += 1
            far = 150 - abs(step * 3 % 600 - 300)
            page.mouse("mouseMoved", x + far, y + far, button="left", buttons=1)
        elapsed = time.perf_counter() - start
        drawn = int(page.js(f"{MAP}.dataset.frames")) - before
        page.mouse("mouseReleased", x, y, button="left", clickCount=1)
        tiles = page.js(f"{MAP}.dataset.tiles")
        print(f"dragged, {larger} steps nearer: {drawn / elapsed:.0f} frames per second, {tiles} tiles per frame")
    page.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
