"""A real Chromium without a window, steered over a pipe: what a page logs, asks for, and looks like."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_SECONDS = 60


def program() -> str | None:
    """The browser's path: RECORDMILL_CHROMIUM, or what lies on PATH."""
    given = os.environ.get("RECORDMILL_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A browser with one page; its profile lies in a folder."""

    def __init__(self, folder: Path) -> None:
        browser = program()
        assert browser is not None
        (commands, self._write), (self._read, events) = os.pipe(), os.pipe()
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        shell = f'exec "$0" "$@" 3<&{commands} 4>&{events}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, browser, *arguments, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(commands, events),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(events)
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = next(each for each in self._pages() if each["type"] == "page")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Page":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def _pages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("Target.getTargets")["targetInfos"]
        return found

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the DevTools protocol."""
        number = self._send(method, params)
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _send(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._number

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        if "method" in parsed:
            self.events.append(parsed)
            if parsed["method"] == "Page.javascriptDialogOpening":
                self._send("Page.handleJavaScriptDialog", {"accept": True})
        return parsed

    def open(self, url: str) -> None:
        """Opens a page, and waits until it is loaded and a moment has passed."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + PATIENCE_SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < end, "the page did not load"
            self.evaluate("1")
        self.evaluate("new Promise(done => setTimeout(done, 300))")

    def evaluate(self, expression: str) -> Any:
        """Evaluates JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return result["result"].get("value")

    def of(self, method: str) -> list[dict[str, Any]]:
        """Gives the parameters of the events of a name since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    def requests(self) -> list[str]:
        """Gives the URLs that the page asked for, but its own and those that hold their content."""
        urls = [event["request"]["url"] for event in self.of("Network.requestWillBeSent")]
        return [url for url in urls if not url.startswith(("data:", "file:"))]

    def complaints(self) -> list[str]:
        """Gives what the page logged, threw, or asked in a dialog."""
        logged = [event["entry"]["text"] for event in self.of("Log.entryAdded")]
        said = [str(event["args"]) for event in self.of("Runtime.consoleAPICalled")]
        thrown = [event["exceptionDetails"]["text"] for event in self.of("Runtime.exceptionThrown")]
        asked = [event["message"] for event in self.of("Page.javascriptDialogOpening")]
        return [*logged, *said, *thrown, *asked]

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Gives the page a size in CSS pixels, and a scheme of colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """Writes what the page looks like as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))
