"""The board: pages in the browser that show the plant at work, and act on it.

A process of its own, started by `serve` when somebody first looks, so that no page costs the dispatcher a decision.
It reads the store as any command does, and acts through the HTTP API in the name of whoever looks: rights are
checked there and nowhere else. NiceGUI makes the pages; what must happen in the browser is in `files/`.
"""
