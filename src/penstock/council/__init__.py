"""The council: one question, many members, one honest answer.

`plan/` is pure: what to ask next, in which words, and what the replies mean. `library/` reads documents and finds
passages. The driver, `hosts/council.py`, asks what the plan says, as tasks of the ordinary queue.
"""
