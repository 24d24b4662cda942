# SPDX-License-Identifier: Apache-2.0
"""A headless browser for tests: the few commands of the W3C WebDriver protocol that they need, over Debian's chromium-driver."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request


class Browser:
    """Chromium without a window; it ends with the `with` block. Its own profile and downloads lie in a temporary folder."""

    def __init__(self, width=1300, height=1000):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradmeter-browser-"))
        self.downloads = self.folder / "downloads"
        self.downloads.mkdir()
        log = self.folder / "driver.log"
        # The driver chooses a free port and says which.
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=open(log, "w", encoding="utf-8"), stderr=subprocess.STDOUT)
        self.base = f"http://127.0.0.1:{self._port(log)}"
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}",
                            f"--user-data-dir={self.folder / 'profile'}"],
                   "prefs": {"download.default_directory": str(self.downloads), "download.prompt_for_download": False,
                             "profile.default_content_setting_values.automatic_downloads": 1}}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options,
                        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
        self._ask("POST", "/url", {"url": "about:blank"})
        self.requests()  # the browser's own first page

    @staticmethod
    def _port(log):
        for _ in range(200):
            text = log.read_text(encoding="utf-8")
            if "successfully on port" in text:
                return int(text.split("successfully on port")[1].split()[0].rstrip("."))
            time.sleep(0.05)
        raise RuntimeError(f"chromedriver does not start: {log.read_text(encoding='utf-8')}")

    def _call(self, method, path, body=None):
        request = urllib.request.Request(self.base + path, json.dumps(body).encode() if body is not None else None,
                                         {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def _ask(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._call("DELETE", f"/session/{self.session}")
        finally:
            self.driver.terminate()
            self.driver.wait(10)
            shutil.rmtree(self.folder, ignore_errors=True)

    def open(self, path):
        self._ask("POST", "/url", {"url": pathlib.Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, timeout=20):
        """Until the script returns something true, which is returned; None when it never does."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        return None

    def resize(self, width, height):
        self._ask("POST", "/window/rect", {"width": width, "height": height})

    def protocol(self, command, **parameters):
        """A command of Chromium's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screen(self, width, height=900, media=""):
        """A screen as narrow as a phone's, which no window is; `media` is "print" for what paper shows."""
        self.protocol("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.protocol("Emulation.setEmulatedMedia", media=media)

    def press_tab(self):
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": [
            {"type": "keyDown", "value": "\ue004"}, {"type": "keyUp", "value": "\ue004"}]}]})

    def log(self, kind):
        return self._ask("POST", "/se/log", {"type": kind})

    def requests(self):
        """Addresses that were asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def errors(self):
        return [entry["message"] for entry in self.log("browser") if entry["level"] == "SEVERE"]

    def downloaded(self, name, timeout=10):
        """The bytes of a finished download, None where it does not come."""
        path = self.downloads / name
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if path.exists() and not list(self.downloads.glob("*.crdownload")):
                return path.read_bytes()
            time.sleep(0.05)
        return None
