"""Names that rooms export for other rooms to build on, and that users do not see."""

FOR_OTHER_ROOMS = {
    "Hold",
    "HoldRequest",
    "Report",
    "Reporter",
    "Runners",
    "Sketch",
    "Tally",
    "break_holder",
    "is_ours",
    "latencies",
    "log",
    "record_of",
    "trimmed",
    "works",
}
