"""Converts a message of a specification to the attributes of a rule."""

from __future__ import annotations

from typing import Any


def attributes(params: Any) -> dict[str, Any]:
    """The fields that are not at their defaults: enumerations by name, repeated fields as tuples, messages unchanged."""
    found: dict[str, Any] = {}
    for field, value in params.ListFields():
        if field.enum_type is not None:
            found[field.name] = field.enum_type.values_by_number[value].name
        elif hasattr(value, "__len__") and not isinstance(value, (str, bytes)):
            found[field.name] = tuple(value)
        else:
            found[field.name] = value
    return found
