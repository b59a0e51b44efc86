"""A headless Chromium, driven by chromedriver's own protocol (W3C WebDriver) with the standard
library.

Interface: Browser(): a context; .open(url), .run(script, *arguments), .errors(), .keys(text),
.media(…), .width(pixels); NoBrowser. Served(folder): a context with .url, files on the loopback
interface.
"""

import functools
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

START = 60.0 # seconds until chromedriver is ready
TAB, RIGHT, LEFT = "\ue004", "\ue014", "\ue012"
# The kernel's sandbox is not there for root in a container; only pages of the kit are opened.
ARGUMENTS = ["--headless=new", "--disable-gpu", "--no-sandbox", "--disable-dev-shm-usage",
             "--window-size=1280,1000", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--disable-component-update"]


class NoBrowser(Exception):
    """There is none, or it does not start."""


class Browser:
    def __enter__(self):
        for program in ("chromium", "chromedriver"):
            if not shutil.which(program):
                raise NoBrowser("there is no %s: apt-get install chromium chromium-driver "
                                "(on Debian)" % program)
        self.folder = tempfile.TemporaryDirectory(prefix="shardlab-site-")
        self.process = subprocess.Popen(
            ["chromedriver", "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        self.session = ""
        try:
            self.base = "http://127.0.0.1:%s" % self.port()
            self.session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {
                    "binary": shutil.which("chromium"),
                    "args": ARGUMENTS + ["--user-data-dir=" + self.folder.name]}}}})["sessionId"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            if self.session:
                self.ask("DELETE", "")
        except (NoBrowser, OSError):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def port(self):
        """What chromedriver says when it is ready."""
        timer = threading.Timer(START, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                found = re.search(r"on port (\d+)", line)
                if found and int(found.group(1)):
                    return int(found.group(1))
        finally:
            timer.cancel()
        raise NoBrowser("chromedriver does not start")

    def ask(self, method, path, value=None):
        path = path if path == "/session" else "/session/%s%s" % (self.session, path)
        data = json.dumps(value).encode() if value is not None else None
        request = urllib.request.Request(self.base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as problem:
            raise NoBrowser("chromedriver: %s" % problem.read().decode("utf-8", "replace")[:600])

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script, seconds=20.0):
        """Whether the script's result becomes true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(script):
                return True
            time.sleep(0.1)
        return False

    def errors(self):
        """What the console has said since the last call, apart from information."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]

    def keys(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys",
                                                   "actions": actions}]})

    def devtools(self, command, **values):
        self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": values})

    def media(self, **features):
        """prefers_color_scheme="dark" and others."""
        self.devtools("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def width(self, pixels):
        self.devtools("Emulation.setDeviceMetricsOverride", width=pixels, height=900,
                      deviceScaleFactor=1, mobile=pixels < 600)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Served:
    """A folder, on a free port of the loopback interface."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        handler = functools.partial(Quiet, directory=self.folder)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = "http://127.0.0.1:%d/" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
