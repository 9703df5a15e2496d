"""The one process that acts: events go to the scheduler, its decisions to the store and the engine."""
