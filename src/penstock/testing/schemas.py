"""A value that fits a JSON schema: the smallest one, so that a test can foresee it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

_FORMATS = {
    "date-time": "2000-01-01T00:00:00Z",
    "date": "2000-01-01",
    "time": "00:00:00Z",
    "duration": "PT1S",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEEPEST = 64
_REFERENCE = 8  # levels that a reference counts for: schemas that hold themselves end soon
_MOST_ITEMS = 100
_LONGEST = 10_000  # of a text


def example(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """`schema` may be anything; what it does not say is free. `$ref` is looked up in `root`."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if "$ref" in schema:
        return example(_referred(schema["$ref"], root), root, depth + _REFERENCE)
    if "const" in schema:
        return schema["const"]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    if "default" in schema:
        return schema["default"]
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return example(schema[key][0], root, depth + 1)
    if isinstance(schema.get("allOf"), list) and schema["allOf"]:
        return example(_merged(schema, root), root, depth + 1)
    return _typed(schema, root, depth)


def _typed(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    match _type(schema):
        case "object":
            return _object(schema, root, depth)
        case "array":
            return _array(schema, root, depth)
        case "string":
            return _string(schema)
        case "integer":
            return int(_number(schema, 1))
        case "number":
            return _number(schema, 0.5)
        case "boolean":
            return True
    return None


def _type(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _object(schema: Mapping[str, Any], root: Any, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return {name: example(properties.get(name, {"type": "string"}), root, depth + 1) for name in names}


def _array(schema: Mapping[str, Any], root: Any, depth: int) -> list[Any]:
    first = schema.get("prefixItems")
    fixed = [example(one, root, depth + 1) for one in first] if isinstance(first, list) else []
    least = schema.get("minItems")
    missing = max(0, min(least if isinstance(least, int) else 0, _MOST_ITEMS) - len(fixed))
    items = schema.get("items", {"type": "string"})
    if isinstance(items, Mapping) and isinstance(items.get("enum"), list) and items["enum"]:
        return fixed + list(islice(cycle(items["enum"]), missing))  # each once, where they are as many
    return fixed + [example(items, root, depth + 1)] * missing


def _string(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), "word")
    least, most = schema.get("minLength"), schema.get("maxLength")
    least = min(least, _LONGEST) if isinstance(least, int) else 0
    if len(text) < least:
        text = (text * (least // len(text) + 1))[:least]
    return text[:most] if isinstance(most, int) else text


def _number(schema: Mapping[str, Any], preferred: float) -> float:
    """The preferred number, moved into the bounds."""
    step = schema.get("multipleOf")
    step = step if isinstance(step, (int, float)) and step > 0 else None
    whole = schema.get("type") == "integer"
    inside = step or (1 if whole else 0.5)
    value = step or preferred
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, (int, float)):
        low = above + inside
    if isinstance(below, (int, float)):
        high = below - inside
    if isinstance(low, (int, float)) and value < low:
        value = -(-low // step) * step if step else -(-low // 1) if whole else low
    if isinstance(high, (int, float)) and value > high:
        value = high // step * step if step else high // 1 if whole else high
    return value


def _merged(schema: Mapping[str, Any], root: Any) -> dict[str, Any]:
    """allOf as one schema: properties and required names of all parts."""
    merged = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        part = _referred(part["$ref"], root) if isinstance(part, Mapping) and "$ref" in part else part
        for key, value in part.items() if isinstance(part, Mapping) else ():
            if key == "properties" and isinstance(value, Mapping):
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required" and isinstance(value, list):
                merged[key] = [*merged.get(key, []), *value]
            else:
                merged.setdefault(key, value)
    return merged


def _referred(reference: Any, root: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    place = root
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        place = place.get(step, {}) if isinstance(place, Mapping) else {}
    return place
