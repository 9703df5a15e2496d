"""The one door: submit, watch, cancel, explain. Commands, the HTTP service and Python code all come through here.

A client talks to the store alone. A dispatcher, in this process or another, is woken by what is left there.
"""

from __future__ import annotations

from penstock.client.door import Client, open
from penstock.client.runs import Endings, Run

__all__ = ["Client", "Endings", "Run", "open"]
