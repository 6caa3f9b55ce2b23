"""The command `tenure demo`: workers, the faults that it plants among them, and the audit of their work."""
