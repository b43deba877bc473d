"""The chapters of the companion as programs: their blocks are run in order, and what they print is what is shown.

A `python` or `bash` block with a `text` block after it prints that text. One after `<!-- long -->` takes more than some
seconds and is run by `make docs-long` alone. After a change, this writes what the blocks print into the chapters:

python tests/docs/chapters.py docs/lectures/1-neural-attention.md
"""

import builtins
import contextlib
import io
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"(?P<long><!-- long -->\n+)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")


@dataclass(frozen=True)
class Part:
    """A block that is run, what it shall print (None: nothing is shown), and where in the page that stands."""

    kind: str
    code: str
    shown: str | None
    long: bool
    where: slice
    line: int


def parts(page):
    """The blocks of a chapter that are run, in order."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for number, one in enumerate(found):
        if one["kind"] not in ("python", "bash"):
            continue
        after = found[number + 1] if number + 1 < len(found) else None
        follows = after is not None and after["kind"] == "text" and not text[one.end() : after.start()].strip()
        yield Part(
            kind=one["kind"],
            code=one["text"],
            shown=after["text"] if follows else None,
            long=one["long"] is not None,
            where=slice(after.start("text"), after.end("text")) if follows else slice(0, 0),
            line=text.count("\n", 0, one.start("text")) + 1,
        )


def run(part, names):
    """What the block prints, `names` being what those before it have defined."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if part.kind == "python":
            exec(compile("\n" * (part.line - 1) + part.code, "chapter", "exec"), names)
        else:
            from regard.cli import main

            for line in part.code.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    assert words[0] == "regard", f"line {part.line}: {line}"
                    code = main(words[1:])
                    wrong = code == 1 and words[1] == "check"  # a wrong answer, shown for what is said of it
                    assert code == 0 or wrong, f"line {part.line}: {line}: exit code {code}"
    return out.getvalue()


def namespace():
    return {"__name__": "chapter", "__builtins__": builtins}


def difference(shown, printed):
    """Where two outputs differ, in words; empty where they say the same, numbers to the digits shown."""
    texts = [NUMBER.sub("#", text).split() for text in (shown, printed)]
    if texts[0] != texts[1]:
        return f"shown:\n{shown}\nprinted:\n{printed}"
    for one, other in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        digits = one.partition("e")[0].partition(".")[2]
        power = int(one.partition("e")[2] or 0)
        unit = 10.0 ** (power - len(digits)) if digits or power else 0.0  # a whole number is itself
        if abs(float(one.replace(",", "")) - float(other.replace(",", ""))) > 1.01 * unit:
            return f"shown {one}, printed {other}, in:\n{printed}"
    return ""


def write_outputs(page, *, long):
    """Put what the blocks print in the place of what is shown."""
    names, changes = namespace(), []
    for part in parts(page):
        if long or not part.long:
            printed = run(part, names)
            if part.shown is not None:
                changes.append((part.where, printed))
    text = page.read_text(encoding="utf-8")
    for where, printed in reversed(changes):
        text = (
            text[: where.start] + "\n".join(line.rstrip() for line in printed.splitlines()) + "\n" + text[where.stop :]
        )
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name != "--long":
            write_outputs(Path(name), long="--long" in sys.argv)
