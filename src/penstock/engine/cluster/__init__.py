"""Attempts on other machines: what is said between the dispatcher, its driver and the workers of a Ray cluster.

    dispatcher                                    driver                        a worker on some node
    ray.py ─► pool.py ─► crew.py ─► link.py ══ frames ══ driver.py ──── Ray ──── worker.py ─► the local engine

Ray ends a process that has lost its cluster, and its library is large: the process that speaks with Ray is a child
of the dispatcher, and when it is lost another one takes its place. A worker is a detached actor: it outlives both.
"""
