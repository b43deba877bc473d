"""A real Chromium without a window, driven over a pipe by its DevTools protocol: nothing but the standard library."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PATH = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # a container's root may not have one; the page is our own
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)
KEYS = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    ".": 190,
    "+": 187,
    "-": 189,
}


class Chromium:
    """The browser's process. `page` opens a file in a fresh tab."""

    def __init__(self) -> None:
        assert PATH is not None
        self.profile = tempfile.mkdtemp(prefix="regard-chromium-")
        (read_in, self._out), (self._in, write_out) = _pipe(), _pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        start = f'exec "$@" 3<&{read_in} 4>&{write_out}'
        command = ["bash", "-c", start, "chromium", PATH, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            command, pass_fds=(read_in, write_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read_in)
        os.close(write_out)
        self._rest, self._number, self.events = b"", 0, []

    def close(self) -> None:
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self.process.terminate()
        self.process.wait(10)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, timeout: float = 30, **params: Any) -> dict[str, Any]:
        """The answer to one command. Events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        until = time.monotonic() + timeout
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise OSError("the browser has gone")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def page(self, file: Path | str, *, dark: bool = False, width: int = 1200, height: int = 1400) -> "Page":
        return Page(self, file, dark, width, height)


class Page:
    """One tab. What the page logs, throws and asks the network for is kept."""

    def __init__(self, browser: Chromium, file: Path | str, dark: bool, width: int, height: int) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        self.address = file if isinstance(file, str) else file.resolve().as_uri()
        found = self.call("Page.navigate", timeout=60, url=self.address)
        assert "errorText" not in found, found["errorText"]
        self.settle()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def phone(self) -> None:
        """Show the page as a phone does, 390 pixels wide and to be touched."""
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
        self.wait("matchMedia('(hover: none) and (pointer: coarse)').matches && innerWidth === 390")
        self.settle()

    def js(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 20) -> Any:
        """The value of an expression, once it is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if value := self.js(expression):
                return value
            time.sleep(0.02)
        raise TimeoutError(f"never true in the page: {expression}")

    def settle(self) -> None:
        """Wait until the page has drawn what it was asked for last."""
        self.wait(
            "document.readyState === 'complete' && !document.querySelector('#view')?.textContent.startsWith('Reading')"
        )

    def texts(self, selector: str) -> list[str]:
        return self.js(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")

    def text(self, selector: str) -> str:
        return self.js(f"document.querySelector({json.dumps(selector)}).textContent")

    def middle(self, selector: str) -> tuple[float, float]:
        """Where an element is, scrolled into sight; two frames later the browser's other half knows of it too."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{found} !== null")
        x, y = self.js(
            f"(async () => {{ {found}.scrollIntoView({{ block: 'nearest' }});"
            "const frame = () => new Promise(requestAnimationFrame); await frame(); await frame();"
            f"const box = {found}.getBoundingClientRect();"
            "return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        return x, y

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def point(self, selector: str) -> None:
        self.mouse("mouseMoved", *self.middle(selector))

    def away(self) -> None:
        """Take the pointer off everything: what was scrolled may have come to lie under it."""
        self.mouse("mouseMoved", 1, 1)

    def click(self, selector: str) -> None:
        """What a hand does: move there, press, let go."""
        x, y = self.middle(selector)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def key(self, name: str, *, shift: bool = False) -> None:
        common = {
            "key": name,
            "modifiers": 8 if shift else 0,
            "windowsVirtualKeyCode": KEYS.get(name, ord(name[0].upper())),
        }
        text = {"text": name} if len(name) == 1 else {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.settle()

    def choose(self, selector: str, value: Any) -> None:
        """Choose an option of a list by its value."""
        self.js(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            f"one.value = {json.dumps(str(value))}; one.dispatchEvent(new Event('change')); }})()"
        )
        self.settle()

    def screenshot(self, path: Path, selector: str | None = None) -> None:
        clip = {}
        if selector is not None:
            box = self.js(
                f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                "return [box.left + scrollX, box.top + scrollY, box.width, box.height]; })()"
            )
            clip = {"clip": dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"scale": 1}}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def _mine(self, *methods: str) -> list[dict[str, Any]]:
        self.js("1")  # whatever was on its way has come
        return [
            event["params"]
            for event in self.browser.events
            if event.get("sessionId") == self.session and event["method"] in methods
        ]

    def complaints(self) -> list[Any]:
        """What went wrong in the page: exceptions, errors and warnings it logged."""
        logged = [
            one for one in self._mine("Runtime.consoleAPICalled") if one["type"] in ("error", "warning", "assert")
        ]
        entries = [
            one["entry"] for one in self._mine("Log.entryAdded") if one["entry"]["level"] in ("error", "warning")
        ]
        return [*self._mine("Runtime.exceptionThrown"), *logged, *entries]

    def requests(self) -> list[str]:
        """Every address that the page asked for, its own left out, and pictures that it wrote itself (`data:`)."""
        asked = [one["request"]["url"] for one in self._mine("Network.requestWillBeSent")]
        own = (self.address.partition("#")[0], "about:blank")
        return [url for url in asked if url.partition("#")[0] not in own and not url.startswith("data:image/")]


def _pipe() -> tuple[int, int]:
    """A pipe whose descriptors are out of the way of 3 and 4."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
