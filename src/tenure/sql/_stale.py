from __future__ import annotations

from tenure.errors import TenureError


class StaleSnapshot(TenureError):
    """The row that is in the way was made after this transaction (REPEATABLE READ, SERIALIZABLE) began to read.

    Only a new transaction can see it: roll back, and run the whole transaction again, as `in_session` does.
    `violation` is the database's refusal: an `IntegrityError` of SQLAlchemy, or the driver's own.
    """

    def __init__(self, what: str, violation: Exception) -> None:
        super().__init__(
            f"{what}: made by another transaction, too late for this one's snapshot; run it again"
        )
        self.violation = violation
