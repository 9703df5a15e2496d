"""/docs: the OpenAPI document as a page that loads nothing from anywhere else."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2rem } summary { cursor: pointer; padding: .3rem 0 }
code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { overflow: auto; padding: .7rem; background: #8881; border-radius: 4px }
.method { display: inline-block; min-width: 4.5rem; font-weight: bold }
table { border-collapse: collapse } td, th { text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top }
:root { color-scheme: light dark }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


def add_routes(app: FastAPI, parts: object) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers={"Content-Security-Policy": _POLICY})


def docs_page(document: dict[str, Any]) -> str:
    operations: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            operations.setdefault(tag, []).append(_operation(path, method, operation, document))
    parts = [f"<h2>{escape(tag)}</h2>\n" + "\n".join(shown) for tag, shown in operations.items()]
    title = f"{document['info']['title']} {document['info']['version']}"
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    top = (
        f"<h1>{escape(title)}</h1>\n<p>Send <code>Authorization: Bearer SECRET</code> once there are tokens. "
        'For programs: <a href="openapi.json">openapi.json</a>.</p>'
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{top}\n{"".join(parts)}</body></html>\n'
    )


def _operation(path: str, method: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    lines = [
        f'<details><summary><span class="method">{escape(method.upper())}</span><code>{escape(path)}</code> '
        f"{escape(operation.get('summary', ''))}</summary>"
    ]
    if said := operation.get("description"):
        lines.append(f"<p>{escape(said)}</p>")
    if parameters := operation.get("parameters"):
        rows = [
            f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
            f"<td>{escape(one.get('description') or '')}</td></tr>"
            for one in parameters
        ]
        lines.append(f"<table>{''.join(rows)}</table>")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        lines.append(f"<p>Body: {escape(kind)}</p>{_schema(content.get('schema', {}), document)}")
    for status, response in operation["responses"].items():
        lines.append(f"<p><b>{escape(str(status))}</b> {escape(response.get('description', ''))}</p>")
        if str(status).startswith("2"):
            contents = response.get("content", {}).values()
            lines += [_schema(content.get("schema", {}), document) for content in contents]
    return "\n".join([*lines, "</details>"])


def _schema(schema: dict[str, Any], document: dict[str, Any]) -> str:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    shown = document.get("components", {}).get("schemas", {}).get(name, schema)
    return f"<pre>{escape(json.dumps(shown, indent=2))}</pre>" if shown else ""
