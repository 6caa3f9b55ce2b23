-- Clears up what time has made due: lines left unserved, expired sessions, tasks and dead letters, then rests, in the
-- order of their times. One sweeper at a time. It waits for the lock of a session only while it has none of an object.

-- Release all that a session has, and delete it; its lock is held. False if the steps did not suffice.
CREATE FUNCTION tenure.finish(_now bigint, _session bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    hold tenure.hold;
    claim tenure.claim;
    party tenure.party;
    producer tenure.producer;
    task tenure.task;
    taker tenure.taker;
    watch tenure.watch;
    finished boolean := true;
BEGIN
    LOOP
        SELECT * INTO hold FROM tenure.hold t WHERE t.session = _session ORDER BY t.made LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        PERFORM tenure.lock('hold', hold.key);
        finished := tenure.remove_hold(_now, hold.key, hold.holder) <> 'more' AND finished;
    END LOOP;
    LOOP
        SELECT * INTO claim FROM tenure.claim t WHERE t.session = _session ORDER BY t.made LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        PERFORM tenure.lock('pool', claim.pool);
        PERFORM tenure.remove_claim(_now, claim.pool, claim.holder, true);
    END LOOP;
    LOOP
        SELECT * INTO party FROM tenure.party t WHERE t.session = _session ORDER BY t.made LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        PERFORM tenure.lock('barrier', party.key);
        PERFORM tenure.remove_party(_now, party.key, party.participant);
    END LOOP;
    LOOP
        SELECT * INTO producer FROM tenure.producer t WHERE t.session = _session ORDER BY t.made LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        PERFORM tenure.lock('queue', producer.queue);
        PERFORM tenure.remove_producer(_now, producer.queue, producer.name);
    END LOOP;
    LOOP
        SELECT * INTO task FROM tenure.task t WHERE t.session = _session ORDER BY t.token LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        PERFORM tenure.lock('queue', task.queue);
        PERFORM tenure.drop_task(_now, task.queue, task.id, _session);
    END LOOP;
    LOOP
        SELECT * INTO taker FROM tenure.taker t WHERE t.session = _session ORDER BY t.made LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        PERFORM tenure.lock('queue', taker.queue);
        PERFORM tenure.forget_taker(_now, taker.queue, _session);
    END LOOP;
    LOOP
        SELECT * INTO watch FROM tenure.watch t WHERE t.session = _session ORDER BY t.made LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF NOT tenure.step() THEN
            RETURN false;
        END IF;
        DELETE FROM tenure.watch t WHERE t.session = _session AND t.made = watch.made;
    END LOOP;
    -- many go by their own time
    DELETE FROM tenure.given g WHERE g.ctid = ANY (ARRAY(
        SELECT f.ctid FROM tenure.given f WHERE f.session = _session LIMIT 256
    ));
    DELETE FROM tenure.session s WHERE s.id = _session;
    RETURN finished;
END $$;

-- -> ok: nothing is due; more: look again
CREATE FUNCTION tenure.sweep(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    line tenure.todo;
    whose bytea;
    mine tenure.session;
    one record;
    finished boolean;
    item tenure.resource;
BEGIN
    PERFORM tenure.lock('sweep', '');
    now := tenure.time(_clock);
    PERFORM tenure.begin_steps(_cap);
    FOR line IN SELECT * FROM tenure.todo t WHERE t.due = 0 AND t.id = 0 LIMIT _cap LOOP
        PERFORM tenure.lock('hold', line.name);
        DELETE FROM tenure.todo t WHERE t.due = 0 AND t.id = 0 AND t.name = line.name;
        PERFORM tenure.serve(now, line.name);
    END LOOP;
    IF FOUND THEN
        RETURN tenure.word('more');
    END IF;
    FOR i IN 1 .. _cap LOOP
        SELECT s.name INTO whose FROM tenure.session s WHERE s.expires <= now ORDER BY s.expires, s.name LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN i = 1;
            RETURN tenure.word('more');
        END IF;
        -- operations that carry it go first, and it may be renewed meanwhile
        IF i = 1 THEN
            PERFORM tenure.lock('session', whose);
        ELSIF NOT tenure.try_lock('session', whose) THEN
            RETURN tenure.word('more');
        END IF;
        SELECT * INTO mine FROM tenure.session s WHERE s.name = whose AND s.expires <= now;
        IF FOUND AND NOT tenure.finish(now, mine.id) OR i = _cap THEN
            RETURN tenure.word('more');
        END IF;
    END LOOP;
    FOR one IN
        (SELECT t.expires, t.id, t.queue, false AS dead FROM tenure.task t
            WHERE t.expires <= now ORDER BY t.expires, t.id LIMIT _cap)
        UNION ALL
        (SELECT l.due, l.id, l.name, true FROM tenure.todo l
            WHERE l.id > 0 AND l.due <= now ORDER BY l.due, l.id LIMIT _cap)
        ORDER BY expires, id LIMIT _cap
    LOOP
        PERFORM tenure.lock('queue', one.queue);
        finished := CASE WHEN one.dead THEN tenure.expire_letter(now, one.queue, one.id, one.expires)
            ELSE tenure.expire_task(now, one.queue, one.id) END;
        IF NOT finished THEN
            RETURN tenure.word('more');
        END IF;
    END LOOP;
    IF FOUND THEN
        RETURN tenure.word('more');
    END IF;
    FOR item IN SELECT * FROM tenure.resource r WHERE r.rests AND r.rest_until <= now
            ORDER BY r.rest_until, r.pool, r.name LIMIT _cap LOOP
        PERFORM tenure.lock('pool', item.pool);
        UPDATE tenure.resource r SET rests = false
        WHERE r.pool = item.pool AND r.name = item.name AND r.rests AND r.rest_until <= now;
        IF FOUND THEN
            PERFORM tenure.offer_resource(now, item.pool, item.name);
        END IF;
    END LOOP;
    RETURN tenure.word(CASE WHEN FOUND THEN 'more' ELSE 'ok' END);
END $$;

-- Delete a few rows of each kind that are no longer needed: numbered answers, limiters, records of endings, barriers,
-- queues. It does not wait for locks: what is locked is left for another time. -> ok
CREATE FUNCTION tenure.forget(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.time(_clock);
    at double precision := now / 1e6::double precision;
    given record;
    object bytea;
    queue tenure.queue;
BEGIN
    -- what a crash of the server takes back is forgotten again later
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR given IN SELECT g.ctid, g.keep_until FROM tenure.given g WHERE g.look_at <= now
        ORDER BY g.look_at LIMIT 64 FOR UPDATE SKIP LOCKED
    LOOP
        IF given.keep_until > now THEN
            UPDATE tenure.given g SET look_at = given.keep_until WHERE g.ctid = given.ctid;
        ELSE
            DELETE FROM tenure.given g WHERE g.ctid = given.ctid;
        END IF;
    END LOOP;
    WITH outdated AS (
        DELETE FROM tenure.limiter r WHERE r.key = ANY (ARRAY(
            -- a second later, for those whose clock was read a little earlier
            SELECT p.key FROM tenure.limiter p WHERE p.until < at - 1 ORDER BY p.until LIMIT 64 FOR UPDATE SKIP LOCKED
        )) AND r.until < at - 1 RETURNING r.key
    )
    DELETE FROM tenure.limiter_waiter w USING outdated o WHERE w.key = o.key AND w.due < at - 1;
    PERFORM tenure.forget_outdated(now, 24);
    FOR object IN SELECT b.key FROM tenure.barrier b WHERE b.look_at <= now ORDER BY b.look_at LIMIT 64 LOOP
        IF tenure.try_lock('barrier', object) THEN
            PERFORM tenure.tidy_barrier(now, object);
        END IF;
    END LOOP;
    FOR object IN SELECT q.name FROM tenure.queue q WHERE q.look_at <= now ORDER BY q.look_at LIMIT 64 LOOP
        IF tenure.try_lock('queue', object) THEN
            SELECT * INTO queue FROM tenure.queue q WHERE q.name = object AND q.look_at <= now;
            IF FOUND THEN
                queue.look_at := tenure.forget_keys(now, object, 256);
                PERFORM tenure.save(now, queue);
            END IF;
        END IF;
    END LOOP;
    RETURN tenure.word('ok');
END $$;

-- -> ok, gone, more
CREATE FUNCTION tenure.close_session(_clock bigint, _cap bigint, _session bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
BEGIN
    PERFORM tenure.lock('sweep', '');
    PERFORM tenure.lock('session', _session);
    now := tenure.time(_clock);
    IF tenure.is_due(now) THEN
        RETURN tenure.word('more');
    END IF;
    UPDATE tenure.session s SET expires = -1 WHERE s.name = _session RETURNING * INTO mine;
    IF NOT FOUND THEN
        RETURN tenure.word('gone');
    END IF;
    PERFORM tenure.begin_steps(_cap);
    RETURN tenure.word(CASE WHEN tenure.finish(now, mine.id) THEN 'ok' ELSE 'more' END);
END $$;
