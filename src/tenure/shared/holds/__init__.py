"""Locks, semaphores, elections, claims of resources, and barriers."""
