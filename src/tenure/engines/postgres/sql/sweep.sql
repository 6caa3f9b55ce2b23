-- Clears up what time has made due: lines left unserved, ends of children that could not be told, expired sessions,
-- tasks and dead letters, sweeps of children, timeouts, then rests, in the order of their times. One sweeper at a
-- time. It waits for the lock of a session only while it has none of an object.
-- Needs: claims, families, holds, keys, rates, sessions, state, tasks

-- Give up one of the things that a session has. False if the steps did not suffice.
CREATE FUNCTION tenure.drop_belonging(_now bigint, _session bigint, _item tenure.belonging) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenure.lock(CASE _item.family WHEN 'holds' THEN 'hold' WHEN 'claims' THEN 'pool'
        ELSE 'queue' END, _item.key) WHERE _item.family <> 'watches';
    CASE _item.family
        WHEN 'holds' THEN
            RETURN (tenure.remove_hold(_now, _item.key, _item.name)).word <> 'more';
        WHEN 'claims' THEN
            PERFORM tenure.remove_claim(_now, _item.key, _item.name, true);
        WHEN 'producers' THEN
            PERFORM tenure.remove_producer(_now, _item.key, _item.name);
        WHEN 'tasks' THEN
            PERFORM tenure.drop_task(
                _now, _item.key, split_part(convert_from(_item.name, 'UTF8'), ' ', 1)::bigint, _session);
        WHEN 'takers' THEN
            PERFORM tenure.forget_taker(_now, _item.key, _session);
        WHEN 'watches' THEN
            DELETE FROM tenure.watch w WHERE w.session = _session AND w.made = _item.number;
    END CASE;
    RETURN true;
END $$;

-- Give up all that a session has, and delete it; its lock is held. False if the steps did not suffice.
CREATE FUNCTION tenure.end_session(_now bigint, _session bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    item tenure.belonging := ROW(0, 0, NULL, NULL, NULL, NULL, NULL);
    finished boolean := true;
BEGIN
    LOOP
        SELECT * INTO item FROM tenure.belongings(_session, item.rank, item.number, 1);
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        finished := tenure.drop_belonging(_now, _session, item) AND finished;
    END LOOP;
    -- many go by their own time
    DELETE FROM tenure.cached_reply g WHERE g.ctid = ANY (ARRAY(
        SELECT f.ctid FROM tenure.cached_reply f WHERE f.session = _session LIMIT 256
    ));
    DELETE FROM tenure.session s WHERE s.id = _session;
    RETURN finished;
END $$;

-- -> ok: nothing is due; more: sweep again
CREATE FUNCTION tenure.sweep(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    line tenure.todo;
    whose bytea;
    mine tenure.session;
    one record;
    finished boolean;
    item tenure.resource;
    since bigint;
BEGIN
    PERFORM tenure.lock('sweep', '');
    now := tenure.time(_clock);
    since := tenure.due_since(now);
    PERFORM tenure.begin_steps(_cap);
    PERFORM tenure.limit_locks('wait');
    FOR line IN SELECT * FROM tenure.todo t WHERE t.due = 0 AND t.id = 0 LIMIT _cap LOOP
        PERFORM tenure.lock('hold', line.name);
        DELETE FROM tenure.todo t WHERE t.due = 0 AND t.id = 0 AND t.name = line.name;
        PERFORM tenure.serve_line(now, tenure.line_of(line.name));
    END LOOP;
    IF FOUND OR tenure.sweep_messages(now, _cap) THEN
        RETURN tenure.reply('more');
    END IF;
    FOR i IN 1 .. _cap LOOP
        SELECT s.name INTO whose FROM tenure.session s WHERE s.expires BETWEEN since AND now
        ORDER BY s.expires, s.name LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN i = 1;
            RETURN tenure.reply('more');
        END IF;
        -- operations that carry it go first, and it may be renewed meanwhile
        IF i = 1 THEN
            PERFORM tenure.lock('session', whose);
        ELSIF NOT tenure.try_lock('session', whose) THEN
            RETURN tenure.reply('more');
        END IF;
        SELECT * INTO mine FROM tenure.session s WHERE s.name = whose AND s.expires <= now;
        IF FOUND AND NOT tenure.end_session(now, mine.id) OR i = _cap THEN
            RETURN tenure.reply('more');
        END IF;
    END LOOP;
    FOR one IN
        (SELECT t.expires, t.id, t.queue, false AS dead FROM tenure.task t
            WHERE t.expires BETWEEN since AND now ORDER BY t.expires, t.id LIMIT _cap)
        UNION ALL
        (SELECT l.due, l.id, l.name, true FROM tenure.todo l
            WHERE l.id > 0 AND l.what IS NULL AND l.due BETWEEN since AND now ORDER BY l.due, l.id LIMIT _cap)
        ORDER BY expires, id LIMIT _cap
    LOOP
        PERFORM tenure.lock('queue', one.queue);
        finished := CASE WHEN one.dead THEN tenure.expire_dead_letter(now, one.queue, one.id, one.expires)
            ELSE tenure.expire_task(now, one.queue, one.id) END;
        IF NOT finished THEN
            RETURN tenure.reply('more');
        END IF;
    END LOOP;
    IF FOUND OR tenure.sweep_rest(now, _clock, since) OR tenure.time_out(now, since, _cap) THEN
        RETURN tenure.reply('more');
    END IF;
    FOR item IN SELECT * FROM tenure.resource r WHERE r.rests AND r.rest_until BETWEEN since AND now
            ORDER BY r.rest_until, r.pool, r.name LIMIT _cap LOOP
        PERFORM tenure.lock('pool', item.pool);
        PERFORM tenure.update_resource(now, r) FROM tenure.resource r
        WHERE r.pool = item.pool AND r.name = item.name AND r.rests AND r.rest_until <= now;
    END LOOP;
    RETURN tenure.reply(CASE WHEN FOUND THEN 'more' ELSE 'ok' END);
END $$;

-- Delete a few rows of each kind that are no longer needed: numbered answers, records of endings, limiters, lines,
-- queues, entries. It does not wait for locks: locked rows are left for another time.
--
-- Then move the mark of the due rows, and every ten seconds look from the beginning. -> ok
CREATE FUNCTION tenure.forget_outdated(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.time(_clock);
    behind constant bigint := 100000;
    pause constant bigint := 10000000;
    mark bigint := tenure.due_since(now);
    rescued bigint := coalesce(pg_sequence_last_value('tenure.last_rescue'), -pause);
    is_rescue boolean := now NOT BETWEEN rescued AND rescued + pause;
    since bigint := CASE WHEN is_rescue THEN -1 ELSE mark END;
    is_more boolean := false;
    reply record;
    object bytea;
    queue tenure.queue;
    seen bigint := 0;
BEGIN
    -- what a crash of the server takes back is forgotten again later
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR reply IN SELECT g.ctid, g.keep_until FROM tenure.cached_reply g WHERE g.check_at BETWEEN since AND now
        ORDER BY g.check_at LIMIT 64 FOR UPDATE SKIP LOCKED
    LOOP
        IF reply.keep_until > now THEN
            UPDATE tenure.cached_reply g SET check_at = reply.keep_until WHERE g.ctid = reply.ctid;
        ELSE
            DELETE FROM tenure.cached_reply g WHERE g.ctid = reply.ctid;
        END IF;
        seen := seen + 1;
    END LOOP;
    is_more := seen = 64;
    PERFORM tenure.forget_records(now, 24, is_rescue);
    seen := 0;
    FOR object IN SELECT p.key FROM tenure.limiter p WHERE p.check_at BETWEEN since AND now
        ORDER BY p.check_at LIMIT 64
    LOOP
        IF tenure.try_lock('limiter', object) THEN
            PERFORM tenure.tidy_limiter(now, object);
        END IF;
        seen := seen + 1;
    END LOOP;
    is_more := is_more OR seen = 64;
    seen := 0;
    FOR object IN SELECT l.key FROM tenure.line l WHERE l.check_at BETWEEN since AND now
        ORDER BY l.check_at LIMIT 64
    LOOP
        IF tenure.try_lock('hold', object) THEN
            PERFORM tenure.tidy_line(now, object);
        END IF;
        seen := seen + 1;
    END LOOP;
    is_more := is_more OR seen = 64;
    seen := 0;
    FOR object IN SELECT q.name FROM tenure.queue q WHERE q.check_at BETWEEN since AND now
        ORDER BY q.check_at LIMIT 64
    LOOP
        IF tenure.try_lock('queue', object) THEN
            SELECT * INTO queue FROM tenure.queue q WHERE q.name = object ORDER BY q.page DESC LIMIT 1;
            IF queue.check_at <= now THEN
                queue := tenure.forget_keys(now, queue, 256);
                queue.check_at := nullif(queue.first_kept, 9223372036854775807);
                PERFORM tenure.save_queue(now, queue);
            END IF;
        END IF;
        seen := seen + 1;
    END LOOP;
    is_more := tenure.forget_entries(1024) OR is_more OR seen = 64 OR tenure.is_due(now, since);
    IF is_more AND is_rescue THEN
        PERFORM setval('tenure.last_due', 0);
    ELSIF NOT is_more AND now - behind > mark THEN
        PERFORM setval('tenure.last_due', greatest(0, now - behind));
    END IF;
    IF is_rescue THEN
        PERFORM setval('tenure.last_rescue', now);
    END IF;
    RETURN tenure.reply('ok');
END $$;

-- -> ok, gone, more
CREATE FUNCTION tenure.close_session(_clock bigint, _cap bigint, _session bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    finished boolean;
BEGIN
    PERFORM tenure.lock('sweep', '');
    PERFORM tenure.lock('session', _session);
    now := tenure.time(_clock);
    IF tenure.is_due(now) THEN
        RETURN tenure.reply('more');
    END IF;
    UPDATE tenure.session s SET expires = now WHERE s.name = _session RETURNING * INTO mine;
    IF NOT FOUND THEN
        RETURN tenure.reply('gone');
    END IF;
    PERFORM tenure.begin_steps(_cap);
    PERFORM tenure.limit_locks('wait');
    finished := tenure.end_session(now, mine.id);
    PERFORM tenure.sweep_rest(now, _clock, now);
    RETURN tenure.reply(CASE WHEN finished THEN 'ok' ELSE 'more' END);
END $$;
