"""Help on a terminal: the text that a pipe gets, word for word and line for line, with rich's styles.

Not typer's own rich help: its panels break an example into several lines, take `[data]` in a help text for markup and
drop it, leave `regard compare` 22 columns of 80 to say what an option does, and put their boxes into a pipe too.
"""

import re
import sys

STYLES = {
    "heading": "bold",
    "code": "bold",
    "name": "bold cyan",
    "kind": "yellow",
    "default": "dim",
}

PATTERNS = (
    r"^(?P<heading>[A-Z]\w+:)",
    r"\n\n  (?P<heading>[^\n]*:)(?=\n    )",  # of examples
    r"^  (?P<name>[\w-]+)(?=  | <)",  # a command or an argument, in its column
    r"(?<![\w-])(?P<name>--?[a-zA-Z][\w-]*)",
    r"^  (?:-\w, )?--[\w-]+ (?P<kind>[^\s/<]\S*)",
    r"(?P<kind><[\w\[\] ]+>)",
    r"(?P<code>`[^`\n]+`)",
    r"  (?P<default>\[[^\]]+\])$",
)


def styled(text: str) -> str:
    """A help text with the styles that standard output shows: none at all where it is no terminal."""
    if not sys.stdout.isatty():
        return text
    # Here, so that a command that shows no help does not wait for rich.
    from rich.console import Console
    from rich.text import Text

    console, shown = Console(file=sys.stdout, highlight=False), Text(text)
    for pattern in PATTERNS:
        for found in re.finditer(pattern, text, re.MULTILINE):
            for group, style in STYLES.items():
                if group in found.groupdict():
                    shown.stylize(style, *found.span(group))
    with console.capture() as capture:
        console.print(shown, soft_wrap=True, end="")
    return capture.get()
