-- Single tasks, and the administration of a queue.

CREATE FUNCTION tenure.state_of(_now bigint, _task tenure.task) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _task.session IS NOT NULL THEN 'leased' WHEN _task.ready_at > _now THEN 'delayed'
        ELSE 'waiting' END;

-- -> ok, refused, requested, more
CREATE FUNCTION tenure.progress(_clock bigint, _cap bigint, _queue bytea, _id bigint, _token bigint, _data bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    stop bigint;
BEGIN
    IF tenure.enter(_clock, 'queue', _queue) IS NULL THEN
        RETURN tenure.word('more');
    END IF;
    UPDATE tenure.task t SET progress = _data
    WHERE t.id = _id AND t.queue = _queue AND t.session IS NOT NULL AND t.token = _token RETURNING t.stop INTO stop;
    RETURN tenure.word(CASE WHEN NOT FOUND THEN 'refused' WHEN stop IS NULL THEN 'ok' ELSE 'requested' END);
END $$;

-- -> outcome(attempts; state, result), unfinished(again; state, progress), unknown, gone, more
CREATE FUNCTION tenure.result(_clock bigint, _cap bigint, _queue bytea, _id bigint, _watch bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    task tenure.task;
    ended tenure.ended;
BEGIN
    PERFORM tenure.keep(_watch);
    now := tenure.enter(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN tenure.word('more');
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _watch;
    IF NOT FOUND AND _watch <> '' THEN
        RETURN tenure.word('gone');
    END IF;
    SELECT * INTO task FROM tenure.task t WHERE t.id = _id AND t.queue = _queue;
    IF FOUND THEN
        IF _watch <> '' THEN
            PERFORM tenure.watch('task', _queue, _id, mine);
        END IF;
        RETURN ROW('unfinished', ARRAY[tenure.again(now, NULL)],
            ARRAY[tenure.state_of(now, task)::bytea, task.progress])::tenure.answer;
    END IF;
    SELECT * INTO ended FROM tenure.ended e
    WHERE e.id = _id AND e.queue = _queue AND (e.expires IS NULL OR e.expires > now);
    IF NOT FOUND THEN
        RETURN tenure.word('unknown');
    END IF;
    RETURN ROW('outcome', ARRAY[ended.attempts], ARRAY[ended.state::bytea, ended.result])::tenure.answer;
END $$;

-- A ttl of NULL is for good. -> cancelled, requested, unknown, more
CREATE FUNCTION tenure.cancel(_clock bigint, _cap bigint, _queue bytea, _id bigint, _ttl bigint)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter(_clock, 'queue', _queue);
    task tenure.task;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.word('more');
    END IF;
    SELECT * INTO task FROM tenure.task t WHERE t.id = _id AND t.queue = _queue;
    IF NOT FOUND THEN
        RETURN tenure.word('unknown');
    ELSIF task.session IS NULL THEN
        PERFORM tenure.save(tenure.end_task(
            now, tenure.step_out(tenure.queue_of(_queue), task.delayed), task, 'cancelled', '', _ttl));
        RETURN tenure.word('cancelled');
    ELSIF task.stop IS NULL THEN
        UPDATE tenure.task t SET stop = nextval('tenure.last_made'), stop_ttl = _ttl
        WHERE t.queue = _queue AND t.id = _id;
        PERFORM tenure.hint(task.process, _queue, task.token::text::bytea, 'stop');
    END IF;
    RETURN tenure.word('requested');
END $$;

-- With `_ids` NULL all dead tasks. -> changed(count, 1 if there are more), more
CREATE FUNCTION tenure.requeue(_clock bigint, _cap bigint, _queue bytea, _ids bigint[])
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter(_clock, 'queue', _queue);
    queue tenure.queue;
    candidates refcursor;
    ended tenure.ended;
    task tenure.task;
    changed bigint := 0;
    more bigint := 0;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.word('more');
    END IF;
    queue := tenure.queue_of(_queue);
    IF _ids IS NULL THEN
        OPEN candidates FOR SELECT * FROM tenure.ended e WHERE e.queue = _queue AND e.state = 'dead' ORDER BY e.seq;
    ELSE
        -- an expression, so that it is not looked for in the order of all that are dead
        OPEN candidates FOR SELECT * FROM tenure.ended e
            WHERE e.id = ANY (_ids) AND e.queue = _queue AND e.state = 'dead' ORDER BY e.seq + 0;
    END IF;
    LOOP
        FETCH candidates INTO ended;
        EXIT WHEN NOT FOUND;
        CONTINUE WHEN EXISTS (SELECT FROM tenure.task t WHERE t.queue = _queue AND t.key = ended.key);
        IF changed = _cap THEN
            more := 1;
            EXIT;
        END IF;
        changed := changed + 1;
        DELETE FROM tenure.ended e WHERE e.id = ended.id;
        INSERT INTO tenure.task AS t (id, queue, priority, ready_at, key, payload)
        VALUES (ended.id, _queue, ended.priority, now, ended.key, ended.payload) RETURNING * INTO task;
        queue.dead := queue.dead - 1;
        queue.live := queue.live + 1;
        queue := tenure.return_task(now, queue, task);
    END LOOP;
    PERFORM tenure.save(queue);
    RETURN ROW('changed', ARRAY[changed, more], NULL)::tenure.answer;
END $$;

-- The states in the order in which they are to be purged. -> changed(count, 1 if there are more), more
CREATE FUNCTION tenure.purge(_clock bigint, _cap bigint, _queue bytea, _states text[])
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter(_clock, 'queue', _queue);
    queue tenure.queue;
    task tenure.task;
    one text;
    here bigint;
    rest bigint := _cap;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.word('more');
    END IF;
    queue := tenure.queue_of(_queue);
    FOREACH one IN ARRAY _states LOOP
        IF one IN ('waiting', 'delayed') THEN
            FOR task IN
                SELECT * FROM tenure.task t
                WHERE t.queue = _queue AND t.session IS NULL AND (t.ready_at > now) = (one = 'delayed')
                ORDER BY t.id LIMIT rest
            LOOP
                rest := rest - 1;
                queue := tenure.step_out(queue, task.delayed);
                queue.purged := queue.purged + 1;
                queue := tenure.remove_task(queue, task.id);
                PERFORM tenure.fire_finished(_queue, task.id);
            END LOOP;
        ELSE
            DELETE FROM tenure.ended WHERE id IN (
                SELECT e.id FROM tenure.ended e
                WHERE e.queue = _queue AND e.state = one AND (e.expires IS NULL OR e.expires > now)
                ORDER BY e.seq LIMIT rest
            );
            GET DIAGNOSTICS here = ROW_COUNT;
            rest := rest - here;
            IF one = 'dead' THEN
                queue.dead := queue.dead - here;
                queue.purged := queue.purged + here;
            END IF;
        END IF;
    END LOOP;
    PERFORM tenure.save(queue);
    RETURN ROW('changed', ARRAY[_cap - rest, (rest = 0)::int], NULL)::tenure.answer;
END $$;

-- -> page, then record(seq, id, priority, attempts, deliveries, age; state, payload, key or NULL, result) of each; more
CREATE FUNCTION tenure.browse(_clock bigint, _cap bigint, _queue bytea, _state text, _after bigint, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter(_clock, 'queue', _queue);
BEGIN
    IF now IS NULL THEN
        RETURN NEXT tenure.word('more');
        RETURN;
    END IF;
    RETURN NEXT tenure.word('page');
    IF _state IN ('ended', 'dead') THEN
        RETURN QUERY
            SELECT 'record', ARRAY[e.seq, e.id, e.priority, e.attempts, e.deliveries, greatest(0, now - e.ended_at)],
                ARRAY[e.state::bytea, e.payload, e.key, e.result]
            FROM unnest(CASE _state WHEN 'dead' THEN ARRAY['dead']
                    ELSE ARRAY['done', 'dead', 'discarded', 'cancelled', 'expired'] END) s (state)
                CROSS JOIN LATERAL (
                    SELECT * FROM tenure.ended a
                    WHERE a.queue = _queue AND a.state = s.state AND a.seq > _after
                        AND (a.expires IS NULL OR a.expires > now)
                    ORDER BY a.seq LIMIT _limit
                ) e
            ORDER BY e.seq LIMIT _limit;
    ELSE
        RETURN QUERY
            SELECT 'record', ARRAY[t.id, t.id, t.priority, t.attempts, t.deliveries, greatest(0, now - t.ready_at)],
                ARRAY[_state::bytea, t.payload, t.key, '']
            FROM tenure.task t WHERE t.queue = _queue AND t.id > _after AND tenure.state_of(now, t) = _state
            ORDER BY t.id LIMIT _limit;
    END IF;
END $$;

-- -> ok, more
CREATE FUNCTION tenure.set_paused(_clock bigint, _cap bigint, _queue bytea, _paused boolean)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue;
BEGIN
    IF tenure.enter(_clock, 'queue', _queue) IS NULL THEN
        RETURN tenure.word('more');
    END IF;
    queue := tenure.queue_of(_queue);
    queue.paused := _paused;
    PERFORM tenure.save(tenure.offer_tasks(queue, queue.waiting));
    RETURN tenure.word('ok');
END $$;

-- -> counts(put, waiting, delayed, leased, done, dead, cancelled, expired, discarded, purged, reserved, producers,
-- paused, oldest, again), then cursor(; name, value) of each; gone, more
CREATE FUNCTION tenure.count_tasks(_clock bigint, _cap bigint, _queue bytea, _watch bytea, _recount boolean)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    q tenure.queue;
    due bigint := 0;
    oldest bigint;
BEGIN
    PERFORM tenure.keep(_watch);
    now := tenure.enter(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN NEXT tenure.word('more');
        RETURN;
    END IF;
    IF _watch <> '' THEN
        SELECT * INTO mine FROM tenure.session s WHERE s.name = _watch;
        IF NOT FOUND THEN
            RETURN NEXT tenure.word('gone');
            RETURN;
        END IF;
        PERFORM tenure.watch('drain', _queue, 0, mine);
    END IF;
    q := tenure.queue_of(_queue);
    IF _recount THEN
        SELECT count(*), count(*) FILTER (WHERE t.session IS NULL AND NOT t.delayed),
            count(*) FILTER (WHERE t.session IS NULL AND t.delayed)
        INTO q.live, q.waiting, q.delayed FROM tenure.task t WHERE t.queue = _queue;
        SELECT count(*) INTO q.dead FROM tenure.ended e WHERE e.queue = _queue AND e.state = 'dead';
    END IF;
    IF q.delayed > 0 THEN
        SELECT count(*) INTO due FROM tenure.task t
        WHERE t.queue = _queue AND t.session IS NULL AND t.delayed AND t.ready_at <= now;
    END IF;
    oldest := least(
        now,
        (SELECT min(t.ready_at) FROM tenure.task t WHERE t.queue = _queue AND t.session IS NULL AND NOT t.delayed),
        tenure.next_due(q)
    );
    RETURN NEXT ROW('counts', ARRAY[
        q.put, q.waiting + due, q.delayed - due, q.live - q.waiting - q.delayed, q.done, q.dead, q.cancelled, q.expired,
        q.discarded, q.purged, q.reserved, q.producers, q.paused::int, now - oldest, tenure.again(now, NULL)
    ], NULL)::tenure.answer;
    RETURN QUERY SELECT 'cursor', NULL::bigint[], ARRAY[c.name, c.value]
        FROM tenure.cursor c WHERE c.queue = _queue ORDER BY c.name;
END $$;
