#!/usr/bin/env python3
"""Draws docs/images/figures.svg, the chart of the README, from the tables of docs/performance.md.

    bench-compare/chart.py            # writes the file
    bench-compare/chart.py --check    # fails if the file is not that of the tables
"""

import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs/performance.md"
TARGET = ROOT / "docs/images/figures.svg"

# Heading of the section, first row and column of the table, title, unit; then the rows: name in the table, name in the chart.
# The first row is that of Keylane.
PANELS = [
    (
        ("## W1: tiny keyed tasks", "| keylane |", "1 producer, 1000 keys"),
        ("Library: time per tiny task with one of 1,000 keys", "ns", "less is better"),
        [
            ("keylane-typed-many", "Keylane, batches of 64"),
            ("keylane", "Keylane, one at a time"),
            ("shard-batch64", "threads by hash, batches of 64"),
            ("shard", "threads by hash, one at a time"),
            ("strand-dashmap", "a queue per key in a map"),
        ],
    ),
    (
        ("## The command", "| `xargs -P2` |", "per second"),
        ("Command: programs started, two at a time", "per second", "more is better"),
        [
            ("`keylane run -j2`", "keylane run, in order per key"),
            ("`xargs -P2`", "xargs -P, in no order"),
            ("`parallel -j2`", "GNU parallel, in no order"),
        ],
    ),
    (
        ("**Beside Confluent's parallel consumer", "| 10 ms |", None),
        ("Kafka: records of 1,000 keys, in order per key, 10 ms each", "per second", "more is better"),
        [
            ("Keylane, threads", "Keylane, 1,000 threads"),
            ("Keylane, futures", "Keylane, 1,000 futures"),
            ("KPipe", "KPipe"),
            ("Confluent's parallel consumer", "Confluent's parallel consumer"),
        ],
    ),
    (
        ("### The service, next to others", "| drained in order, one key, a second |", None),
        ("Service: jobs of one key, in order, each on the disk", "per second", "more is better"),
        [
            ("keylane", "Keylane, as subtasks"),
            ("graphile", "Graphile Worker"),
            ("pgboss", "pg-boss"),
            ("bullmq", "BullMQ"),
        ],
    ),
]

WIDTH, LEFT, BAR, ROW, RIGHT = 720, 236, 360, 24, 16

STYLE = """
    .page { fill: #ffffff; stroke: #d0d7de }
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-size: 14px; font-weight: 600 }
    .small { font-size: 12px; fill: #59636e }
    .end { text-anchor: end }
    .ours { fill: #2f81f7 } .other { fill: #afb8c1 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #161b22; stroke: #30363d }
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
      .ours { fill: #4493f8 } .other { fill: #545d68 }
    }"""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(text: str, heading: str, row: str) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of the first table of a section that has this row."""
    lines = text[text.index(heading) :].splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith(row)), None)
    if at is None:
        sys.exit(f"{SOURCE}: no row `{row}` below `{heading}`")
    first = next(n for n in range(at, -1, -1) if not lines[n].startswith("|")) + 1
    last = next(n for n in range(at, len(lines)) if not lines[n].startswith("|"))
    return cells(lines[first]), [cells(line) for line in lines[first + 2 : last]]


def number(cell: str) -> float:
    found = re.match(r"[\d,.]+", cell)
    if found is None:
        sys.exit(f"{SOURCE}: `{cell}` does not begin with a number")
    return float(found[0].replace(",", ""))


def values(text: str, where: tuple[str, str, str | None], names: list[str]) -> list[float]:
    heading, row, column = where
    header, rows = table(text, heading, row)
    if column is None:
        # The names are columns of that one row.
        found = next(cells_ for cells_ in rows if cells_[0] == cells(row)[0])
        return [number(found[header.index(name)]) for name in names]
    at = header.index(column)
    by_name = {cells_[0]: cells_ for cells_ in rows}
    return [number(by_name[name][at]) for name in names]


def chart(text: str) -> str:
    shapes, described, y = [], [], 12
    for where, (title, unit, better), rows in PANELS:
        figures = values(text, where, [name for name, _ in rows])
        shapes.append(f'<text class="title" x="16" y="{y + 18}">{escape(title)}</text>')
        shapes.append(f'<text class="small end" x="{WIDTH - RIGHT}" y="{y + 18}">{unit}, {better}</text>')
        y += 30
        for (name, label), figure in zip(rows, figures):
            kind = "ours" if name.strip("`").lower().startswith("keylane") else "other"
            length = max(2, round(BAR * figure / max(figures)))
            shown = f"{figure:,.0f}"
            shapes.append(f'<text class="end" x="{LEFT - 8}" y="{y + 15}">{escape(label)}</text>')
            shapes.append(f'<rect class="{kind}" x="{LEFT}" y="{y + 3}" width="{length}" height="{ROW - 7}" rx="2"/>')
            shapes.append(f'<text class="small" x="{LEFT + length + 6}" y="{y + 15}">{shown}</text>')
            y += ROW
        listed = ", ".join(f"{label} {figure:,.0f}" for (_, label), figure in zip(rows, figures))
        described.append(f"{title}, {unit}: {listed}.")
        y += 14
    body = "\n  ".join(shapes)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-labelledby="title desc">
  <title id="title">Keylane beside others</title>
  <desc id="desc">{escape(" ".join(described))}</desc>
  <style>{STYLE}
  </style>
  <rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{y - 1}" rx="8"/>
  {body}
</svg>
"""


def main() -> None:
    drawn = chart(SOURCE.read_text())
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != drawn:
            sys.exit(f"{TARGET} is not the chart of {SOURCE}: run bench-compare/chart.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        TARGET.write_text(drawn)


if __name__ == "__main__":
    main()
