"""How Sphinx builds the site. It runs on a copy: grader/course/site_pages.py puts this file beside
the pages."""

import os

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

project = "ShardLab"
html_title = "ShardLab"
release = version = os.environ.get("SHARDLAB_VERSION", "")
extensions = ["myst_parser", "sphinx_copybutton"]
html_math_renderer = "mathml" # below
myst_heading_anchors = 6 # as GitHub makes them
highlight_language = "none"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "top_of_page_buttons": [], "light_css_variables": {}, "dark_css_variables": {}}


def setup(app):
    """Formulas as MathML, which browsers show without a script: by docutils' own converter, which
    Sphinx does not use."""
    def write(translator, node, block=False):
        made = tex2mathml(node.astext(), as_block=block)
        translator.body.append('<div class="formula">%s</div>' % made if block else made)
        raise SkipNode
    app.add_html_math_renderer(
        "mathml", (write, None), (lambda translator, node: write(translator, node, True), None))
