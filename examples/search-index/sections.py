"""Prints the sections of Markdown pages as rows of CSV: page, heading, text.

python3 sections.py PAGE...
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HEADING = re.compile(r"^#+ (.+)\n", re.MULTILINE)


def sections(page: Path) -> Iterator[tuple[str, str, str]]:
    _, *parts = HEADING.split(page.read_text())
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        yield page.name, heading, body.strip()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        # With quotes, because an empty text without them is a null.
        csv.writer(sys.stdout, quoting=csv.QUOTE_ALL).writerows(sections(Path(name)))
