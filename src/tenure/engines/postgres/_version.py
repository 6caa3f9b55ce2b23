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
    # what a session has is listed by `belongings` instead of `inspect`
    5: "",
    # a task can be postponed
    6: "",
    # names leave nothing, listings come in pages, retired resources stay retired
    7: """
        DO $$ DECLARE function regprocedure; BEGIN
            LOOP
                SELECT p.oid INTO function FROM pg_proc p JOIN pg_class c ON c.relnamespace = p.pronamespace
                WHERE c.oid = 'tenure.meta'::regclass LIMIT 1;
                EXIT WHEN NOT FOUND;
                EXECUTE 'DROP FUNCTION ' || function || ' CASCADE';
            END LOOP;
        END $$;
        ALTER TABLE tenure.given ADD keep_until bigint NOT NULL DEFAULT 0, ADD look_at bigint NOT NULL DEFAULT 0;
        CREATE INDEX given_look ON tenure.given (look_at);
        ALTER TABLE tenure.barrier ADD keep_until bigint NOT NULL DEFAULT 0, ADD look_at bigint;
        UPDATE tenure.barrier SET look_at = 0;
        CREATE INDEX barrier_look ON tenure.barrier (look_at) WHERE look_at IS NOT NULL;
        ALTER TABLE tenure.queue ADD lasting bigint NOT NULL DEFAULT 0, ADD keep_until bigint NOT NULL DEFAULT 0,
            ADD look_at bigint;
        UPDATE tenure.queue q SET look_at = 0,
            lasting = (SELECT count(*) FROM tenure.ended e WHERE e.queue = q.name AND e.expires IS NULL),
            keep_until = coalesce((SELECT max(e.expires) FROM tenure.ended e WHERE e.queue = q.name), 0);
        CREATE INDEX queue_look ON tenure.queue (look_at) WHERE look_at IS NOT NULL;
        CREATE INDEX task_leased ON tenure.task (queue, token) WHERE session IS NOT NULL;
        DELETE FROM tenure.pool p WHERE NOT EXISTS (SELECT FROM tenure.resource r WHERE r.pool = p.name)
            AND NOT EXISTS (SELECT FROM tenure.wish w WHERE w.pool = p.name);
    """,
    # a forgotten barrier differs from a later one of the same name: `arrive_at`, `gathering`; `resource_page`
    8: "ALTER TABLE tenure.barrier ADD born bigint NOT NULL DEFAULT 0",
    # the remembered answer of an exchange says which tokens it leased, not the tasks; a wish is called a claim; `move`
    # instead of `cancel`, `requeue` and `purge`, which stay for processes of the release before
    9: """
        DROP FUNCTION IF EXISTS tenure.lease, tenure.exchanged, tenure.is_head, tenure.lend, tenure.remove_wish,
            tenure.tell_head;
        ALTER TABLE tenure.wish RENAME TO claim;
        ALTER INDEX tenure.wish_pkey RENAME TO claim_pkey;
        ALTER INDEX tenure.wish_waits RENAME TO claim_waits;
        ALTER INDEX tenure.wish_session RENAME TO claim_session;
        UPDATE tenure.given SET answer = answer[:3] || ROW('leased', ARRAY[
            coalesce((answer[cardinality(answer)]).n[2] + 1 - (answer[4]).n[2], 0), (answer[4]).n[2],
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        ], NULL)::tenure.answer WHERE kind = 'exchange';
    """,
}
"""By version, what it changes in the tables, types and sequences of the version before.

Behind the last step all functions are made anew, in place of those with the same name and arguments. While an update
rolls on, processes of the release before still call what they know: a function keeps its arguments and its answers,
or the new one gets another name.
"""

VERSION = max(STEPS)
"""Raised with each change that a release has to find in the database, or that the one before would not understand."""
