"""render {"rows": {"name": number}}: a table as Markdown. Params that are a table come as one JSON argument."""

import json
import sys
from pathlib import Path

rows = json.loads(sys.argv[1]).get("rows") if len(sys.argv) > 1 else None
if not isinstance(rows, dict) or not rows:
    sys.exit('render: give the rows of the report: {"rows": {"apples": 3}}')
lines = ["| name | number |", "|---|---|"] + [f"| {name} | {number} |" for name, number in rows.items()]
header = Path("/tmp/header.md").read_text(encoding="utf-8")  # noqa: S108
print(json.dumps({"markdown": header + "\n".join(lines), "rows": len(rows)}))
