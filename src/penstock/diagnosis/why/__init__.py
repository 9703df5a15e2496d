"""Why a task, a run, a lane or a host waits, who holds what it waits for, and when it will go on."""
