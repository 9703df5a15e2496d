"""Containers that answer tasks: made once for any number of callers, kept warm, and cleaned up.

    caller ── endpoints (a file, read without a lock) ── hit ──► the agent's HTTP server in its container
                 │ miss
              starting ── one creator, under a lock with an owner ──► containers (aiodocker)
                 ▲
              keeping ── refills, pauses, recycles, removes orphans, in the process that dispatches

The engine's own list of containers is the truth; files are a cache of it and hold what the engine cannot tell.
"""
