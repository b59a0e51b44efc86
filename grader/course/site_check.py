#!/usr/bin/env python3
"""The site in a real browser: what is wrong with it, a line each.

    site_check.py --site DIR --plan PROGRAM      (make check-site)

Of all pages: links and anchors lead somewhere, nothing is loaded from elsewhere, the console is
silent, text has the contrast that WCAG 2 asks for (4.5, large text 3) in light and dark, and at
390 pixels nothing moves sideways. The search finds a word. Of the figures: each control at three
positions shows what the planner says, which is asked again; each is reached by Tab and changed by
arrow keys; they work from a disk too.

Interface: main(); links(html) -> [problem]. Exit status 1: something is wrong; 3: it cannot be
checked here.
"""

import argparse
import html.parser
import os
import re
import sys
import tempfile
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(ROOT, "grader"))

import layout
import site_data
from site_browser import LEFT, RIGHT, TAB, Browser, NoBrowser, Served

PHONE = 390
GRID = 40 # places of the memory figure that are compared with the planner
TABS = 200 # at most until a control is reached

# Text whose contrast is too low: [[ratio, words]]. A text within a box of a figure has its box's
# class after "in-"; else its ground is the nearest ancestor's that has one.
CONTRAST = r"""
const rgb = (text) => {
    const found = text.match(/[\d.]+/g).map(Number);
    return found.length < 4 ? [...found.slice(0, 3), 1] : found;
};
const light = (c) => {
    const part = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92
                                                                : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
};
const mixed = (a, b, part) => a * part + b * (1 - part);
const over = (top, under) => [0, 1, 2].map((i) => mixed(top[i], under[i], top[3])).concat(1);
const ground = (element) => {
    if (!element) return [255, 255, 255, 1];
    const box = [...element.classList].find((name) => name.startsWith("in-"));
    if (box) return rgb(getComputedStyle(document.querySelector("rect." + box.slice(3))).fill);
    const own = rgb(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(element.parentElement));
};
const seen = new Set(), wrong = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.textContent.trim() || seen.has(element) || !element.checkVisibility({
            checkOpacity: true, checkVisibilityCSS: true}) || element.closest("script, style"))
        continue;
    seen.add(element);
    const style = getComputedStyle(element), under = ground(element);
    const svg = element.namespaceURI.endsWith("svg");
    const own = over(rgb(svg ? style.fill : style.color), under);
    const [a, b] = [light(own), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) wrong.push([ratio, node.textContent.trim().slice(0, 40)]);
}
return wrong;
"""
# How wide the page and its column are, apart from what moves sideways by itself (tables, formulas).
WIDE = """
return Math.max(...["html", "body", ".content"].map((name) => document.querySelector(name))
    .filter((one) => one).map((one) => one.scrollWidth));
"""
SET = """
const control = document.querySelectorAll(".moving input, .moving select")[arguments[0]];
control.value = arguments[1];
control.dispatchEvent(new Event(control.tagName === "SELECT" ? "change" : "input"));
"""
SHOWN = """
const found = {};
for (const cell of document.querySelectorAll(".moving td.number")) {
    if (cell.dataset.category)
        found[cell.dataset.category] = Number(cell.textContent.replaceAll(",", ""));
    if (cell.dataset.time) found[cell.dataset.time] = Number(cell.dataset.picoseconds);
    if (cell.dataset.bytes) found.unsharded = Number(cell.dataset.bytes);
}
return found;
"""


# ---- Without a browser ----

class Links(html.parser.HTMLParser):
    """The anchors of a page, what it leads to and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.to, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.update(value for name, value in attrs.items() if name == "id")
        if tag == "a" and attrs.get("href"):
            self.to.append(attrs["href"])
        if attrs.get("src"):
            self.loads.append(attrs["src"])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(attrs.get("href", ""))


def pages(folder):
    """The site's pages, as paths within it."""
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, _, names in os.walk(folder) for name in names
                  if name.endswith(".html") and "_static" not in at)


def links(folder):
    """What leads nowhere, or is loaded from elsewhere."""
    read, wrong = {}, []
    for page in pages(folder):
        with open(os.path.join(folder, page), encoding="utf-8") as file:
            read[page] = Links(file.read())
    for page, found in read.items():
        for link in found.to + found.loads:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc:
                if link in found.loads and address.scheme != "data":
                    wrong.append("%s: loads %s from elsewhere" % (page, link))
                continue
            path = urllib.parse.unquote(address.path)
            other = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(folder, other)):
                wrong.append("%s: %s leads nowhere" % (page, link))
            elif address.fragment and other in read and \
                    urllib.parse.unquote(address.fragment) not in read[other].ids | {"top"}:
                wrong.append("%s: %s: there is no such anchor" % (page, link))
    return wrong


# ---- In the browser ----

class Check:
    """What is found out in one browser."""

    def __init__(self, browser, url, folder):
        self.browser = browser
        self.url = url
        self.folder = folder
        self.wrong = []

    def want(self, condition, text):
        if not condition:
            self.wrong.append(text)

    def open(self, page):
        self.browser.open(self.url + page)
        for error in self.browser.errors():
            self.wrong.append("%s: the console says: %s" % (page, error))

    def page(self, page):
        """Console, contrast, width."""
        self.browser.width(1280)
        for scheme in ("light", "dark"):
            self.browser.media(prefers_color_scheme=scheme)
            self.open(page)
            for ratio, words in self.browser.run(CONTRAST):
                self.wrong.append("%s, %s: a contrast of %.2f: %s" % (page, scheme, ratio, words))
        self.browser.width(PHONE)
        self.open(page)
        wide = self.browser.run(WIDE)
        self.want(wide <= PHONE, "%s: %d pixels wide on a phone of %d" % (page, wide, PHONE))
        self.browser.width(1280)

    def search(self, word, page):
        self.open("search.html?q=" + word)
        found = self.browser.until("return [...document.querySelectorAll('#search-results a')]"
                                   ".some((one) => one.href.includes(%r))" % page)
        self.want(found, "the search for %s does not find %s" % (word, page))

    def keyboard(self, page):
        """Tab reaches each control, and an arrow key changes it."""
        self.open(page)
        left = self.browser.run("return document.querySelectorAll('.moving input, .moving select, "
                                ".moving button').length")
        self.want(left > 0, "%s: there are no controls" % page)
        reached = set()
        for _ in range(TABS):
            if len(reached) == left:
                break
            self.browser.keys(TAB)
            name, kind, value = self.browser.run(
                "const one = document.activeElement; return [one.closest('.moving form') ? "
                "(one.id || 'play') : '', one.tagName, one.value]")
            if not name or name in reached:
                continue
            reached.add(name)
            outline = self.browser.run(
                "return getComputedStyle(document.activeElement).outlineStyle")
            self.want(outline != "none", "%s: %s does not show the focus" % (page, name))
            if kind != "BUTTON":
                most = self.browser.run("const one = document.activeElement; return one.max || "
                                        "one.options && one.options.length - 1")
                key = RIGHT if int(value) < int(most) else LEFT
                self.browser.keys(key)
                after = self.browser.run("return document.activeElement.value")
                self.want(after != value or int(most) == 0,
                          "%s: an arrow key does not move %s" % (page, name))
        self.want(len(reached) == left,
                  "%s: Tab reaches %d of %d controls" % (page, len(reached), left))

    def memory(self, memory, planner):
        """Each control at three positions; and the formulas over a grid."""
        self.open("figures/memory.html")
        lists = [memory.data[name] for name in ("models", "worlds", "strategies", "precisions")]
        start = [3, 2, 3, 0]
        places = [start[:i] + [place] + start[i + 1:] for i, entries in enumerate(lists)
                  for place in sorted({0, len(entries) // 2, len(entries) - 1})]
        for place in places:
            for i, value in enumerate(place):
                self.browser.run(SET, i, value)
            point = site_data.Point(*place)
            wanted = site_data.measured(planner.ask(memory.settings(point), "JSON"))
            self.want(self.browser.run(SHOWN) == wanted, "memory at %s: %s, the planner has %s"
                      % (place, self.browser.run(SHOWN), wanted))
        sizes = [len(entries) for entries in lists]
        for i in range(GRID):
            place = [i * (7, 3, 1, 5)[k] // (1, 2, 3, 4)[k] % size for k, size in enumerate(sizes)]
            point = site_data.Point(*place)
            wanted = site_data.measured(planner.ask(memory.settings(point), "JSON"))
            found = self.browser.run(
                "return ShardLab.memory({model: arguments[0], world: arguments[1], strategy: "
                "arguments[2], precision: arguments[3]})", *place)
            self.want(found == list(wanted[entry["name"]] for entry in memory.data["categories"]),
                      "memory's formulas at %s: %s, the planner has %s" % (place, found, wanted))

    def timeline(self, grid, planner):
        self.open("figures/timeline.html")
        lists = [grid.bandwidths, grid.tokens, grid.depths]
        start = [len(grid.bandwidths) - 2, 2, grid.depths.index(1)]
        for i, entries in enumerate(lists):
            for place in sorted({0, len(entries) // 2, len(entries) - 1}):
                at = start[:i] + [place] + start[i + 1:]
                for control, value in enumerate(at):
                    self.browser.run(SET, control, value)
                machine = site_data.MACHINE % grid.bandwidths[at[0]]
                plan = planner.ask(grid.settings(grid.tokens[at[1]], grid.depths[at[2]]), "JSON",
                                   machine)
                wanted = {name: plan["times"][name] for name in
                          ("step", "compute", "communication", "exposed", "idle")}
                wanted["unsharded"] = plan["ranks"][0]["memory"]["unsharded parameters"][2]
                shown = self.browser.run(SHOWN)
                self.want(shown == wanted, "the timeline at %s: %s, the planner has %s"
                          % (at, shown, wanted))
                boxes = self.browser.run("return document.querySelectorAll('.moving rect').length")
                self.want(boxes > 25, "the timeline at %s draws %d boxes" % (at, boxes))

    def ring(self, planner):
        """The bytes of an all-gather are those of the planner's blocks of GPT-2 medium."""
        self.open("figures/ring.html")
        for ranks in (2, 5, 8):
            asked = {"MODEL": "gpt2-medium", "GPUS": ranks, "SEQ": 128, "DTYPE": "float"}
            plan = planner.ask(asked, "JSON")
            root, block = plan["ranks"][0]["units"][:2]
            self.browser.run(SET, 0, ranks - 2)
            for step in sorted({0, ranks // 2, ranks - 1}):
                self.browser.run(SET, 1, step)
                text = self.browser.run("return document.querySelector('.figures').textContent")
                numbers = [int(one.replace(",", "")) for one in re.findall(r"\d[\d,]*\d|\d", text)]
                wanted = [step, ranks - 1, step + 1, ranks, 4 * block["shard"] * step]
                self.want(numbers[:5] == wanted,
                          "the ring of %d, step %d: %s" % (ranks, step, text))
            sent = 4 * (ranks - 1) * (root["shard"] + 48 * block["shard"])
            self.want(sent == plan["ranks"][0]["messages"]["all-gather"][2],
                      "the planner sends another number of bytes than the ring of %d" % ranks)

    def motion(self):
        """Where motion is not wanted, Play is one step."""
        self.browser.media(prefers_reduced_motion="reduce")
        self.open("figures/ring.html")
        self.browser.run("document.querySelector('.moving button').click()")
        state = "return [document.querySelectorAll('.moving input')[1].value, " \
                "document.querySelector('.moving button').textContent]"
        self.want(self.browser.run(state) == ["1", "Play"], "Play moves despite reduced motion")
        self.browser.media(prefers_reduced_motion="no-preference")
        self.browser.run("document.querySelector('.moving button').click()")
        self.want(self.browser.until(
            "return document.querySelectorAll('.moving input')[1].value === '3'"),
             "Play does not go on to the last step")

    def from_disk(self):
        self.url = "file://%s/" % urllib.parse.quote(self.folder)
        for page in ("figures/memory.html", "figures/timeline.html", "figures/ring.html"):
            self.open(page)
            drawn = self.browser.run("return document.querySelectorAll('.drawn rect').length")
            self.want(drawn > 3, "%s: nothing is drawn when it is opened from a disk" % page)


def check(site, program):
    """All that is wrong."""
    folder = os.path.join(site, "html")
    memory = site_data.Memory(ROOT)
    found = links(folder)
    with tempfile.TemporaryDirectory() as scratch, Browser() as browser, Served(folder) as served:
        planner = site_data.Planner(program, scratch)
        check_ = Check(browser, served.url, folder)
        for page in pages(folder):
            check_.page(page)
        check_.browser.media(prefers_color_scheme="light")
        check_.search("reshard", "3_forward.html")
        for name in ("memory", "timeline", "ring"):
            check_.keyboard("figures/%s.html" % name)
        check_.memory(memory, planner)
        check_.timeline(site_data.Grid(planner), planner)
        check_.ring(planner)
        check_.motion()
        check_.from_disk()
        return found + check_.wrong, len(pages(folder))


def main():
    parser = argparse.ArgumentParser(description="Check the site in a browser.")
    parser.add_argument("--site", required=True, metavar="DIR", help="what site_build.py has made")
    parser.add_argument("--plan", required=True, metavar="PROGRAM", help="the planner")
    options = parser.parse_args()
    try:
        wrong, number = check(os.path.abspath(options.site), os.path.abspath(options.plan))
    except (NoBrowser, site_data.NoPlan) as problem:
        layout.tell("make check-site: %s" % problem)
        return 3
    for line in wrong[:100]:
        layout.tell(line, sys.stdout)
    print("%d pages, %s" % (number, "%d things are wrong" % len(wrong) if wrong else
                            "all is right: links, console, contrast, width, search, "
                            "keyboard, figures"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
