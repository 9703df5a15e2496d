"""Runs once in each container, before it takes its first command: what it makes here, handlers find."""

import os
from pathlib import Path

Path("/tmp/header.md").write_text(f"# {os.environ['REPORTS_TITLE']}\n\n", encoding="utf-8")  # noqa: S108
