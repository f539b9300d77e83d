"""The pages as a site: `make docs`.

The pages are written for a code host, where a link is a path. Here they get what a site needs
besides: a contents for the sidebar, from the links of each list of pages, and the reference of
classes and functions, from the docstrings of the names that its page lists.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "tfps"
html_title = "tfps"
html_theme = "furo"
html_show_copyright = False
root_doc = "README"
# Sphinx reads from the repository's root, so that a link to any of its files is checked.
include_patterns = ["*.md", "docs/**.md", "tests/cluster/upstream/README.md"]
exclude_patterns = ["build", "runs", "results", ".*"]
# A site begins with index.html.
html_additional_pages = {"index": "first_page.html"}
templates_path = ["templates"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

SECTIONS = ("start", "guide", "reference", "benchmarks", "architecture")
CONTENTS = "\n\n```{{toctree}}\n:hidden:\n\n{}\n```\n"


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a list of pages the directive that the sidebar is made of."""
    if docname == "README":
        pages = ["docs/index", *(f"docs/{name}/index" for name in SECTIONS)]
        pages = [page for page in pages if page in app.env.found_docs]
        pages += ["CONTRIBUTING", "SECURITY", "CHANGELOG"]
    elif docname.endswith("/index") and docname != "docs/index":
        pages = re.findall(r"\]\(([\w./-]+)\.md\)", source[0])
    else:
        return
    source[0] += CONTENTS.format("\n".join(dict.fromkeys(pages)))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
