"""Names that rooms export for other rooms, and methods that only the patterns call: users do not see them."""

import re

FOR_OTHER_ROOMS = {
    "DeadLetters",
    "Hold",
    "HoldRequest",
    "Report",
    "Reporter",
    "Runners",
    "Serving",
    "Sketch",
    "Tally",
    "answering",
    "break_holder",
    "check_observer",
    "event_of",
    "check_around",
    "dead_letter_worker",
    "decisive",
    "group_statistics",
    "is_failure",
    "out_of_time",
    "is_ours",
    "latencies",
    "log",
    "names",
    "parse_address",
    "printable",
    "printable_lines",
    "queue_of",
    "read_children",
    "read_workers",
    "record_of",
    "schedules_in",
    "shown_record",
    "statistics_of",
    "ending_signals",
    "is_hangup",
    "signals_received",
    "together",
    "trimmed",
    "unfinished_child",
    "values_of",
    "passes_check",
}

INNER = {
    "Store": {
        *("call", "call_at", "call_soon", "key", "listen", "send", "session"),
        *("start_job", "unlisten", "enlist"),
    },
    "Task": {"report_loss", "settle", "verdict", "stop", "lose", "begin", "is_over"},
    "Lease": {"is_over"},
}
FOR_ONE_CALLER = re.compile(r"\bFor the [\w ]+ alone\.")
