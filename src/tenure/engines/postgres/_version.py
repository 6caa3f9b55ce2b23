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
    # the remembered answer of an exchange says which tokens it leased, not the tasks; a wish is called a claim; a task
    # has meta, the record of its failed tries and followers, and a dead one may expire; `move`, `get_result` and
    # `browse_tasks` instead of `cancel`, `requeue`, `purge`, `result` and `browse`. These stay for processes of the
    # release before, and the `exchange` that they know calls the new one. Groups of tasks and of claimers; the new
    # arguments of `put`, `put_one` and `claim` have defaults. Limiters have several limits, and begin anew
    9: """
        DROP FUNCTION IF EXISTS tenure.lease, tenure.exchanged, tenure.is_head, tenure.lend, tenure.remove_wish,
            tenure.tell_head, tenure.put, tenure.accept, tenure.claim, tenure.put_one;
        ALTER TABLE tenure.wish RENAME TO claim;
        ALTER INDEX tenure.wish_pkey RENAME TO claim_pkey;
        ALTER INDEX tenure.wish_waits RENAME TO claim_waits;
        ALTER INDEX tenure.wish_session RENAME TO claim_session;
        UPDATE tenure.given SET answer = answer[:3] || ROW('leased', ARRAY[
            coalesce((answer[cardinality(answer)]).n[2] + 1 - (answer[4]).n[2], 0), (answer[4]).n[2],
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        ], NULL)::tenure.answer WHERE kind = 'exchange';
        ALTER TABLE tenure.queue ADD awaited boolean NOT NULL DEFAULT true, ADD followed boolean NOT NULL DEFAULT false;
        ALTER TABLE tenure.queue ALTER awaited SET DEFAULT false;
        ALTER TABLE tenure.task ADD dead_ttl bigint, ADD failure bytea, ADD meta bytea, ADD first_put bigint;
        CREATE TABLE tenure.kept_key (
            queue bytea NOT NULL, key bytea NOT NULL, task bigint NOT NULL, until bigint NOT NULL,
            PRIMARY KEY (queue, key)
        ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
        CREATE INDEX kept_key_until ON tenure.kept_key (queue, until);
        ALTER TABLE tenure.ended ADD progress bytea, ADD failure bytea, ADD meta bytea;
        DROP INDEX tenure.ended_expiry;
        CREATE INDEX ended_expiry ON tenure.ended (expires) WHERE expires IS NOT NULL AND state <> 'dead';
        CREATE TABLE tenure.todo (due bigint NOT NULL, id bigint NOT NULL, name bytea NOT NULL);
        CREATE INDEX todo_due ON tenure.todo (due, id);
        INSERT INTO tenure.todo (due, id, name) SELECT 0, 0, u.key FROM tenure.unserved u;
        DROP TABLE tenure.unserved;
        ALTER TABLE tenure.claim ADD group_name bytea NOT NULL DEFAULT '', ADD number bigint NOT NULL DEFAULT 0;
        DROP INDEX tenure.claim_waits;
        CREATE INDEX claim_waits ON tenure.claim (pool, number, ordinal) WHERE resource IS NULL;
        CREATE INDEX claim_group ON tenure.claim (pool, group_name, number) WHERE resource IS NULL;
        ALTER TABLE tenure.queue ADD has_groups boolean NOT NULL DEFAULT false,
            ADD named bigint NOT NULL DEFAULT 0, ADD groups bigint NOT NULL DEFAULT 0,
            ADD held bigint NOT NULL DEFAULT 0, ADD virtual_time double precision NOT NULL DEFAULT 0,
            ADD per_group bigint NOT NULL DEFAULT 0, ADD group_size bigint NOT NULL DEFAULT 0,
            ADD weights bigint NOT NULL DEFAULT 0, ADD keep_order boolean NOT NULL DEFAULT true;
        CREATE TABLE tenure.turn (
            queue bytea NOT NULL, name bytea NOT NULL, cost double precision NOT NULL, PRIMARY KEY (queue, name)
        );
        CREATE TABLE tenure.task_group (
            queue bytea NOT NULL, name bytea NOT NULL, live bigint NOT NULL, waiting bigint NOT NULL,
            leased bigint NOT NULL, held bigint NOT NULL DEFAULT 0, bound bigint NOT NULL DEFAULT 0,
            reserved bigint NOT NULL DEFAULT 0, producers bigint NOT NULL DEFAULT 0,
            cost double precision NOT NULL DEFAULT 1, tag double precision,
            PRIMARY KEY (queue, name) WITH (fillfactor = 50)
        ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
        CREATE INDEX task_group_turn ON tenure.task_group (queue, tag, name) WHERE tag IS NOT NULL;
        ALTER TABLE tenure.producer ADD group_name bytea NOT NULL DEFAULT '',
            ADD for_group boolean NOT NULL DEFAULT false;
        DROP INDEX tenure.producer_waits;
        CREATE INDEX producer_waits ON tenure.producer (queue, ordinal) WHERE NOT reserved AND NOT for_group;
        CREATE INDEX producer_for_group ON tenure.producer (queue, group_name, ordinal) WHERE for_group;
        ALTER TABLE tenure.task ADD group_name bytea NOT NULL DEFAULT '';
        ALTER TABLE tenure.ended ADD group_name bytea NOT NULL DEFAULT '';
        DROP INDEX tenure.task_priority, tenure.task_age, tenure.task_due;
        CREATE INDEX task_priority ON tenure.task (queue, group_name, priority DESC, ready_at, id)
            WHERE session IS NULL AND NOT delayed;
        CREATE INDEX task_age ON tenure.task (queue, group_name, ready_at, id) WHERE session IS NULL AND NOT delayed;
        CREATE INDEX task_due ON tenure.task (queue, delayed, ready_at, id)
            WHERE session IS NULL AND (delayed OR group_name <> '');
        CREATE OR REPLACE FUNCTION tenure.exchange(
            _clock bigint, _cap bigint, _session bytea, _n bigint, _queue bytea,
            _ids bigint[], _tokens bigint[], _verdicts text[], _results bytea[], _delays bigint[], _ttls bigint[],
            _want bigint, _wait boolean, _aging bigint, _max_deliveries bigint, _keep boolean
        ) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
        BEGIN
            RETURN QUERY SELECT e.word, e.n, CASE e.word WHEN 'task' THEN e.b[:2] ELSE e.b END
                FROM tenure.exchange(_clock, _cap, _session, _n, _queue, _ids, _tokens, _verdicts, _results, _delays,
                    _ttls, _want, _wait, _aging, _max_deliveries, _keep, NULL, NULL) e;
        END $$;
        DROP TABLE tenure.rate;
        CREATE TABLE tenure.limiter (
            key bytea PRIMARY KEY,
            until double precision NOT NULL,
            held_until double precision NOT NULL,
            held double precision NOT NULL,
            last_due double precision NOT NULL,
            names bytea[] NOT NULL,
            ends double precision[] NOT NULL,
            rates double precision[] NOT NULL
        ) WITH (fillfactor = 50);
        CREATE INDEX limiter_until ON tenure.limiter (until);
        CREATE TABLE tenure.limiter_waiter (
            key bytea NOT NULL,
            process bytea NOT NULL,
            due double precision NOT NULL,
            PRIMARY KEY (key, process)
        ) WITH (fillfactor = 50);
        CREATE INDEX limiter_waiter_due ON tenure.limiter_waiter (key, due);
        CREATE OR REPLACE FUNCTION tenure.spend(
            _clock bigint, _cap bigint, _session bytea, _n bigint, _key bytea, _rate double precision,
            _burst double precision, _costs double precision[], _longest double precision[]
        ) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
        BEGIN
            RETURN QUERY SELECT s.word, s.n, CASE WHEN cardinality(s.b) > 2 THEN ARRAY[s.b[1], s.b[3]] ELSE s.b END
                FROM tenure.spend(_clock, _cap, _session, _n, _key, ARRAY[''::bytea], ARRAY[_rate], ARRAY[_burst],
                    _costs, _longest) s;
        END $$;
        CREATE OR REPLACE FUNCTION tenure.refund(
            _clock bigint, _cap bigint, _session bytea, _n bigint, _key bytea, _cost double precision,
            _booking double precision, _rate double precision
        ) RETURNS tenure.answer LANGUAGE plpgsql AS $$
        BEGIN
            RETURN tenure.refund(_clock, _cap, _session, _n, _key, ARRAY[''::bytea], ARRAY[_rate], ARRAY[_booking],
                ARRAY[_cost / _rate], ARRAY['NaN'::double precision]);
        END $$;
    """,
}
"""By version, what it changes in the tables, types and sequences of the version before.

Behind the last step all functions are made anew, in place of those with the same name and arguments. While an update
rolls on, processes of the release before still call what they know: a function keeps its arguments and its answers,
or the new one gets another name.
"""

VERSION = max(STEPS)
"""Raised with each change that a release has to find in the database, or that the one before would not understand."""
