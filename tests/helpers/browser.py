"""A real browser, driven over the WebDriver protocol: Chromium and its driver, nothing else."""

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "Chromium and its driver are not installed (Debian: chromium, chromium-driver)"

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Browser:
    """One window."""

    def __init__(self, session: str):
        self._session = session

    def open(self, page: Path) -> None:
        self._post("url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        return self._post("execute/sync", {"script": script, "args": []})

    def resize(self, width: int, height: int) -> None:
        """A window of a telephone's size, smaller than a desktop's window can be made."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._command("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """Colours that the device asks for: "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", {"features": features})

    def messages(self) -> list[dict[str, Any]]:
        """What was written to the console since the last call."""
        return self._post("se/log", {"type": "browser"})

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        options = {"captureBeyondViewport": whole}
        if whole:
            size = self.run(
                "return [document.documentElement.scrollWidth, "
                "document.documentElement.scrollHeight]"
            )
            clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
            options = {**options, "clip": clip}
        found = self._command("Page.captureScreenshot", options)
        path.write_bytes(base64.b64decode(found["data"]))

    def _command(self, name: str, parameters: dict[str, Any]) -> Any:
        return self._post("goog/cdp/execute", {"cmd": name, "params": parameters})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return call(f"{self._session}/{path}", body)


def call(url: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["value"]


@contextlib.contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """A headless window with an empty profile; closed at the end, with its driver."""
    assert CHROMIUM is not None
    assert DRIVER is not None
    # A proxy of the surroundings is not for one's own machine.
    environment = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    driver = subprocess.Popen(
        [DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True, env=environment
    )
    session = None
    try:
        assert driver.stdout is not None
        found = (re.search(r"started successfully on port (\d+)", line) for line in driver.stdout)
        port = next(match[1] for match in found if match)
        root = f"http://127.0.0.1:{port}"
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = call(f"{root}/session", {"capabilities": {"alwaysMatch": capabilities}})
        session = f"{root}/session/{made['sessionId']}"
        yield Browser(session)
    finally:
        if session is not None:
            with contextlib.suppress(urllib.error.URLError):
                call(session, method="DELETE")
        driver.terminate()
        driver.communicate(timeout=20)
