"""The site of the documents, opened from disk: its search is a worker, which a page from disk may not start."""

from pathlib import Path

SHIM = Path(__file__).parents[2] / "docs" / "assets" / "iframe-worker.js"


def test_a_worker_runs_in_a_page_from_disk(browser, tmp_path):
    (tmp_path / "shim.js").write_bytes(SHIM.read_bytes())
    (tmp_path / "first.js").write_text("var first = 1")
    (tmp_path / "second.js").write_text("var second = first + 1")
    (tmp_path / "worker.js").write_text(
        "addEventListener('message', async (asked) => {\n"
        "  await importScripts('first.js', 'second.js')\n"
        "  postMessage(asked.data + second)\n"
        "})\n"
    )
    (tmp_path / "page.html").write_text(
        "<script src='shim.js'></script><body></body><script>\n"
        "const worker = new Worker('worker.js')\n"
        "worker.addEventListener('message', (told) => { window.told = told.data })\n"
        "worker.postMessage(40)\n"
        "</script>"
    )
    page = browser.page(tmp_path / "page.html")
    assert page.wait("window.told") == 42
