-- Putting tasks, and the line of producers that found the queue full.
-- Needs: families, groups, keys, state, tasks

CREATE FUNCTION tenure.some_tasks(_t tenure.new_tasks, _first bigint, _last bigint) RETURNS tenure.new_tasks
LANGUAGE sql IMMUTABLE
    RETURN ROW(_t.payloads[_first:_last], _t.priorities[_first:_last], _t.delays[_first:_last], _t.keys[_first:_last],
        _t.expires[_first:_last], _t.metas[_first:_last], _t.groups[_first:_last],
        _t.about[_first:_last], _t.deadlines[_first:_last])::tenure.new_tasks;

-- The tasks are put, as children with `_kin`; duplicates are not. -> the queue, and of each task its id, or that of
-- its twin below zero
CREATE FUNCTION tenure.accept_tasks(
    _now bigint, INOUT _q tenure.queue, _tasks tenure.new_tasks, _twins bigint[], _firsts bigint[],
    _kin boolean DEFAULT false, OUT _ids bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    count bigint := cardinality(_tasks.payloads);
    due bigint;
    before bigint;
    first bigint;
    new_ones bigint[];
    ready bigint;
    added bigint;
    priorities bigint[] := _tasks.priorities;
    ready_groups bytea[];
    delayed_groups bytea[];
BEGIN
    IF _q.takers > 0 THEN
        due := tenure.next_due(_q);
        before := _q.takeable;
    END IF;
    IF _firsts IS NULL AND count = 1 THEN
        _ids := ARRAY[tenure.new_tokens(_now, 1)];
    ELSIF _firsts IS NULL THEN
        first := tenure.new_tokens(_now, count);
        _ids := ARRAY(SELECT first + i FROM generate_series(0, count - 1) i);
    ELSE
        new_ones := ARRAY(SELECT i FROM generate_series(1, count) i
            WHERE _twins[i] IS NULL AND coalesce(_firsts[i], i) = i ORDER BY i);
        first := tenure.new_tokens(_now, cardinality(new_ones));
        SELECT array_agg(coalesce(first + n.place - 1, -_twins[i]) ORDER BY i) INTO _ids
        FROM generate_series(1, count) i LEFT JOIN unnest(new_ones) WITH ORDINALITY n (i, place) USING (i);
        SELECT array_agg(coalesce(_ids[i], -_ids[_firsts[i]]) ORDER BY i) INTO _ids FROM generate_series(1, count) i;
    END IF;
    INSERT INTO tenure.task
        (id, queue, priority, ready_at, delayed, key, expires, payload, meta, group_name, first_put, kin, deadline)
    SELECT n.id, _q.name, n.priority, _now + coalesce(n.delay, 0), coalesce(n.delay > 0, false), n.key,
        _now + least(CASE WHEN n.expires >= 0 THEN n.expires END, CASE WHEN n.deadline >= 0 THEN n.deadline END),
        n.payload, n.meta, coalesce(n.group_name, ''), CASE WHEN n.key IS NOT NULL THEN _now END, _kin,
        CASE WHEN n.deadline >= 0 THEN _now + n.deadline END
    FROM unnest(_ids, _tasks.payloads, _tasks.priorities, _tasks.delays, _tasks.keys, _tasks.expires, _tasks.metas,
        _tasks.groups, _tasks.deadlines) AS n (id, payload, priority, delay, key, expires, meta, group_name, deadline)
    WHERE n.id > 0;
    GET DIAGNOSTICS added = ROW_COUNT;
    ready := added;
    IF _tasks.delays IS NOT NULL OR _tasks.groups IS NOT NULL OR _q.round > 0 THEN
        SELECT count(*) FILTER (WHERE n.delay <= 0), array_agg(n.name) FILTER (WHERE n.delay <= 0),
            array_agg(n.name) FILTER (WHERE n.delay > 0), array_agg(n.priority) FILTER (WHERE n.delay <= 0)
        INTO ready, ready_groups, delayed_groups, priorities
        FROM (
            SELECT coalesce(u.name, '') AS name, coalesce(u.delay, 0) AS delay, u.priority
            FROM unnest(_ids, _tasks.groups, _tasks.delays, _tasks.priorities) u (id, name, delay, priority)
            WHERE u.id > 0
        ) n;
    END IF;
    _q.put := _q.put + added;
    IF ready > 0 THEN
        _q := tenure.count_tasks(_q, ready_groups, ready, 1, 1, 0, 0, priorities, _now);
    END IF;
    IF added > ready THEN
        _q.first_due := least(_q.first_due, _now);
        _q := tenure.count_tasks(_q, delayed_groups, added - ready, 1, 0, 1, 0);
    END IF;
    IF _q.takers > 0 THEN
        _q := tenure.offer_sooner(tenure.offer_tasks(_q, _q.takeable - before), due);
    END IF;
END $$;

-- Whether producers wait for room in the queue, and not only in a group.
CREATE FUNCTION tenure.has_line(_q tenure.queue) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM tenure.producer p
        WHERE p.queue = _q.name AND NOT p.reserved AND NOT p.for_group AND p.ordinal >= _q.first_producer);
END $$;

-- The ordinal of the first in the line in which a producer waits.
CREATE FUNCTION tenure.first_of_line(_q tenure.queue, _place tenure.producer) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _place.for_group THEN
        RETURN (SELECT p.ordinal FROM tenure.producer p
            WHERE p.queue = _place.queue AND p.for_group AND p.group_name = _place.group_name
            ORDER BY p.ordinal LIMIT 1);
    END IF;
    RETURN (SELECT p.ordinal FROM tenure.producer p
        WHERE p.queue = _place.queue AND NOT p.reserved AND NOT p.for_group AND p.ordinal >= _q.first_producer
        ORDER BY p.ordinal LIMIT 1);
END $$;

-- Whether there is no room for so many new ones of the tasks, or others wait for room before them.
CREATE FUNCTION tenure.is_full(_q tenure.queue, _groups bytea[], _twins bigint[], _firsts bigint[], _new bigint)
RETURNS boolean LANGUAGE sql VOLATILE
    RETURN _new > 0 AND (_q.max_size - _q.live - _q.reserved < _new OR (_q.producers > 0 AND tenure.has_line(_q))
        OR (_q.group_size > 0 AND _groups IS NOT NULL AND NOT tenure.groups_have_room(_q, _groups, _twins, _firsts)));

-- Set the value of a cursor if the cursor has the expected value; an empty value removes the cursor.
-- -> NULL: the value was set; else the value that the cursor has
CREATE FUNCTION tenure.advance_cursor(_queue bytea, _cursor bytea, _value bytea, _expected bytea) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    former tenure.cursor;
BEGIN
    SELECT * INTO former FROM tenure.cursor c WHERE c.queue = _queue AND c.name = _cursor ORDER BY c.page DESC LIMIT 1;
    IF coalesce(former.value, '') <> _expected THEN
        RETURN coalesce(former.value, '');
    ELSIF _value = '' THEN
        DELETE FROM tenure.cursor c WHERE c.queue = _queue AND c.name = _cursor;
    ELSIF former.name IS NULL THEN
        INSERT INTO tenure.cursor (queue, name, value) VALUES (_queue, _cursor, _value);
    ELSE
        UPDATE tenure.cursor c SET value = _value, page = c.page + (c.changes % 32 = 31)::int, changes = c.changes + 1
        WHERE c.queue = _queue AND c.name = _cursor AND c.page = former.page;
    END IF;
    RETURN NULL;
END $$;

-- Request `_i` puts its tasks, or waits. -> the queue, and accepted(id or -twin...), conflict(; value of the cursor),
-- queued(place, again), refused
CREATE FUNCTION tenure.put_request(
    _now bigint, INOUT _q tenure.queue, _mine tenure.session, _requests tenure.put_requests, _i bigint,
    _tasks tenure.new_tasks, OUT _reply tenure.answer
) LANGUAGE plpgsql AS $$
DECLARE
    place tenure.producer;
    twins bigint[];
    firsts bigint[];
    new_ones bigint := _requests.counts[_i];
    joined record;
    value bytea;
    accepted record;
BEGIN
    IF _q.producers + _q.reserved > 0 THEN
        SELECT * INTO place FROM tenure.producer p WHERE p.queue = _q.name AND p.name = _requests.producers[_i];
    END IF;
    IF place.name IS NULL OR place.reserved THEN
        IF _tasks.keys IS NOT NULL THEN
            SELECT f._twins, f._firsts, f._new INTO twins, firsts, new_ones
            FROM tenure.find_twins(_now, _q.name, _tasks) f;
        END IF;
        IF place.reserved THEN
            DELETE FROM tenure.producer p WHERE p.queue = _q.name AND p.name = place.name;
            _q.reserved := _q.reserved - place.count;
            IF place.group_name <> '' THEN
                _q := tenure.regroup(_q, ARRAY[place.group_name], 0, 0, 0, -place.count);
            END IF;
        ELSIF tenure.is_full(_q, _tasks.groups, twins, firsts, new_ones) THEN
            IF _requests.waits[_i] = 1 AND _requests.counts[_i] <= _q.max_size THEN
                joined := tenure.join_line(_q, _mine, _requests.producers[_i], _requests.counts[_i], _tasks.groups);
                _q := joined._q;
                place := joined._place;
            END IF;
            IF place.name IS NULL THEN
                _reply := tenure.reply('refused');
                RETURN;
            END IF;
        END IF;
    END IF;
    IF place.name IS NOT NULL AND NOT place.reserved THEN
        _reply := ROW('queued', ARRAY[
            place.ordinal + 1 - tenure.first_of_line(_q, place), tenure.ask_again_in(_now, NULL)
        ], NULL)::tenure.answer;
        RETURN;
    END IF;
    IF _requests.cursors[_i] IS NOT NULL THEN
        value := tenure.advance_cursor(
            _q.name, _requests.cursors[_i], _requests.cursor_values[_i], _requests.expected[_i]);
    END IF;
    IF value IS NOT NULL THEN
        _reply := ROW('conflict', NULL, ARRAY[value])::tenure.answer;
    ELSE
        IF _tasks.about IS NOT NULL THEN
            accepted := tenure.accept_keyed_tasks(_now, _q, _tasks);
        ELSE
            accepted := tenure.accept_tasks(_now, _q, _tasks, twins, firsts);
        END IF;
        _q := accepted._q;
        _reply := ROW('accepted', accepted._ids, NULL)::tenure.answer;
    END IF;
    IF place.reserved THEN
        _q := tenure.make_room(_q, ARRAY[place.group_name]);
    END IF;
END $$;

-- -> put(revision), then the reply to each request; gone, more
CREATE FUNCTION tenure.put_tasks(
    _clock bigint, _cap bigint, _session bytea, _n bigint, _queue bytea,
    _requests tenure.put_requests, _tasks tenure.new_tasks
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    replies tenure.answer[];
    queue tenure.queue;
    requests bigint := cardinality(_requests.producers);
    last bigint := 0;
    done record;
    ok boolean;
BEGIN
    ok := tenure.keep_session(_session);
    now := tenure.enter_object(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN NEXT tenure.reply('more');
        RETURN;
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session ORDER BY s.page DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN NEXT tenure.reply('gone');
        RETURN;
    END IF;
    replies := tenure.cached_reply(now, mine, 'put', _queue, _n);
    IF replies IS NULL THEN
        queue := tenure.use_queue(now, _queue);
        IF queue.producers > 0 THEN
            queue := tenure.admit_producers(queue);
        END IF;
        replies := ARRAY[ROW('put', ARRAY[queue.revision], NULL)::tenure.answer];
        FOR i IN 1 .. requests LOOP
            done := tenure.put_request(now, queue, mine, _requests, i, CASE WHEN requests = 1 THEN _tasks
                ELSE tenure.some_tasks(_tasks, last + 1, last + _requests.counts[i]) END);
            last := last + _requests.counts[i];
            queue := done._q;
            replies := replies || done._reply;
        END LOOP;
        ok := tenure.save_queue(now, queue);
        ok := tenure.cache_reply(now, mine, 'put', _queue, _n, replies);
        IF _tasks.about IS NOT NULL THEN
            PERFORM tenure.sweep_on(now, _clock);
        END IF;
    END IF;
    FOR i IN 1 .. cardinality(replies) LOOP
        RETURN NEXT replies[i];
    END LOOP;
END $$;

-- -> left, released, unknown, more
CREATE FUNCTION tenure.leave(_clock bigint, _cap bigint, _queue bytea, _producer bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'queue', _queue);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    RETURN tenure.reply(tenure.remove_producer(now, _queue, _producer));
END $$;
