"""The HTTP side of `serve`.

app.py         the app, put together from the parts below
door.py        the first thing a request meets
auth.py        who comes in: tokens, scopes, hosts and origins
limits.py      how much they may do
refusals.py    what a request that is not served is answered
names.py       what clients of /v1 may call a model
bodies.py      what comes in as JSON
api.py         tasks and runs
control.py     hosts, lanes, gates, pauses
events.py      the log as it grows: SSE and WebSocket
health.py      /health and /metrics
pages.py       /docs
shapes.py      what comes out, for the OpenAPI document
service.py     sockets, uvicorn and the dispatcher in one loop
"""
