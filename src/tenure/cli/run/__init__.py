"""The command `tenure run`: its inputs, its leader, its workers, its record and its results."""
