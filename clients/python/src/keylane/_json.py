"""JSON as the API takes it."""

from __future__ import annotations

import json
from typing import Any


def encode(value: Any) -> bytes:
    """Returns compact JSON in UTF-8.

    Raises a `TypeError` or `ValueError` for a value that JSON cannot have: NaN, an infinity, a text
    with half a surrogate pair, an object of another type.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()
