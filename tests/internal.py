"""Names that rooms export for other rooms to build on, and that users do not see."""

FOR_OTHER_ROOMS = {
    "Hold",
    "HoldRequest",
    "Report",
    "Reporter",
    "Runners",
    "ScheduleRecord",
    "Serving",
    "Sketch",
    "Tally",
    "answering",
    "break_holder",
    "is_ours",
    "latencies",
    "log",
    "parse_address",
    "record_of",
    "schedules_in",
    "signals_received",
    "trimmed",
    "works",
}
