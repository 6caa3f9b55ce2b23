-- Single tasks, and the administration of a queue.
-- Needs: families, groups, keys, paces, state, tasks

CREATE FUNCTION tenure.state_of(_now bigint, _task tenure.task) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _task.ending THEN 'ending' WHEN _task.session = 0 THEN 'suspended' WHEN _task.session < 0 THEN 'held'
        WHEN _task.session IS NOT NULL THEN 'leased' WHEN _task.delayed AND _task.ready_at > _now THEN 'delayed'
        ELSE 'waiting' END;

-- -> ok, refused, requested, more
CREATE FUNCTION tenure.progress(_clock bigint, _cap bigint, _queue bytea, _id bigint, _token bigint, _data bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    stop bigint;
BEGIN
    IF tenure.enter_object(_clock, 'queue', _queue) IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    UPDATE tenure.task t SET progress = _data
    WHERE t.id = _id AND t.queue = _queue AND t.session > 0 AND t.token = _token RETURNING t.stop INTO stop;
    IF NOT FOUND THEN
        RETURN tenure.reply('refused');
    END IF;
    PERFORM tenure.notify_watchers('change', _queue, _id, _id::text::bytea, 'changed');
    RETURN tenure.reply(CASE WHEN stop > 0 THEN 'requested' ELSE 'ok' END);
END $$;

-- -> outcome(attempts; state, result), unfinished(again; state), unknown, gone, more
CREATE FUNCTION tenure.get_result(_clock bigint, _cap bigint, _queue bytea, _id bigint, _watch bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    task tenure.task;
    ended tenure.ended;
BEGIN
    PERFORM tenure.keep_session(_watch);
    now := tenure.enter_object(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _watch;
    IF NOT FOUND AND _watch <> '' THEN
        RETURN tenure.reply('gone');
    END IF;
    SELECT * INTO task FROM tenure.task t WHERE t.id = _id AND t.queue = _queue;
    IF FOUND THEN
        IF _watch <> '' THEN
            PERFORM tenure.subscribe_once('task', _queue, _id, mine);
        END IF;
        RETURN ROW('unfinished', ARRAY[tenure.ask_again_in(now, NULL)],
            ARRAY[tenure.state_of(now, task)::bytea])::tenure.answer;
    END IF;
    -- by the id alone: a plan made while the table was empty may take the index on queue and state
    SELECT * INTO ended FROM tenure.ended e WHERE e.id = _id;
    IF NOT FOUND OR ended.queue <> _queue OR ended.expires <= now THEN
        RETURN tenure.reply('unknown');
    END IF;
    RETURN ROW('outcome', ARRAY[ended.attempts], ARRAY[ended.state::bytea, ended.result])::tenure.answer;
END $$;

-- Have a task end as cancelled, or in another state, or ask its holder to cancel it. -> the queue, and whether there
-- is such a task that has not ended
CREATE FUNCTION tenure.cancel_task(
    _now bigint, INOUT _q tenure.queue, _id bigint, _ttl bigint, _state text DEFAULT 'cancelled', OUT _done boolean
) LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
BEGIN
    SELECT * INTO task FROM tenure.task t WHERE t.id = _id AND t.queue = _q.name;
    _done := FOUND AND task.session IS DISTINCT FROM -1;
    IF _done AND task.ending THEN
        UPDATE tenure.family f SET verdict = _state, ttl = _ttl WHERE f.task = _id AND f.verdict = 'retry';
    ELSIF _done AND coalesce(task.session, 0) = 0 THEN
        _q := tenure.finish_task(_now, _q, task, _state, '', _ttl, 0);
    ELSIF _done AND coalesce(task.stop, 0) = 0 THEN
        UPDATE tenure.task t SET stop = nextval('tenure.last_made'), stop_ttl = _ttl
        WHERE t.queue = _q.name AND t.id = _id;
        PERFORM tenure.hint(task.process, _q.name, task.token::text::bytea, 'stop');
        IF task.kin AND tenure.unfinished_children(_id) > 0 THEN
            PERFORM tenure.begin_sweep(_id, '');
        END IF;
    END IF;
END $$;

-- One unfinished task is of another group now, which its row says already.
CREATE FUNCTION tenure.change_group(_q tenure.queue, _former bytea, _group bytea) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
BEGIN
    IF _former = '' AND _group <> '' THEN
        _q := tenure.count_tasks(_q, ARRAY[_former], 1, -1, 0, 0, 0);
        _q := tenure.count_tasks(_q, ARRAY[_group], 1, 1, 0, 0, 0);
    ELSIF _former <> _group THEN
        -- in this order, the last group does not go meanwhile
        _q := tenure.count_tasks(_q, ARRAY[_group], 1, 1, 0, 0, 0);
        _q := tenure.count_tasks(_q, ARRAY[_former], 1, -1, 0, 0, 0);
    END IF;
    RETURN _q;
END $$;

-- Make a task that no taker holds ready after a delay, with another payload, priority or group; each is NULL to stay.
-- -> the queue, and whether there is such a task
CREATE FUNCTION tenure.postpone_task(
    _now bigint, INOUT _q tenure.queue, _id bigint, _delay bigint, _payload bytea, _priority bigint, _group bytea,
    OUT _done boolean
) LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
    former bytea;
BEGIN
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _q.name AND t.id = _id AND t.session IS NULL;
    _done := FOUND;
    IF NOT _done THEN
        RETURN;
    END IF;
    former := task.group_name;
    IF coalesce(_delay, _priority, length(_group)) IS NULL THEN
        UPDATE tenure.task t SET payload = coalesce(_payload, t.payload) WHERE t.queue = _q.name AND t.id = _id;
        IF _q.followed THEN
            _q := tenure.notify_followers(_q, ARRAY[_id]);
        END IF;
        RETURN;
    END IF;
    IF former <> _group AND _q.round > 0 THEN
        UPDATE tenure.task_group g SET pinned = 0 WHERE g.ctid = tenure.place_of_group(_q, former) AND g.pinned = _id;
    END IF;
    _q := tenure.count_tasks(_q, ARRAY[former], 1, 0, -(NOT task.delayed)::int, -task.delayed::int, 0);
    task.priority := coalesce(_priority, task.priority);
    task.group_name := coalesce(_group, former);
    task.ready_at := coalesce(_now + _delay, CASE WHEN task.delayed THEN task.ready_at END, least(task.ready_at, _now));
    -- so that it is not found as the next task that is due
    UPDATE tenure.task t SET delayed = false, payload = coalesce(_payload, t.payload), priority = task.priority,
        group_name = task.group_name
    WHERE t.queue = _q.name AND t.id = _id
        AND (t.delayed OR (_payload, _priority, _group) IS DISTINCT FROM (NULL::bytea, NULL::bigint, NULL::bytea));
    _q := tenure.change_group(_q, former, task.group_name);
    _q := tenure.return_task(_now, _q, task);
    IF former <> task.group_name AND _q.producers > 0 THEN
        _q := tenure.make_room(_q, ARRAY[former]);
    END IF;
END $$;

-- A dead task becomes ready again, unless its key is in use or it is a child. -> the queue, and whether it did
CREATE FUNCTION tenure.revive_task(_now bigint, INOUT _q tenure.queue, _ended tenure.ended, OUT _done boolean)
LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
BEGIN
    _done := NOT EXISTS (SELECT FROM tenure.owner_of(_now, _q.name, _ended.key) o WHERE o._id <> _ended.id)
        AND NOT (_ended.kin AND EXISTS (
            SELECT FROM tenure.family f WHERE f.task = _ended.id AND f.parent > 0 AND NOT f.release));
    IF NOT _done THEN
        RETURN;
    END IF;
    IF _ended.kin THEN
        UPDATE tenure.family f SET life = f.life + 1, named = false, ran = false WHERE f.task = _ended.id AND f.ran;
        PERFORM tenure.end_try(_ended.id);
    END IF;
    DELETE FROM tenure.ended e WHERE e.id = _ended.id;
    DELETE FROM tenure.todo t WHERE t.due = _ended.expires AND t.id = _ended.id;
    INSERT INTO tenure.task AS t
        (id, queue, priority, ready_at, key, payload, progress, failure, meta, group_name, first_put, kin)
    VALUES (_ended.id, _q.name, _ended.priority, _now, _ended.key, _ended.payload, coalesce(_ended.progress, ''),
        _ended.failure, _ended.meta, _ended.group_name, CASE WHEN _ended.key IS NOT NULL THEN _now END,
        _ended.kin)
    RETURNING * INTO task;
    _q := tenure.count_tasks(_q, ARRAY[task.group_name], 1, 1, 0, 0, 0);
    _q.dead := _q.dead - 1;
    _q.lasting := _q.lasting - (_ended.expires IS NULL)::int;
    _q := tenure.return_task(_now, _q, task);
END $$;

-- The first `_limit` delayed tasks that are due and were not yet promoted: no more than an exchange would promote. The
-- others count as delayed.
CREATE FUNCTION tenure.due_tasks(_now bigint, _queue bytea, _since bigint DEFAULT 0, _limit bigint DEFAULT 256)
RETURNS SETOF tenure.task LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM tenure.task t
        WHERE t.queue = _queue AND t.session IS NULL AND t.delayed AND t.ready_at >= _since AND t.ready_at <= _now
        ORDER BY t.ready_at, t.id LIMIT _limit;
END $$;

-- Up to `_limit` tasks in a state, behind a place: group and (priority, ready_at, id), (ready_at, id), (token) or (id).
CREATE FUNCTION tenure.list_tasks(
    _now bigint, _queue bytea, _state text, _group bytea, _after bigint[], _limit bigint
) RETURNS SETOF tenure.task LANGUAGE plpgsql AS $$
DECLARE
    last tenure.task;
BEGIN
    IF _state = 'waiting' THEN
        -- each in the order of the index: those of the same group and priority, those of lower ones, and other groups
        RETURN QUERY SELECT * FROM (
            (SELECT * FROM tenure.task t
                WHERE t.queue = _queue AND t.group_name = _group AND t.session IS NULL AND NOT t.delayed
                    AND t.priority = _after[1] AND (t.ready_at, t.id) > (_after[2], _after[3])
                ORDER BY t.ready_at, t.id LIMIT _limit)
            UNION ALL
            (SELECT * FROM tenure.task t
                WHERE t.queue = _queue AND t.group_name = _group AND t.session IS NULL AND NOT t.delayed
                    AND t.priority < coalesce(_after[1], 9223372036854775807)
                ORDER BY t.priority DESC, t.ready_at, t.id LIMIT _limit)
            UNION ALL
            (SELECT * FROM tenure.task t
                WHERE t.queue = _queue AND t.group_name > _group AND t.session IS NULL AND NOT t.delayed
                ORDER BY t.group_name, t.priority DESC, t.ready_at, t.id LIMIT _limit)
            UNION ALL
            (SELECT * FROM tenure.due_tasks(_now, _queue) d
                WHERE cardinality(_after) = 0
                    OR (d.group_name, -d.priority, d.ready_at, d.id) > (_group, -_after[1], _after[2], _after[3]))
        ) w ORDER BY w.group_name, w.priority DESC, w.ready_at, w.id LIMIT _limit;
    ELSIF _state = 'delayed' THEN
        SELECT * INTO last FROM tenure.due_tasks(_now, _queue) d ORDER BY d.ready_at DESC, d.id DESC LIMIT 1;
        RETURN QUERY SELECT * FROM tenure.task t
            WHERE t.queue = _queue AND t.session IS NULL AND t.delayed
                AND (t.ready_at, t.id) > (coalesce(_after[1], -1), coalesce(_after[2], -1))
                AND (t.ready_at, t.id) > (coalesce(last.ready_at, -1), coalesce(last.id, -1))
            ORDER BY t.ready_at, t.id LIMIT _limit;
    ELSIF _state = 'leased' THEN
        RETURN QUERY SELECT * FROM tenure.task t
            WHERE t.queue = _queue AND t.session IS NOT NULL AND t.token > greatest(_after[1], 0)
            ORDER BY t.token LIMIT _limit;
    ELSE
        RETURN QUERY SELECT * FROM tenure.task t
            WHERE t.queue = _queue AND t.session = 0 AND t.ending = (_state = 'ending')
                AND t.id > coalesce(_after[1], 0)
            ORDER BY t.id LIMIT _limit;
    END IF;
END $$;

-- Forget the records of tasks, in the state `_only` unless it is empty. -> the queue, and how many
CREATE FUNCTION tenure.purge_records(
    _now bigint, INOUT _q tenure.queue, _ids bigint[], _only text, OUT _purged bigint
) LANGUAGE plpgsql AS $$
DECLARE
    lasting bigint;
    dead bigint;
    families bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM tenure.ended WHERE ctid = ANY (ARRAY(
            -- by the id alone: a plan made while the table was empty may take the index on queue and state
            SELECT f.ctid FROM unnest(_ids) i (id)
                CROSS JOIN LATERAL (
                    SELECT e.ctid, e.queue, e.state, e.expires FROM tenure.ended e WHERE e.id = i.id LIMIT 1
                ) f
            WHERE f.queue = _q.name AND _only IN ('', f.state) AND coalesce(f.expires > _now, true)
        )) RETURNING id, expires, kin, state
    ), undone AS (
        DELETE FROM tenure.todo WHERE ctid = ANY (ARRAY(
            SELECT t.ctid FROM gone g
                CROSS JOIN LATERAL (SELECT o.ctid FROM tenure.todo o WHERE o.due = g.expires AND o.id = g.id LIMIT 1) t
            WHERE g.state = 'dead'
        ))
    )
    SELECT count(*), count(*) FILTER (WHERE g.expires IS NULL), count(*) FILTER (WHERE g.state = 'dead'),
        array_agg(g.id) FILTER (WHERE g.state = 'dead' AND g.kin)
    INTO _purged, lasting, dead, families FROM gone g;
    _q.lasting := _q.lasting - lasting;
    _q.dead := _q.dead - dead;
    _q.purged := _q.purged + dead;
    PERFORM tenure.forget_family(f.id) FROM unnest(families) f (id);
END $$;

-- Delete a task that no taker holds, in the state `_only` unless it is empty. -> the queue, and whether there is one
CREATE FUNCTION tenure.purge_task(_now bigint, INOUT _q tenure.queue, _id bigint, _only text, OUT _done boolean)
LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
BEGIN
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _q.name AND t.id = _id AND t.session IS NULL;
    _done := FOUND AND _only IN ('', tenure.state_of(_now, task))
        AND NOT EXISTS (SELECT FROM tenure.family f WHERE f.task = _id AND f.release);
    IF _done THEN
        _q := tenure.finish_task(_now, _q, task, 'purged', '', 0, 0);
    END IF;
END $$;

CREATE FUNCTION tenure.is_in_state(_now bigint, _queue bytea, _id bigint, _state text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
BEGIN
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
    IF FOUND THEN
        RETURN tenure.state_of(_now, task) = _state;
    END IF;
    RETURN EXISTS (SELECT FROM tenure.ended e WHERE e.id = _id AND e.queue = _queue AND e.state = _state);
END $$;

-- Move tasks that are in the state `_only`, unless it is empty; a ttl of NULL is for good. -> changed(count), more
CREATE FUNCTION tenure.move(
    _clock bigint, _cap bigint, _queue bytea, _to text, _ids bigint[], _ttl bigint,
    _delay bigint, _payload bytea, _priority bigint, _group bytea, _only text
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'queue', _queue);
    queue tenure.queue;
    ended tenure.ended;
    moved record;
    count bigint := 0;
    before bigint;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    queue := tenure.keep_record(now, tenure.read_queue(now, _queue));
    IF queue.name IS NULL THEN
        RETURN ROW('changed', ARRAY[0], NULL)::tenure.answer;
    END IF;
    before := queue.takeable;
    IF _to = 'purged' THEN
        moved := tenure.purge_records(now, queue, _ids, _only);
        queue := moved._q;
        count := moved._purged;
        _ids := ARRAY(SELECT t.id FROM unnest(_ids) WITH ORDINALITY i (id, n) CROSS JOIN LATERAL (
            SELECT t.id FROM tenure.task t WHERE t.queue = _queue AND t.id = i.id LIMIT 1
        ) t ORDER BY i.n);
    END IF;
    FOR i IN 1 .. cardinality(_ids) LOOP
        IF _to = 'purged' THEN
            moved := tenure.purge_task(now, queue, _ids[i], _only);
        ELSIF _only <> '' AND NOT tenure.is_in_state(now, _queue, _ids[i], _only) THEN
            CONTINUE;
        ELSIF _to = 'cancelled' THEN
            moved := tenure.cancel_task(now, queue, _ids[i], _ttl);
        ELSIF _to = 'delayed' THEN
            moved := tenure.postpone_task(now, queue, _ids[i], _delay, _payload, _priority, _group);
        ELSE
            -- by the id alone: a plan made while the table was empty may take the index on queue and state
            SELECT * INTO ended FROM tenure.ended e WHERE e.id = _ids[i];
            CONTINUE WHEN NOT FOUND OR ended.queue <> _queue OR ended.state <> 'dead';
            moved := tenure.revive_task(now, queue, ended);
        END IF;
        queue := moved._q;
        count := count + moved._done::int;
    END LOOP;
    PERFORM tenure.save_queue(now, tenure.offer_tasks(queue, queue.takeable - before));
    PERFORM tenure.sweep_on(now, _clock);
    RETURN ROW('changed', ARRAY[count], NULL)::tenure.answer;
END $$;

-- -> ok, more
CREATE FUNCTION tenure.set_paused(
    _clock bigint, _cap bigint, _queue bytea, _paused boolean, _seconds bigint, _group bytea
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'queue', _queue);
    queue tenure.queue;
    due bigint;
    before bigint;
    was_closed boolean;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    queue := tenure.use_queue(now, _queue);
    IF _seconds IS NULL AND _paused THEN
        queue.paused := true;
        PERFORM tenure.save_queue(now, queue);
        RETURN tenure.reply('ok');
    END IF;
    due := tenure.next_due(queue);
    before := queue.takeable;
    was_closed := queue.closed_until IS NOT NULL;
    IF _seconds > 0 OR queue.has_groups THEN
        queue := tenure.hold_off_queue(queue, _group, now + coalesce(_seconds, 0));
    END IF;
    IF _seconds IS NULL THEN
        queue.paused := false;
        before := 0;
    END IF;
    queue := tenure.offer_tasks(
        queue, CASE WHEN was_closed THEN queue.waiting ELSE queue.takeable - before END);
    PERFORM tenure.save_queue(now, tenure.offer_sooner(queue, due));
    RETURN tenure.reply('ok');
END $$;

-- How many tasks wait that a take would find from the fronts: all that wait, unless something went wrong.
CREATE FUNCTION tenure.count_takeable(_q tenure.queue) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT coalesce(sum(c.n), 0) FROM (
            SELECT o.name, o.fronts FROM tenure.task_group o WHERE o.queue = _q.name AND o.period = _q.period
            UNION ALL
            SELECT ''::bytea, _q.fronts WHERE _q.round = 0
        ) g CROSS JOIN LATERAL (
            SELECT count(*) AS n
            FROM generate_series(1, cardinality(g.fronts), 3) i CROSS JOIN LATERAL (
                SELECT FROM tenure.task t
                WHERE t.queue = _q.name AND t.group_name = g.name AND t.session IS NULL AND NOT t.delayed
                    AND t.priority = g.fronts[i] AND (t.ready_at, t.id) >= (g.fronts[i + 1], g.fronts[i + 2])
            ) found
            UNION ALL
            SELECT count(*) FROM tenure.task t
            WHERE g.fronts IS NULL AND t.queue = _q.name AND t.group_name = g.name AND t.session IS NULL
                AND NOT t.delayed
        ) c
    );
END $$;

-- -> counts(put, waiting, delayed, leased, done, dead, cancelled, expired, discarded, purged, reserved, producers,
-- groups, paused, oldest, again, now, max_size, group_counter, suspended, ending, starts_in, held_off, held; rate and
-- group_rate or NULL), then cursor(; name, value) of each; gone, more
CREATE FUNCTION tenure.count(_clock bigint, _cap bigint, _queue bytea, _watch bytea, _recount boolean)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    q tenure.queue;
    due bigint := 0;
    oldest bigint;
    group_counter bigint;
    fronts bigint[];
    grouped bigint;
    leased bigint;
BEGIN
    PERFORM tenure.keep_session(_watch);
    now := tenure.enter_object(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN NEXT tenure.reply('more');
        RETURN;
    END IF;
    IF _watch <> '' THEN
        SELECT * INTO mine FROM tenure.session s WHERE s.name = _watch;
        IF NOT FOUND THEN
            RETURN NEXT tenure.reply('gone');
            RETURN;
        END IF;
    END IF;
    q := tenure.read_queue(now, _queue);
    IF q.name IS NULL THEN
        RETURN NEXT ROW('counts',
            array_fill(0, ARRAY[15]) || ARRAY[tenure.ask_again_in(now, NULL), now, 10000, 0, 0, 0, 0, 0, 0], NULL)::tenure.answer;
        RETURN;
    END IF;
    IF _watch <> '' AND q.live > 0 THEN
        PERFORM tenure.subscribe_once('drain', _queue, 0, mine);
    END IF;
    group_counter := q.groups;
    IF _recount THEN
        IF 1 < (SELECT count(*) FROM tenure.queue o WHERE o.name = _queue) THEN
            RAISE 'the queue has more than one row' USING ERRCODE = 'data_corrupted';
        END IF;
        -- what lies before its mark is not there
        SELECT count(*) FILTER (WHERE t.session > 0), count(*) FILTER (WHERE t.session = 0 AND NOT t.ending),
            count(*) FILTER (WHERE t.session = 0 AND t.ending),
            count(*) FILTER (WHERE t.session IS NULL AND t.delayed AND t.ready_at >= q.first_due),
            count(*) FILTER (WHERE t.session < 0),
            count(DISTINCT nullif(t.group_name, '')) FILTER (WHERE t.session IS DISTINCT FROM -1)
        INTO leased, q.suspended, q.ending, q.delayed, q.held, q.groups FROM tenure.task t WHERE t.queue = _queue;
        q.waiting := tenure.count_takeable(q);
        q.live := leased + q.waiting + q.delayed + q.suspended + q.ending;
        SELECT count(*) INTO q.dead FROM tenure.ended e WHERE e.queue = _queue AND e.state = 'dead';
    END IF;
    IF q.delayed > 0 THEN
        SELECT count(*) INTO due FROM tenure.due_tasks(now, _queue, q.first_due);
    END IF;
    fronts := q.fronts;
    IF q.round > 0 THEN
        fronts := (SELECT g.fronts FROM tenure.task_group g WHERE g.ctid = tenure.place_of_group(q, ''));
        grouped := (SELECT t.ready_at FROM tenure.task t
            WHERE t.queue = _queue AND t.group_name <> '' AND t.session IS NULL AND NOT t.delayed
                AND t.ready_at >= q.first_grouped
            ORDER BY t.ready_at LIMIT 1);
        -- the next look begins there
        IF grouped > q.first_grouped + 1000000 THEN
            UPDATE tenure.queue o SET first_grouped = grouped WHERE o.name = _queue AND o.page = q.page;
        END IF;
    END IF;
    oldest := least(
        now,
        grouped,
        (SELECT t.ready_at FROM tenure.task t
            WHERE t.queue = _queue AND t.group_name = '' AND t.session IS NULL AND NOT t.delayed
                AND t.ready_at >= tenure.oldest_front(fronts)
            ORDER BY t.ready_at LIMIT 1),
        tenure.delayed_until(q)
    );
    RETURN NEXT ROW('counts', ARRAY[
        q.put, q.waiting + due, q.delayed - due, q.live - q.waiting - q.delayed - q.suspended - q.ending, q.done, q.dead, q.cancelled, q.expired,
        q.discarded, q.purged, q.reserved, q.producers, q.groups, q.paused::int, now - oldest,
        tenure.ask_again_in(now, NULL), now,
        q.max_size, group_counter, q.suspended, q.ending,
        tenure.starts_in(now, q.starts_at), CASE WHEN q.paced_at IS NULL THEN 0 ELSE tenure.starts_in(now, q.starts_at) END,
        q.held
    ], ARRAY[tenure.shown_rate(q.rate), tenure.shown_rate(q.group_rate)])::tenure.answer;
    RETURN QUERY SELECT 'cursor', NULL::bigint[], ARRAY[c.name, c.value]
        FROM tenure.cursor c WHERE c.queue = _queue ORDER BY c.name;
END $$;
