"""How Sphinx builds these pages: `sphinx-build -W -b html docs build/docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from cpdispatch import __version__

project = "cpdispatch"
author = "the authors of cpdispatch"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "generated",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext"]
default_role = "code"
nitpicky = False

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = f"cpdispatch {version}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
