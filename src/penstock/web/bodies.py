"""What comes in as JSON, and how answers go out. Whatever is wrong with a body is told in one line, as 4xx."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from penstock.config.problems import kind_of, meant
from penstock.web.refusals import JSON, Refused

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


async def read_object(request: Request, fields: Collection[str] | None = None) -> dict[str, Any]:
    """The body, which must be a JSON object; with `fields`, of nothing but those."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        what = f"not {kind!r}" if kind else "and it is not said what it is"
        raise Refused(
            415, "unsupported_media_type", f"the body must be {JSON}, {what}", f"send `Content-Type: {JSON}`"
        )
    data = await request.body()
    try:
        body = _decode(data)
    except RecursionError:
        raise Refused(400, "invalid_json", "the body is nested too deep", "flatten it") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Refused(400, "invalid_json", f"the body is not JSON: {error}", "send UTF-8 JSON") from None
    if not isinstance(body, dict):
        raise Refused(422, "invalid_request", f"the body must be an object, not {kind_of(body)}")
    if fields is not None:
        for name in body:
            if name not in fields:
                raise Refused(
                    422, "invalid_request", f"unknown field {name[:80]!r}{meant(name, fields, 'fields')}"
                )
    return body


def text_field(body: Mapping[str, Any], name: str, default: str) -> str:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise Refused(422, "invalid_request", f"{name}: must be text, not {kind_of(value)}")
    return value


def reply(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type=JSON)
