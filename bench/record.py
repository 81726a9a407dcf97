"""Writes what a comparison found: a Markdown table for people, JSON for programs, both under one name in bench/results.

Why it exists: every tool of this folder ends in the same way, and a figure without machine, commit and settings is worth nothing.
"""

import json
import time
from pathlib import Path

from bench import machine

RESULTS = Path(__file__).resolve().parent / "results"


def seconds_text(value):
    """Seconds as people read them."""
    if value is None:
        return "-"
    if value >= 600:
        return f"{value / 60:,.1f} min"
    if value >= 0.1:
        return f"{value:,.2f} s"
    return f"{value * 1000:.2f} ms"


def size_text(value):
    """Bytes in MiB."""
    return "-" if value is None else f"{value / 2**20:,.1f} MiB"


def value_text(value, unit):
    """A value in one of the units of bench/figures.py as people read it; '-' where there is none."""
    if value is None:
        return "-"
    if unit == "s":
        return f"{value * 1e6:.1f} us" if 0 < value < 0.001 else seconds_text(value)
    if unit == "bytes":
        return size_text(value)
    if unit == "bytes/row":
        return f"{value:,.1f} B"
    if unit == "%":
        return f"{value:.0f} %"
    return f"{value:,.{0 if value >= 100 else 1}f}/{'min' if unit == '1/min' else 's'}"


def ratio_text(value):
    """A ratio, or '-' where there is none."""
    if value is None:
        return "-"
    return f"{value:.3f}x" if value >= 0.01 or value == 0 else f"{value:.2g}x"


def table(header, lines):
    """A Markdown table with padded columns, so that it can be read as plain text too."""
    rows = [[str(cell) for cell in line] for line in [header, *lines]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]

    def line(cells):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"

    return "\n".join([line(rows[0]), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows[1:])])


def keep(tool, about, results, markdown):
    """Writes TOOL-TIME.json and .md; returns the path of the Markdown file."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{tool}-{time.strftime('%Y%m%d-%H%M%S')}.md"
    path.with_suffix(".json").write_text(json.dumps({"tool": tool, "facts": about, "results": results}, indent=1, default=str) + "\n", encoding="utf-8")
    facts = "\n".join(f"- {name}: {' '.join(value) if isinstance(value, list) else value}" for name, value in about.items())
    path.write_text(f"# {tool}\n\n{markdown}\n\n{facts}\n", encoding="utf-8")
    return path


def facts(server, options):
    """Machine, commit, server; the server must be running."""
    about = machine.facts(server, options, server.settings_used)
    return {name: value if isinstance(value, list) else str(value) for name, value in about.items()}


def finish(tool, about, results, markdown, failures):
    """Prints and keeps the results; returns the exit status: 1 when an engine failed."""
    if failures:
        markdown += "\n\nfailed:\n\n" + "\n".join(f"- {text}" for text in failures)
    print("\n" + markdown + "\n")
    path = keep(tool, about, results, markdown)
    print(f"kept: {path} and .json")
    return 1 if failures else 0
