"""Locks, semaphores, elections, claims of resources, and barriers: patterns that hold a key on the engine."""
