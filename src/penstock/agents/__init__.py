"""Containers that answer tasks: made once for any number of callers, kept warm, and cleaned up.

    caller ── endpoints (a file, read without a lock) ── hit ──► the agent's HTTP server in its container
                 │ miss
              starts ── one creator, under a lock with an owner ──► engine (Docker's or Podman's)
                 ▲
              keeper ── refills, pauses, recycles, removes orphans, in the process that dispatches

The engine's own list of containers is the truth; files are a cache of it and hold what the engine cannot tell.

    agent_server.py   runs inside containers: one file, the standard library alone
    endpoints.py      where containers answer, and who uses one
    engine/           what a container is made from; how it is made, looked at and ended
    starts/           an endpoint for whoever asks; what dead processes left
    keeper/           the warm pool
    calls/            calls of a process that makes many: `serve` and `work`
    quick/            `agent call`, with next to nothing loaded
    figures.py, recording.py, trail.py   how calls went
    serving.py, keeper_note.py           who runs beside us, and from which config
"""
