"""The version of the schema, and what brings an older one up to date."""

STEPS: dict[int, str] = {
    # `requeue` looks for single tasks by their ids
    2: "",
    # links through a pooler
    3: "CREATE TABLE IF NOT EXISTS tenure.former_link (name bytea PRIMARY KEY, ended_at bigint NOT NULL)",
    # one index for the tasks of a queue by id, and for a task
    4: """
        DROP INDEX IF EXISTS tenure.task_queue;
        ALTER TABLE tenure.task DROP CONSTRAINT task_pkey,
            ADD CONSTRAINT task_pkey PRIMARY KEY (queue, id) WITH (fillfactor = 50);
    """,
    # what a session has is told by name, by `belongings` instead of `inspect`
    5: "",
    # a task can be postponed
    6: "",
}
"""By version, what it changes in the tables, types and sequences of the version before.

Behind the last step all functions are made anew, in place of those with the same name and arguments. While an update
rolls on, processes of the release before still call what they know: a function keeps its arguments and its answers,
or the new one gets another name.
"""

VERSION = max(STEPS)
"""Raised with each change that a release has to find in the database, or that the one before would not understand."""
