-- Putting tasks, and the line of producers that found the queue full.
-- Needs: groups, keys, state, tasks

-- The tasks are put, duplicates are not. -> the queue, and of each task its id, or that of its twin below zero
CREATE FUNCTION tenure.accept_tasks(
    _now bigint, INOUT _q tenure.queue, _payloads bytea[], _priorities bigint[], _delays bigint[], _keys bytea[],
    _expires bigint[], _metas bytea[], _groups bytea[], _twins bigint[], _firsts bigint[], OUT _ids bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    due bigint;
    before bigint;
    ready bigint;
    added bigint;
BEGIN
    IF _q.takers > 0 THEN
        due := tenure.next_due(_q);
        before := _q.waiting - _q.held;
    END IF;
    IF _keys IS NULL THEN
        _ids := ARRAY(SELECT nextval('tenure.last_task') FROM generate_series(1, cardinality(_payloads)));
    ELSE
        SELECT array_agg(CASE
            WHEN _twins[i] IS NOT NULL THEN -_twins[i]
            WHEN coalesce(_firsts[i], i) = i THEN nextval('tenure.last_task')
        END ORDER BY i) INTO _ids FROM generate_series(1, cardinality(_payloads)) i;
        SELECT array_agg(coalesce(_ids[i], -_ids[_firsts[i]]) ORDER BY i) INTO _ids
        FROM generate_series(1, cardinality(_payloads)) i;
    END IF;
    WITH put AS (
        INSERT INTO tenure.task
            (id, queue, priority, ready_at, delayed, key, expires, payload, meta, group_name, first_put)
        SELECT _ids[i], _q.name, n.priority, _now + n.delay, n.delay > 0, _keys[i],
            CASE WHEN n.expires >= 0 THEN _now + n.expires END, n.payload, n.meta, coalesce(n.group_name, ''),
            CASE WHEN _keys[i] IS NOT NULL THEN _now END
        FROM unnest(_payloads, _priorities, _delays, _expires, _metas, _groups)
            WITH ORDINALITY AS n (payload, priority, delay, expires, meta, group_name, i)
        WHERE _ids[i] > 0
        RETURNING delayed
    )
    SELECT count(*) FILTER (WHERE NOT p.delayed), count(*) INTO ready, added FROM put p;
    IF _groups IS NOT NULL OR _q.named > 0 THEN
        _q := tenure.put_in_groups(_q, _ids, _groups, _delays);
    END IF;
    _q.put := _q.put + added;
    _q.live := _q.live + added;
    _q.waiting := _q.waiting + ready;
    _q.delayed := _q.delayed + added - ready;
    IF _q.takers > 0 THEN
        _q := tenure.offer_sooner(tenure.offer_tasks(_q, _q.waiting - _q.held - before), due);
    END IF;
END $$;

-- The value of a cursor; empty if there is none.
CREATE FUNCTION tenure.cursor_of(_queue bytea, _name bytea) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT c.value FROM tenure.cursor c WHERE c.queue = _queue AND c.name = _name), '');
END $$;

-- Whether producers wait for room in the queue, and not only in a group.
CREATE FUNCTION tenure.has_line(_q tenure.queue) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM tenure.producer p WHERE p.queue = _q.name AND NOT p.reserved AND NOT p.for_group);
END $$;

-- The ordinal of the first in the line in which a producer waits.
CREATE FUNCTION tenure.first_of_line(_place tenure.producer) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _place.for_group THEN
        RETURN (SELECT p.ordinal FROM tenure.producer p
            WHERE p.queue = _place.queue AND p.for_group AND p.group_name = _place.group_name
            ORDER BY p.ordinal LIMIT 1);
    END IF;
    RETURN (SELECT p.ordinal FROM tenure.producer p
        WHERE p.queue = _place.queue AND NOT p.reserved AND NOT p.for_group ORDER BY p.ordinal LIMIT 1);
END $$;

-- Requests with their numbers of tasks; the tasks stand one behind the other; `_keys`, `_metas`, `_groups` and
-- `_expected` are NULL when none has one, `_about` when no key does more than to refuse; an expiry below zero is none. -> put, then of each request: accepted(id or
-- -twin...), conflict(; value of the cursor), queued(place, again), refused; gone, more
CREATE FUNCTION tenure.put(
    _clock bigint, _cap bigint, _session bytea, _n bigint, _queue bytea, _max_size bigint,
    _producers bytea[], _waits bigint[], _cursors bytea[], _values bytea[], _counts bigint[],
    _payloads bytea[], _priorities bigint[], _delays bigint[], _keys bytea[], _expires bigint[],
    _metas bytea[] DEFAULT NULL, _groups bytea[] DEFAULT NULL, _expected bytea[] DEFAULT NULL,
    _about text[] DEFAULT NULL
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    known tenure.answer[];
    queue tenure.queue;
    place tenure.producer;
    first bigint;
    last bigint := 0;
    joined record;
    accepted record;
    twins bigint[];
    firsts bigint[];
    new_ones bigint;
BEGIN
    PERFORM tenure.keep_session(_session);
    now := tenure.enter_object(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN NEXT tenure.reply('more');
        RETURN;
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session;
    IF NOT FOUND THEN
        RETURN NEXT tenure.reply('gone');
        RETURN;
    END IF;
    known := tenure.cached_reply(now, mine, 'put', _queue, _n);
    IF known IS NOT NULL THEN
        RETURN QUERY SELECT * FROM unnest(known);
        RETURN;
    END IF;
    queue := tenure.use_queue(now, _queue);
    queue.max_size := _max_size;
    IF queue.producers > 0 THEN
        queue := tenure.admit_producers(queue);
    END IF;
    known := ARRAY[tenure.reply('put')];
    FOR i IN 1 .. cardinality(_producers) LOOP
        first := last + 1;
        last := last + _counts[i];
        SELECT * INTO place FROM tenure.producer p WHERE p.queue = _queue AND p.name = _producers[i];
        IF NOT FOUND OR place.reserved THEN
            twins := NULL;
            firsts := NULL;
            new_ones := _counts[i];
            IF _about IS NOT NULL THEN
                -- those that are not new have a twin, be it replaced
                SELECT array_agg(CASE WHEN NOT u.is_new THEN 0 END ORDER BY u.i), count(*) FILTER (WHERE u.is_new)
                INTO twins, new_ones
                FROM unnest(tenure.new_ones(now, _queue, _keys[first:last], _about[first:last]))
                    WITH ORDINALITY AS u (is_new, i);
            ELSIF _keys IS NOT NULL THEN
                SELECT array_agg(t.id ORDER BY k.i), array_agg(k.first ORDER BY k.i),
                    count(*) FILTER (WHERE t.id IS NULL AND k.first = k.i)
                INTO twins, firsts, new_ones
                FROM (
                    SELECT u.i, u.key,
                        CASE WHEN u.key IS NULL THEN u.i ELSE min(u.i) OVER (PARTITION BY u.key) END AS first
                    FROM unnest(_keys[first:last]) WITH ORDINALITY AS u (key, i)
                ) k LEFT JOIN LATERAL (
                    SELECT twin.id FROM tenure.task twin WHERE twin.queue = _queue AND twin.key = k.key
                    UNION ALL
                    SELECT kept.task FROM tenure.kept_key kept
                    WHERE kept.queue = _queue AND kept.key = k.key AND kept.until > now
                    LIMIT 1
                ) t ON true;
            END IF;
            IF place.reserved THEN
                DELETE FROM tenure.producer p WHERE p.queue = _queue AND p.name = _producers[i];
                queue.reserved := queue.reserved - place.count;
                IF place.group_name <> '' THEN
                    queue := tenure.regroup(queue, ARRAY[place.group_name], 0, 0, 0, -place.count);
                END IF;
            ELSIF new_ones > 0 AND (queue.max_size - queue.live - queue.reserved < new_ones
                    OR (queue.producers > 0 AND tenure.has_line(queue))
                    OR (queue.group_size > 0 AND _groups IS NOT NULL
                        AND NOT tenure.have_room(queue, _groups[first:last], twins, firsts))) THEN
                IF _waits[i] = 0 OR _counts[i] > _max_size THEN
                    known := known || tenure.reply('refused');
                    CONTINUE;
                END IF;
                joined := tenure.join_line(queue, mine, _producers[i], _counts[i], _groups[first:last]);
                queue := joined._q;
                place := joined._place;
                IF place.name IS NULL THEN
                    known := known || tenure.reply('refused');
                    CONTINUE;
                END IF;
            END IF;
            IF place.name IS NULL OR place.reserved THEN
                IF _expected[i] IS NOT NULL AND _expected[i] <> tenure.cursor_of(_queue, _cursors[i]) THEN
                    known := known
                        || ROW('conflict', NULL, ARRAY[tenure.cursor_of(_queue, _cursors[i])])::tenure.answer;
                ELSE
                    IF _about IS NOT NULL THEN
                        accepted := tenure.accept_keyed_tasks(now, queue, _payloads[first:last], _priorities[first:last],
                            _delays[first:last], _keys[first:last], _expires[first:last], _metas[first:last],
                            _groups[first:last], _about[first:last]);
                    ELSE
                        accepted := tenure.accept_tasks(now, queue, _payloads[first:last], _priorities[first:last],
                            _delays[first:last], _keys[first:last], _expires[first:last], _metas[first:last],
                            _groups[first:last], twins, firsts);
                    END IF;
                    queue := accepted._q;
                    IF _cursors[i] IS NOT NULL THEN
                        INSERT INTO tenure.cursor (queue, name, value) VALUES (_queue, _cursors[i], _values[i])
                        ON CONFLICT ON CONSTRAINT cursor_pkey DO UPDATE SET value = excluded.value;
                    END IF;
                    known := known || ROW('accepted', accepted._ids, NULL)::tenure.answer;
                END IF;
                IF place.reserved THEN
                    queue := tenure.make_room(queue, ARRAY[place.group_name]);
                END IF;
                CONTINUE;
            END IF;
        END IF;
        known := known || ROW('queued', ARRAY[
            place.ordinal + 1 - tenure.first_of_line(place),
            tenure.ask_again_in(now, NULL)
        ], NULL)::tenure.answer;
    END LOOP;
    PERFORM tenure.save_queue(now, queue);
    PERFORM tenure.cache_reply(now, mine, 'put', _queue, _n, known);
    RETURN QUERY SELECT * FROM unnest(known);
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
