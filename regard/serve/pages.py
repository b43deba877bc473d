"""Pages: the one at `/`, and those that show where a model looked, kept for a while under names nobody can guess."""

import base64
import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from importlib import resources
from string import Template

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from regard.serve.refusals import Refused, json_answer

MOST, MOST_BYTES, SECONDS = 32, 64 << 20, 15 * 60
"""How many pages are kept, how much of them, and for how long."""

AROUND = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class Pages:
    """What was made last; older pages go when there are too many, too much, or it is too long ago."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def keep(self, page: str) -> str:
        """The name under which the page can be had for a while."""
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._kept[name] = (time.monotonic(), page.encode())
            self._forget()
        return name

    def get(self, name: str) -> bytes | None:
        with self._lock:
            self._forget()
            return self._kept.get(name, (0.0, None))[1]

    def __len__(self) -> int:
        return len(self._kept)

    def _forget(self) -> None:
        old = time.monotonic() - SECONDS
        while self._kept and (
            len(self._kept) > MOST
            or next(iter(self._kept.values()))[0] < old
            or (len(self._kept) > 1 and sum(len(page) for _, page in self._kept.values()) > MOST_BYTES)
        ):
            self._kept.popitem(last=False)


def routes(pages: Pages, most: int) -> list[Route]:
    """The pages; the one at `/` knows that a request has at most `most` bytes."""
    front, policy = _front(most)

    async def index(request: Request) -> Response:
        return HTMLResponse(front, headers={"Content-Security-Policy": policy})

    async def looked(request: Request) -> Response:
        page = pages.get(request.path_params["name"])
        if page is None:
            return json_answer(Refused("not_found", "this page is no longer kept: look again"))
        # The page brings its own policy; this one adds what a page cannot say of itself.
        return HTMLResponse(page, headers={"Content-Security-Policy": AROUND})

    return [Route("/", index), Route("/look/{name}", looked)]


def _front(most: int) -> tuple[str, str]:
    """The page at `/` in one piece, and a policy under which only what we wrote runs."""
    style, script, page = (_file(name) for name in ("style.css", "page.js", "page.html"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    sources = {
        **{"default-src": "'none'", "style-src": f"'sha256-{hashes[0]}'", "script-src": f"'sha256-{hashes[1]}'"},
        **{"connect-src": "'self'", "img-src": "data:"},  # an image that was dropped is shown
    }
    policy = "; ".join(f"{name} {source}" for name, source in sources.items())
    return Template(page).substitute(style=style, script=script, most=most), f"{policy}; {AROUND}"


def _file(name: str) -> str:
    return resources.files("regard.serve").joinpath("page", name).read_text(encoding="utf-8")
