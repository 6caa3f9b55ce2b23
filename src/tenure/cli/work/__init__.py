"""The command `tenure work`: workers of one queue or several, in this process or in children."""
