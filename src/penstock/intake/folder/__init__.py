"""The folder queue: a file in `requests/` is a task, a file in `responses/` or `errors/` is its answer."""
