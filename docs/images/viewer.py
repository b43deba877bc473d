"""Take the screenshots of the viewer: each view of a trained run's page, in headless Chromium.

python docs/images/viewer.py runs/demo [a run with many checkpoints] [a page of pictures]
python docs/images/viewer.py --tree runs/trees
python docs/images/viewer.py --no-run
python docs/images/viewer.py --units runs/letters text.txt
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests" / "browser"))

import torch
import transformers
from chromium import Chromium  # type: ignore[import-not-found]
from PIL import Image

import regard
from regard.look import show
from regard.look.calculator import calculator
from regard.look.document import Document
from regard.look.page import render
from regard.tasks.looking import LookOptions, document, page

HERE = Path(__file__).resolve().parent

ANIMAL = "The animal didn't cross the street because it was too tired."
WIDE = ANIMAL.replace("tired", "wide")
AREA = "The agreement on the European Economic Area was signed in August 1992."
SHOTS = {
    "lines": "view=heads&attention=4&heads=all&pin=target.10",
    "map": "view=map&sentence=1&attention=5&heads=all&words=1",
    "heads": "view=grid",
    "text": "view=text&attention=4&heads=1&pin=target.10",
    "decoding": "view=decoding&attention=5&pin=target.10",
    "edits": "view=edits",
    "positions": "view=positions",
    "neurons-dark": "view=neurons&attention=4&heads=1&pin=target.10",
}


def main(directory: str, history: str | None = None, pictures: str | None = None) -> None:
    browser = Chromium()
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = Path(folder) / "page.html"
            run = regard.load(directory, "cpu")
            found = document(run, [ANIMAL, AREA, WIDE], LookOptions(edits=True), beam=3)
            path.write_text(render(found), encoding="utf-8")
            clicks = {"edits": ["[data-key=kind-masked]", f"[data-key=edit-{pronoun_edit(found)}]"]}
            for name, where in SHOTS.items():
                take(browser, f"{path.as_uri()}#{where}", name, clicks.get(name, ()))
            if history is not None:
                trained = page(regard.load(history, "cpu"), [ANIMAL, AREA], LookOptions(history=True, vectors=False))
                path.write_text(trained, encoding="utf-8")
                take(browser, f"{path.as_uri()}#view=history&attention=5", "training")
            if pictures is not None:
                take(
                    browser,
                    f"{Path(pictures).resolve().as_uri()}#view=patches&sentence=1&attention=3&heads=1",
                    "picture",
                )
        finally:
            browser.close()


def pronoun_edit(found: Document) -> int:
    """Of the masked heads one without which the animal is no longer `il`; which it is varies by run."""
    masked = [one for one in found.sentences[0].edited if one.edit == "masked"]
    return next(place for place, one in enumerate(masked) if one.text is not None and " qu'elle " in one.text)


def tree(directory: str) -> None:
    """The tree that a parser wrote, a bracket chosen."""
    browser = Chromium()
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = Path(folder) / "page.html"
            path.write_text(page(regard.load(directory, "cpu"), [ANIMAL]), encoding="utf-8")
            take(browser, f"{path.as_uri()}#view=trees&attention=3&pin=target.12", "tree")
        finally:
            browser.close()


def no_run() -> None:
    """The calculator, and a model of another library: a BERT with fresh weights."""
    config = transformers.BertConfig(vocab_size=60, hidden_size=48, num_hidden_layers=4, num_attention_heads=6)
    torch.manual_seed(0)
    model, words = transformers.BertModel(config).eval(), ["[CLS]", *ANIMAL.rstrip(".").split(), ".", "[SEP]"]
    with torch.inference_mode(), regard.watch(model, parts=("weights", "q", "k", "v")) as trace:
        model(input_ids=torch.arange(len(words))[None])
    shown = {"any": (show(trace, words), "view=grid"), "calculator": (calculator(), "sentence=4&pin=source.2")}
    shoot({name: (render(document), where) for name, (document, where) in shown.items()})


def units(directory: str, file: str) -> None:
    """A recurrent language model's units on a text, sorted by the place in its line that one of them tracks."""
    made = page(regard.load(directory, "cpu"), [Path(file).read_text(encoding="utf-8")])
    shoot({"units": (made, "view=units")})


def shoot(pages: dict[str, tuple[str, str]]) -> None:
    browser = Chromium()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, (text, where) in pages.items():
                path = Path(folder) / f"{name}.html"
                path.write_text(text, encoding="utf-8")
                take(browser, f"{path.as_uri()}#{where}", name)
        finally:
            browser.close()


def take(browser: Chromium, address: str, name: str, clicks: Sequence[str] = ()) -> None:
    seen = browser.page(address, dark=name.endswith("dark"), width=1100, height=700)
    for one in clicks:
        seen.click(one)
    if name == "units":
        seen.choose("[data-key=unit-sort]", "tracks place in its line")
    path = HERE / f"look-{name}.png"
    seen.screenshot(path, "body")
    # 256 colours are enough for flat graphics, and a third of the bytes.
    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)
    print(path, path.stat().st_size)
    assert not seen.complaints(), seen.complaints()
    seen.close()


if __name__ == "__main__":
    others = {"--tree": tree, "--no-run": no_run, "--units": units}
    others[sys.argv[1]](*sys.argv[2:]) if sys.argv[1] in others else main(*sys.argv[1:4])
