"""A real Chromium without a window, used as a person would: look at a page, and click."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "Chromium", "Page"]

#: Path of the browser; None if there is none.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
#: Time limit for what a page is expected to show, in seconds.
PATIENCE = 60.0
#: Time limit for the browser's end, in seconds.
_END = 10.0
#: A page that hasn't changed for so long is complete, in seconds.
_STILL = 2.0

# Starts Chromium, which reads commands from descriptor 3 and answers on 4.
_STARTER = """
import fcntl, os, sys
theirs, answers = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(theirs, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
# The innermost visible element that matches; its text, with spaces joined, is the given one.
_FIND = """(selector, text) => {
  const said = (one) => (one.innerText || one.value || "").replace(/\\s+/g, " ").trim();
  const found = [...document.querySelectorAll(selector)].filter((one) =>
    one.getClientRects().length && (text === null || said(one) === text));
  return found.filter((one) => !found.some((other) => other !== one && one.contains(other)))[0];
}"""


class Chromium:
    """The browser; a context manager that starts and ends it.

    It is told what to do by Chromium's DevTools protocol over a pipe, so no port is open.

    Args:
        folder: Folder for its profile.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._rest = b""

    def __enter__(self) -> Chromium:
        if CHROMIUM is None:
            raise FileNotFoundError("no Chromium found on the PATH")
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _STARTER, str(theirs), str(answers)),
                *(CHROMIUM, "--headless=new", "--remote-debugging-pipe", "--disable-gpu"),
                # A container has no sandbox for it.
                *("--no-sandbox", f"--user-data-dir={self._folder}", "--hide-scrollbars"),
            ],
            pass_fds=(theirs, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(answers)
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError, EOFError):
            self.ask("Browser.close")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(self, width: int, height: int, *, dark: bool = False) -> Page:
        """Return a new, empty page of a size in pixels, in a colour scheme."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        page.ask("Page.enable")
        page.ask("Emulation.setDeviceMetricsOverride", **size)
        page.ask(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": scheme},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )
        # Airflow keeps its own choice.
        kept = f"try {{ localStorage.setItem('theme', '{scheme}') }} catch {{}}"
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=kept)
        return page

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the DevTools protocol; events are skipped.

        Raises:
            RuntimeError: If the browser refuses it.
            EOFError: If the browser has ended.
        """
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        written = json.dumps(command).encode() + b"\0"
        while written:
            written = written[os.write(self._write, written) :]
        while True:
            said = json.loads(self._message())
            if said.get("id") == self._number:
                break
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        answer: dict[str, Any] = said["result"]
        return answer

    def _message(self) -> bytes:
        while b"\0" not in self._rest:
            more = os.read(self._read, 1 << 20)
            if not more:
                raise EOFError("Chromium has ended")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return message


class Page:
    """A page of the browser; `Chromium.open` makes one."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command about this page; raises as `Chromium.ask`."""
        return self._browser.ask(method, self._session, **parameters)

    def go(self, url: str, cookie: tuple[str, str] | None = None) -> None:
        """Load a URL, with a cookie's name and value."""
        if cookie is not None:
            self.ask("Network.setCookie", url=url, name=cookie[0], value=cookie[1])
        self.ask("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression on the page.

        Raises:
            RuntimeError: If it fails.
        """
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in said:
            raise RuntimeError(f"{script}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def text(self) -> str:
        """Return the text that can be seen, also that of embedded pages of the same server."""
        return str(
            self.run(
                "[document, ...[...document.querySelectorAll('iframe')].map("
                "(one) => one.contentDocument)].map((one) => one && one.body ? "
                "one.body.innerText : '').join('\\n')"
            )
        )

    def wait_for(self, text: str, patience: float = PATIENCE) -> None:
        """Wait until the page shows a text; raises TimeoutError, which has what it shows."""
        self._wait(lambda: text in self.text(), f"{text!r} on the page", patience)

    def click(self, selector: str, text: str | None = None, patience: float = PATIENCE) -> None:
        """Click the first visible element that a CSS selector finds, with exactly this text.

        A disabled element is waited for.

        Raises:
            TimeoutError: If there is none; has what the page shows.
        """
        found = f"({_FIND})({json.dumps(selector)}, {json.dumps(text)})"
        enabled = f"(() => {{ const it = {found}; return Boolean(it && !it.disabled) }})()"
        self._wait(lambda: self.run(enabled), f"{selector} {text or ''}".strip(), patience)
        place = self.run(
            f"(() => {{ const it = {found}; it.scrollIntoView({{block: 'center'}});"
            "const box = it.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        at = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, **at)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.ask("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG, once it has been the same for two seconds.

        Raises:
            TimeoutError: If it goes on changing; has what the page shows.
        """
        seen, since = "", time.monotonic()

        def is_still() -> bool:
            nonlocal seen, since
            now = self.ask("Page.captureScreenshot")["data"]
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > _STILL

        self._wait(is_still, "end of changes", PATIENCE)
        path.write_bytes(base64.b64decode(seen))

    def close(self) -> None:
        """Close the page."""
        self.ask("Page.close")

    def _wait(self, condition: Any, what: str, patience: float) -> None:
        deadline = time.monotonic() + patience
        while True:
            # A page that is just being replaced has no body yet, or none any more.
            with suppress(RuntimeError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} within {patience:g} s: {self.text()}")
            time.sleep(0.1)
