"""How fast the viewer's page of a long text opens, and how smoothly it moves, in headless Chromium; gates too.

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

LAYERS, HEADS, SECONDS, UNITS = 6, 8, 4.0, 512
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
            path.write_text(render(documents.long_recurrence(tokens, UNITS)), encoding="utf-8")
            print(f"one LSTM of {UNITS} units over {tokens:,} steps: {path.stat().st_size / 1e6:.1f} MB")
            for view in ("units", "flow"):
                opened(browser, path, view)
            scrolled(browser, path)
        finally:
            browser.close()


def opened(browser: Chromium, path: Path, view: str) -> None:
    """From asking for the page to the view shown, by the browser's own clock."""
    page = browser.page(f"{path.as_uri()}#view={view}&attention={LAYERS - 1}&heads=0")  # what is not there is ignored
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


def scrolled(browser: Chromium, path: Path) -> None:
    """Frames per second of the map of units while it is scrolled, and how long another order of them takes."""
    page = browser.page(f"{path.as_uri()}#view=units", width=1200, height=1000)
    page.wait("document.querySelector('canvas.unit-map') !== null")
    frames = page.js(
        f"""new Promise((done) => {{
            const frame = document.querySelector('.unit-frame');
            const start = performance.now();
            let count = 0;
            const on = (now) => {{
                if (now - start > {1000 * SECONDS}) return done(count / ((now - start) / 1000));
                count += 1;
                const far = frame.scrollHeight - frame.clientHeight;
                frame.scrollTop = far * Math.abs(((now - start) / 1500) % 2 - 1);
                frame.scrollLeft = count % 200;
                requestAnimationFrame(on);
            }};
            requestAnimationFrame(on);
        }})"""
    )
    print(f"units scrolled: {frames:.0f} frames per second")
    sort = "document.querySelector('[data-key=unit-sort]')"
    took = page.js(
        f"(async () => {{ const start = performance.now(); {sort}.value = 'tracks place in its line';"
        f"{sort}.dispatchEvent(new Event('change')); await new Promise(requestAnimationFrame);"
        "return performance.now() - start; })()"
    )
    print(f"units sorted by what they track: {took:.0f} ms")
    page.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
