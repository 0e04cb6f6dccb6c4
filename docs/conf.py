"""The documentation site: `uv run sphinx-build -W docs site` builds it from these pages into `site/`.

Sphinx with MyST reads the same Markdown that the repository shows, docstrings give the reference, and the theme is that
of NumPy, xarray and ArviZ, where readers know their way.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bayesfit import __version__

project = "bayesfit"
author = "The bayesfit authors"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "model_pages"]
exclude_patterns = ["conf.py", "model_pages.py", "**.ipynb_checkpoints"]

nb_execution_mode = "auto"  # runs the notebooks, whose cells alone are run here; tests run the blocks of other pages
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds a cell
nb_output_stderr = "remove"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_typehints = "none"  # docstrings say shapes and units
autodoc_member_order = "bysource"
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = "bayesfit"
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_end": [],
}
html_sidebars = {"index": []}


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _without_markup)


def _without_markup(app, what, name, obj, options, lines):
    """Docstrings are plain sentences: |g1| is an absolute value, and no substitution."""
    lines[:] = [line.replace("|", r"\|") for line in lines]
