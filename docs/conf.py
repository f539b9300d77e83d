"""The pages as a site: `make docs`.

The pages are written for a code host, where a link is a path. Here they get what a site needs
besides: a contents for the sidebar, from the links of each list of pages, and the reference of
classes and functions, from the docstrings of the names that its page lists.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

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
html_static_path = ["static"]
html_css_files = ["site.css"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

default_role = "code"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # those of TensorFlow and Keras are in their own documentation
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

SECTIONS = ("start", "guide", "reference", "benchmarks", "architecture")
CONTENTS = "\n\n```{{toctree}}\n:hidden:\n\n{}\n```\n"


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give lists of pages what the sidebar is made of, and lists of names their docstrings."""
    if docname == "README":
        pages = ["docs/index", *(f"docs/{name}/index" for name in SECTIONS)]
        pages = [page for page in pages if page in app.env.found_docs]
        pages += ["CONTRIBUTING", "SECURITY", "CHANGELOG"]
    elif docname.endswith("/index") and docname != "docs/index":
        pages = re.findall(r"\]\(([\w./-]+)\.md\)", source[0])
    elif docname == "docs/reference/api":
        source[0] += directives(re.findall(r"^\| `([\w.]+)`", source[0], re.M))
        return
    else:
        return
    source[0] += CONTENTS.format("\n".join(dict.fromkeys(pages)))


def directives(names: list[str]) -> str:
    """The documentation of classes and functions, by their docstrings."""
    lines = ["", "", "## In full", "", "```{eval-rst}"]
    for name in names:
        kind = "function" if name.rpartition(".")[2].islower() else "class"
        lines += [f".. auto{kind}:: {name}", *(["   :members:", ""] if kind == "class" else [""])]
    return "\n".join([*lines, "```", ""])


def from_markdown(*arguments: Any) -> None:
    """Turn what docstrings have of Markdown, fences and letters behind code, into Sphinx's."""
    lines: list[str] = arguments[-1]
    converted, fenced = [], False
    for line in lines:
        opening = re.match(r"( *)```(\w*)", line)
        if opening:
            fenced = bool(opening[2])
            converted += [f"{opening[1]}.. code-block:: {opening[2]}", ""] if fenced else [""]
        elif fenced:
            converted.append(f"    {line}")
        else:
            converted.append(re.sub(r"(?<!`)(`[^`]+`)(?=\w)", r"\1\\ ", line))
    lines[:] = converted


def is_anothers(*arguments: Any) -> bool | None:
    """Leave out methods that have taken their documentation over from TensorFlow."""
    module = getattr(arguments[3], "__module__", None) or project
    return None if module.startswith(project) else True


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", from_markdown, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", is_anothers)
