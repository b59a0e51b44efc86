"""A headless Chromium, driven by selenium (site/requirements.txt); and a folder on the loopback
interface.

Interface: Browser(): a context; .open(url), .run(script, *arguments), .until(script), .errors(),
.keys(…), .media(…), .width(pixels); NoBrowser. Served(folder): a context with .url.
"""

import functools
import http.server
import shutil
import threading
import time

TAB, RIGHT, LEFT = "\ue004", "\ue014", "\ue012" # as WebDriver has them
# The kernel's sandbox is not there for root in a container; only pages of the kit are opened.
ARGUMENTS = ("--headless=new", "--disable-gpu", "--no-sandbox", "--disable-dev-shm-usage",
             "--window-size=1280,1000", "--hide-scrollbars", "--no-first-run",
             "--disable-background-networking", "--disable-component-update")


class NoBrowser(Exception):
    """There is none, or it does not start."""


class Browser:
    def __enter__(self):
        for program in ("chromium", "chromedriver"):
            if not shutil.which(program):
                raise NoBrowser("there is no %s: apt-get install chromium chromium-driver "
                                "(on Debian)" % program)
        from selenium import webdriver # make site has installed it
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.chrome.service import Service
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for argument in ARGUMENTS:
            options.add_argument(argument)
        try:
            self.driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        except WebDriverException as problem:
            raise NoBrowser("Chromium does not start: %s" % problem.msg)
        self.open, self.run = self.driver.get, self.driver.execute_script
        return self

    def __exit__(self, *_):
        self.driver.quit()

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
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] in ("SEVERE", "WARNING")]

    def keys(self, *keys):
        from selenium.webdriver import ActionChains
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def media(self, **features):
        """prefers_color_scheme="dark" and others."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()]})

    def width(self, pixels):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": pixels < 600})


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
