"""The queue of tasks: putting, taking and settling them, workers, schedules, results."""
