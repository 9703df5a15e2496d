"""The HTTP side of `serve`.

app.py         the app, put together from the parts below
connections.py how long and how much before a request is known
door.py        the first thing a request meets
auth.py        who comes in: tokens, scopes, hosts and origins
limits.py      how much they may do
refusals.py    what a request that is not served is answered
names.py       what clients of /v1 may call a model
bodies.py admission.py
               what comes in as JSON
api.py         tasks and runs
control.py     hosts, lanes, gates, pauses
events.py streams.py
               the log as it grows: SSE and WebSocket
health.py      /health and /metrics
pages.py       /docs
records.py     what comes out
shapes.py      the same, for the OpenAPI document
sockets.py     where it listens
service.py     uvicorn and the dispatcher in one loop
"""
