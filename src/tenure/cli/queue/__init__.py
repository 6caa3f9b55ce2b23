"""The command `tenure queue` and its subcommands."""
