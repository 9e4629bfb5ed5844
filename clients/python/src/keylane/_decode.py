"""Decoding of JSON into the data classes of `models`, by their annotations."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Literal, Optional, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Converter = Callable[[Any], Any]
Fields = tuple[list[tuple[str, Optional[Converter]]], bool]
"""Members of a data class with their converters, and whether it has `raw`."""

_known: dict[type, Fields] = {}


def decode(cls: type[T], data: dict[str, Any]) -> T:
    """Returns a data class with the known members of a JSON object."""
    converters, has_raw = _fields(cls)
    values = {
        name: data[name] if convert is None else convert(data[name])
        for name, convert in converters
        if name in data
    }
    if has_raw:
        values["raw"] = data
    return cls(**values)


def timestamp(text: str) -> datetime:
    """Returns a time of the API (RFC 3339 in UTC)."""
    # datetime.fromisoformat of Python 3.9 takes neither `Z` nor any number of decimals.
    found = re.match(r"(\d+-\d+-\d+T\d+:\d+:\d+)(?:\.(\d+))?(?:Z|\+00:00)$", text)
    if found is None:
        raise ValueError(f"{text!r} is no time in UTC as of RFC 3339")
    whole, decimals = found.groups()
    micros = int((decimals or "0")[:6].ljust(6, "0"))
    return datetime.fromisoformat(whole).replace(microsecond=micros, tzinfo=timezone.utc)


def _fields(cls: type) -> Fields:
    fields = _known.get(cls)
    if fields is None:
        fields = _known[cls] = _read_fields(cls)
    return fields


def _read_fields(cls: type) -> Fields:
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls} is no data class")
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    converters = [(name, _converter(hints[name])) for name in names if name != "raw"]
    return converters, "raw" in names


def _converter(hint: Any) -> Converter | None:
    """Returns the function that converts a JSON value; `None` if it stays as it is."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union:
        inner = _converter(next(arg for arg in args if arg is not type(None)))
        return inner and (lambda value: None if value is None else inner(value))
    if origin is list:
        item = _converter(args[0])
        return item and (lambda values: [item(value) for value in values])
    if origin in (dict, Literal):
        return None
    if hint is datetime:
        return timestamp
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: decode(hint, value)
    return None
