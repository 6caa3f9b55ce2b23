-- What all functions share: locks, time, tokens, hints, watches, numbered answers.
--
-- An operation that carries a session first locks the session, shared, then its object. The sweep locks a session
-- before any object, then one object after the other, and there is one sweep at a time: so there is no deadlock.
--
-- Some functions return true so that the operations of each task and lock can assign it, `ok := f()`: PERFORM would set
-- up a query for each call.

CREATE FUNCTION tenure.reply(_word text) RETURNS tenure.answer LANGUAGE sql IMMUTABLE
    RETURN ROW(_word, NULL, NULL)::tenure.answer;

-- Lock an object until the transaction ends. -> true
CREATE FUNCTION tenure.lock(_kind text, _name bytea) RETURNS boolean LANGUAGE sql VOLATILE
    RETURN pg_advisory_xact_lock(hashtext('tenure.' || _kind), hashtext(encode(_name, 'hex'))) IS NOT NULL;

CREATE FUNCTION tenure.try_lock(_kind text, _name bytea) RETURNS boolean LANGUAGE sql VOLATILE
    RETURN pg_try_advisory_xact_lock(hashtext('tenure.' || _kind), hashtext(encode(_name, 'hex')));

-- Keep the session from ending until the transaction ends. -> true
CREATE FUNCTION tenure.keep_session(_session bytea) RETURNS boolean LANGUAGE sql VOLATILE
    RETURN pg_advisory_xact_lock_shared(hashtext('tenure.session'), hashtext(encode(_session, 'hex'))) IS NOT NULL;

CREATE FUNCTION tenure.time(_clock bigint) RETURNS bigint LANGUAGE sql VOLATILE
    RETURN coalesce(_clock, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- The time before which nothing is due; all times, if the clock was set back.
CREATE FUNCTION tenure.due_since(_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    since bigint := pg_sequence_last_value('tenure.last_due');
BEGIN
    RETURN CASE WHEN since <= _now THEN since ELSE -1 END;
END $$;

-- Whether something is due, and has become so since then.
CREATE FUNCTION tenure.is_due(_now bigint, _since bigint DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    since bigint := coalesce(_since, tenure.due_since(_now));
BEGIN
    RETURN EXISTS (SELECT FROM tenure.session WHERE expires BETWEEN since AND _now)
        OR EXISTS (SELECT FROM tenure.task WHERE expires BETWEEN since AND _now)
        OR EXISTS (SELECT FROM tenure.resource WHERE rests AND rest_until BETWEEN since AND _now)
        OR EXISTS (SELECT FROM tenure.todo WHERE due BETWEEN since AND _now)
        OR EXISTS (SELECT FROM tenure.todo WHERE due = 0);
END $$;

-- The time of an operation that has its object to itself, or NULL when there is something to clear up before.
CREATE FUNCTION tenure.enter_object(_clock bigint, _kind text, _name bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    ok boolean;
BEGIN
    -- what was done before the lock was ours has to be seen
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'the transaction has to be READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
    END IF;
    ok := tenure.lock(_kind, _name);
    now := tenure.time(_clock);
    RETURN CASE WHEN tenure.is_due(now) THEN NULL ELSE now END;
END $$;

-- The same for an operation that carries a session: its time and session, or the word that refuses it, 'more' or
-- 'gone'. `acquire`, `put` and `exchange` do this in place, because a call would make them slower.
CREATE FUNCTION tenure.enter_in_session(
    _clock bigint, _session bytea, _kind text, _name bytea,
    OUT now bigint, OUT mine tenure.session, OUT refusal text
) LANGUAGE plpgsql AS $$
DECLARE
    ok boolean;
BEGIN
    ok := tenure.keep_session(_session);
    now := tenure.enter_object(_clock, _kind, _name);
    IF now IS NULL THEN
        refusal := 'more';
        RETURN;
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session ORDER BY s.page DESC LIMIT 1;
    IF NOT FOUND THEN
        refusal := 'gone';
    END IF;
END $$;

-- Microseconds until the earliest moment at which asking again could help, -1 for never.
CREATE FUNCTION tenure.ask_again_in(_now bigint, _due bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    since bigint := tenure.due_since(_now);
    earliest bigint := least(_due,
        (SELECT s.expires FROM tenure.session s WHERE s.expires >= since ORDER BY s.expires LIMIT 1));
BEGIN
    IF pg_sequence_last_value('tenure.last_timeout') IS NOT NULL THEN
        earliest := least(earliest,
            CASE WHEN current_setting('tenure.sweeps', true) = 'on' THEN _now + 10000 END,
            (SELECT t.due FROM tenure.todo t WHERE t.what IN ('time out', 'sweep') AND t.due >= since
                ORDER BY t.due LIMIT 1));
    END IF;
    RETURN CASE WHEN earliest IS NULL THEN -1 ELSE greatest(0, earliest - _now) END;
END $$;

-- The first of `_count` tokens, or ids of tasks, that follow one another. The sequence is no part of the transaction, so
-- that no session waits for the transaction of another one: the lock is held for a moment only.
CREATE FUNCTION tenure.new_tokens(_now bigint, _count bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
    last bigint;
    ok boolean;
BEGIN
    ok := pg_advisory_lock(hashtext('tenure.token'), 0) IS NOT NULL;
    first := greatest(pg_sequence_last_value('tenure.last_token') + 1, _now, 1);
    last := setval('tenure.last_token', first + _count - 1);
    ok := pg_advisory_unlock(hashtext('tenure.token'), 0);
    RETURN last - _count + 1;
EXCEPTION WHEN query_canceled OR others THEN
    PERFORM pg_advisory_unlock(hashtext('tenure.token'), 0);
    RAISE;
END $$;

-- How many steps a loop may still take.
CREATE FUNCTION tenure.begin_steps(_cap bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tenure.steps', _cap::text, true);
END $$;

CREATE FUNCTION tenure.step() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    steps bigint := current_setting('tenure.steps')::bigint;
BEGIN
    IF steps <= 0 THEN
        RETURN false;
    END IF;
    PERFORM set_config('tenure.steps', (steps - 1)::text, true);
    RETURN true;
END $$;

-- hints: a channel for each process. The last number keeps PostgreSQL from merging two that say the same.

CREATE FUNCTION tenure.base64(_bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN translate(encode(_bytes, 'base64'), E'\n', '');

CREATE FUNCTION tenure.hint(_process bytea, _key bytea, _name bytea, _word text, _more text DEFAULT '') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    payload text := concat(_word, ' ', tenure.base64(_key), ' ', tenure.base64(_name), _more);
BEGIN
    -- a longer one is refused
    IF length(payload) > 7900 THEN
        payload := 'missed  ';
    END IF;
    PERFORM pg_notify('tenure.' || md5(_process), concat(payload, ' ', nextval('tenure.last_hint')));
END $$;

-- Silence: while all sessions rest, none of them sends life signs. One is about to be awake: some of the others are told,
-- and come back from then on whenever a session that is awake may have ended. Those that came last are hardly dead, and
-- others may be on other machines.
CREATE FUNCTION tenure.break_silence() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- from the end: a held snapshot keeps the entries of former heartbeats before it
    IF (SELECT s.id FROM tenure.session s WHERE NOT s.resting ORDER BY s.expires DESC LIMIT 1) IS NULL THEN
        PERFORM tenure.hint(w.process, '', w.name, 'wake') FROM (
            (SELECT s.name, s.process FROM tenure.session s ORDER BY s.expires DESC LIMIT 8)
            UNION
            (SELECT s.name, s.process FROM tenure.session s ORDER BY random() LIMIT 8)
        ) w;
    END IF;
END $$;

-- watches

CREATE FUNCTION tenure.subscribe_once(_kind text, _name bytea, _task bigint, _session tenure.session) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    last tenure.queue;
BEGIN
    INSERT INTO tenure.watch (kind, name, task, session, process)
    VALUES (_kind, _name, _task, _session.id, _session.process) ON CONFLICT DO NOTHING;
    SELECT * INTO last FROM tenure.queue q WHERE q.name = _name AND _kind IN ('task', 'change')
    ORDER BY q.page DESC LIMIT 1;
    IF _kind = 'task' AND NOT (last.awaited AND _task >= last.first_awaited) THEN
        UPDATE tenure.queue q SET awaited = true,
            first_awaited = least(CASE WHEN last.awaited THEN last.first_awaited END, _task)
        WHERE q.name = _name AND q.page = last.page;
    ELSIF _kind = 'change' AND NOT (last.followed AND _task >= last.first_followed) THEN
        UPDATE tenure.queue q SET followed = true,
            first_followed = least(CASE WHEN last.followed THEN last.first_followed END, _task)
        WHERE q.name = _name AND q.page = last.page;
    END IF;
END $$;

CREATE FUNCTION tenure.notify_watchers(_kind text, _name bytea, _task bigint, _about bytea, _notice text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    watcher bytea;
BEGIN
    -- a DELETE costs several times as much to set up, and most names have no watcher
    IF NOT EXISTS (SELECT FROM tenure.watch w WHERE w.kind = _kind AND w.name = _name AND w.task = _task) THEN
        RETURN true;
    END IF;
    FOR watcher IN
        WITH fired AS (
            DELETE FROM tenure.watch w WHERE w.kind = _kind AND w.name = _name AND w.task = _task
            RETURNING w.made, w.process
        )
        SELECT f.process FROM fired f ORDER BY f.made
    LOOP
        PERFORM tenure.hint(watcher, _name, _about, _notice);
    END LOOP;
    RETURN true;
END $$;

-- numbered answers: kept for two ttls after they were last returned

CREATE FUNCTION tenure.cached_reply(_now bigint, _mine tenure.session, _kind text, _name bytea, _n bigint)
RETURNS tenure.answer[] LANGUAGE plpgsql AS $$
DECLARE
    last tenure.cached_reply;
BEGIN
    SELECT * INTO last FROM tenure.cached_reply g WHERE g.session = _mine.id AND g.kind = _kind AND g.name = _name
    ORDER BY g.page DESC LIMIT 1;
    IF last.n IS DISTINCT FROM _n OR last.keep_until <= _now THEN
        RETURN NULL;
    END IF;
    UPDATE tenure.cached_reply g SET keep_until = _now + 2 * _mine.ttl
    WHERE g.session = _mine.id AND g.kind = _kind AND g.name = _name AND g.page = last.page;
    RETURN last.answer;
END $$;

CREATE FUNCTION tenure.cache_reply(
    _now bigint, _mine tenure.session, _kind text, _name bytea, _n bigint, _answer tenure.answer[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenure.cached_reply g SET n = _n, answer = _answer, keep_until = _now + 2 * _mine.ttl,
        page = g.page + (g.changes % 32 = 31)::int, changes = g.changes + 1
    WHERE g.session = _mine.id AND g.kind = _kind AND g.name = _name AND g.page = (
        SELECT o.page FROM tenure.cached_reply o WHERE o.session = _mine.id AND o.kind = _kind AND o.name = _name
        ORDER BY o.page DESC LIMIT 1
    );
    IF NOT FOUND THEN
        INSERT INTO tenure.cached_reply (session, kind, name, n, answer, keep_until, check_at)
        VALUES (_mine.id, _kind, _name, _n, _answer, _now + 2 * _mine.ttl, _now + 2 * _mine.ttl);
    END IF;
    RETURN true;
END $$;
