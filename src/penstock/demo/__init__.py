"""`penstock demo`: real dispatchers on simulated hosts, watched, measured and checked.

play.py         the scenes in their order, and the figures that come of them
stage.py        one workload through the real dispatcher, in a folder of its own
crash.py        a dispatcher that is killed in mid-work, and the one after it
worker.py submitter.py
                the processes of that scene
ways.py         the other ways beside Penstock, a short comparison
question.py     the last act: a real model answers
board.py        what the log of a store says of this moment
proofs.py       what the log of a store proves afterwards
figures.py      what a scene came to
show.py live.py plain.py
                for people to look at
"""
