"""Directives whose content comes from the package: tables of names, and help of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cpdispatch.catalogue import catalogue
from cpdispatch.cli.app import app

COLUMNS = "100"


class Names(SphinxDirective):
    """A table of all dispatchers, models, policies, predictors or systems, one a row."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        table = nodes.table()
        group = nodes.tgroup(cols=2)
        group += [nodes.colspec(colwidth=width) for width in (1, 4)]
        head, body = nodes.thead(), nodes.tbody()
        head += _row(nodes.Text("name"), nodes.Text("what it is"))
        for name, summary in catalogue(self.arguments[0]).items():
            body += _row(nodes.literal(text=name), nodes.Text(summary))
        group += [head, body]
        table += group
        return [table]


def _row(*cells: nodes.Node) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        entry += nodes.paragraph("", "", cell)
        row += entry
    return row


class Commands(SphinxDirective):
    """A section for each command, with what its ``--help`` prints."""

    def run(self) -> list[nodes.Node]:
        return [_section(path) for path in _paths(app, ())]


def _paths(of: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words of each command of an application, of nested ones too."""
    names = [name for name in of if not name.startswith("-")]
    if path and not names:
        yield path
    for name in names:
        yield from _paths(of[name], (*path, name))


def _section(path: tuple[str, ...]) -> nodes.section:
    title = " ".join(path)
    section = nodes.section(ids=[nodes.make_id(title)], names=[title])
    printed = subprocess.run(
        [sys.executable, "-m", "cpdispatch", *path, "--help"],
        env={**os.environ, "COLUMNS": COLUMNS}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = printed.stdout.strip("\n")
    section += [nodes.title(text=title), nodes.literal_block(text, text, language="text")]
    return section


def headings(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Headings in a module's docstring are no sections: several modules share a page."""
    if what == "module":
        for place in range(len(lines) - 1):
            if lines[place] and set(lines[place + 1]) == {"-"}:
                lines[place : place + 2] = [f".. rubric:: {lines[place]}", ""]


def setup(sphinx: Sphinx) -> dict[str, bool]:
    sphinx.connect("autodoc-process-docstring", headings)
    sphinx.add_directive("names", Names)
    sphinx.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
