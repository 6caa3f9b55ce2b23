"""Names that rooms export for other rooms, and methods that only the patterns call: users do not see them."""

import re

INNER = {
    "Task": {"report_loss", "settle", "verdict", "stop", "lose", "begin", "is_over"},
    "Lease": {"is_over"},
}
FOR_ONE_CALLER = re.compile(r"\bFor the [\w ]+ alone\.")
