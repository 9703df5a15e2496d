"""The pure core: events and the time go in, decisions come out. No I/O, no clock, no chance inside.

Who decides what; each row builds on those above it:

    messages                        the events that come in and the decisions that go out
    order, capacity, gates          tasks and the classes they queue in, hosts and lanes, conditions on starting
    adaptive, tuning, rates, retry  what a host bears: slots, requests and tokens, failures
    budget                          what a host or a lane may still cost today
    tiers                           hosts among which a class may choose
    world, roster, timers, agenda   the plant, the live tasks, what is due by time, what a step has yet to look at
    conditions                      whether hosts, gates and budgets let anything start
    room, reasons, placing          which host has room, why none has, which task is next
    queueing                        when a task queues, and in which class
    endings, arrivals               how tasks end, with those that wait after them; how they come in
    experience, outcomes            what follows from an attempt that is over: for its host, for its task
    figures, forecast               for people: how things stand, how long a task will wait
    scheduler                       all of it behind one door
"""
