"""How Sphinx builds the site. It runs on a copy: grader/course/site_pages.py puts this file beside
the pages."""

import os

project = "ShardLab"
html_title = "ShardLab"
release = version = os.environ.get("SHARDLAB_VERSION", "")
extensions = ["myst_parser"]
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
