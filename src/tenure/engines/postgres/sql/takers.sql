-- Settling and taking tasks, in one exchange.

-- -> the queue, and whether the settlement came in time
CREATE FUNCTION tenure.settle(
    _now bigint, INOUT _q tenure.queue, _mine tenure.session, _id bigint, _token bigint, _verdict text, _result bytea,
    _delay bigint, _ttl bigint, OUT _in_time boolean
) LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
BEGIN
    SELECT * INTO task FROM tenure.task t
    WHERE t.id = _id AND t.queue = _q.name AND t.token = _token AND t.session = _mine.id;
    _in_time := FOUND;
    IF NOT FOUND THEN
        RETURN;
    ELSIF _verdict IN ('done', 'discarded', 'cancelled') THEN
        _q := tenure.end_task(_now, _q, task, _verdict, _result, _ttl, _mine.ttl);
    ELSIF _verdict = 'dead' THEN
        task.attempts := task.attempts + 1;
        _q := tenure.end_task(_now, _q, task, 'dead', _result, NULL, _mine.ttl);
    ELSIF task.stop IS NOT NULL THEN
        _q := tenure.end_task(_now, _q, task, 'cancelled', '', task.stop_ttl, _mine.ttl);
    ELSIF _verdict = 'retry' THEN
        task.attempts := task.attempts + 1;
        task.ready_at := _now + _delay;
        _q := tenure.return_task(_now, _q, task);
    ELSE
        task.deliveries := task.deliveries - 1;
        IF _verdict = 'postpone' THEN
            task.ready_at := _now + _delay;
        END IF;
        _q := tenure.return_task(_now, _q, task);
    END IF;
END $$;

-- Settle tasks all of which end, while nobody waits to hear of it: in one statement.
-- -> the queue, and the tokens of settlements that came too late
CREATE FUNCTION tenure.settle_endings(
    _now bigint, INOUT _q tenure.queue, _mine tenure.session, _ids bigint[], _tokens bigint[], _verdicts text[],
    _results bytea[], _ttls bigint[], OUT _refused bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    ends record;
BEGIN
    WITH gone AS (
        DELETE FROM tenure.task t
        USING unnest(_ids, _tokens, _verdicts, _results, _ttls)
            WITH ORDINALITY AS s (id, token, verdict, result, ttl, i)
        WHERE t.id = s.id AND t.token = s.token AND t.queue = _q.name AND t.session = _mine.id
        RETURNING t.id, t.priority, t.attempts, t.deliveries, t.key, t.keep, t.payload, s.verdict,
            s.result, s.ttl, s.i
    ), kept AS (
        INSERT INTO tenure.ended
            (id, queue, state, seq, priority, attempts, deliveries, ended_at, expires, key, result, payload)
        SELECT g.id, _q.name, g.verdict, nextval('tenure.last_ending'), g.priority,
            g.attempts + (g.verdict = 'dead')::int, g.deliveries, _now,
            CASE WHEN g.ttl >= 0 AND g.verdict <> 'dead' THEN _now + g.ttl END, g.key, g.result,
            CASE WHEN g.keep OR g.verdict = 'dead' THEN g.payload ELSE '' END
        FROM (SELECT * FROM gone ORDER BY gone.i) g
    )
    SELECT count(*) AS live, count(*) FILTER (WHERE g.verdict = 'done') AS done,
        count(*) FILTER (WHERE g.verdict = 'dead') AS dead,
        count(*) FILTER (WHERE g.verdict = 'discarded') AS discarded,
        count(*) FILTER (WHERE g.verdict = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE g.verdict = 'dead' OR g.ttl < 0) AS lasting,
        max(g.ttl) FILTER (WHERE g.verdict <> 'dead') AS ttl,
        coalesce(array_agg(g.id), '{}') AS ids
    INTO ends FROM gone g;
    IF ends.live = cardinality(_ids) THEN
        _refused := '{}';
    ELSE
        _refused := ARRAY(SELECT s.token FROM unnest(_ids, _tokens) WITH ORDINALITY AS s (id, token, i)
            WHERE s.id <> ALL (ends.ids) ORDER BY s.i);
    END IF;
    _q.live := _q.live - ends.live;
    _q.done := _q.done + ends.done;
    _q.dead := _q.dead + ends.dead;
    _q.discarded := _q.discarded + ends.discarded;
    _q.cancelled := _q.cancelled + ends.cancelled;
    _q.lasting := _q.lasting + ends.lasting;
    IF ends.live > 0 THEN
        _q.keep_until := greatest(_q.keep_until, _now + ends.ttl, _now + 2 * _mine.ttl);
    END IF;
    IF ends.live > 0 AND _q.live = 0 THEN
        PERFORM tenure.fire('drain', _q.name, 0, '', 'drained');
    END IF;
END $$;

-- Lease tasks, in this order, behind those that were leased before.
-- -> task(id, token, priority, attempts, deliveries, waited; progress) of each, and their payloads
CREATE FUNCTION tenure.lease(
    _now bigint, _mine tenure.session, _queue bytea, _ids bigint[], _max_deliveries bigint, _keep boolean,
    INOUT _taken tenure.answer[], INOUT _payloads bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
    more record;
BEGIN
    IF cardinality(_ids) = 0 THEN
        RETURN;
    END IF;
    first := tenure.new_tokens(_now, cardinality(_ids));
    WITH leased AS (
        UPDATE tenure.task t SET session = _mine.id, process = _mine.process, token = first + i.n - 1,
            deliveries = t.deliveries + 1, max_deliveries = _max_deliveries, keep = _keep
        FROM unnest(_ids) WITH ORDINALITY AS i (id, n) WHERE t.queue = _queue AND t.id = i.id
        RETURNING t.id, t.token, t.priority, t.attempts, t.deliveries, t.ready_at, t.progress, t.payload
    )
    SELECT array_agg(ROW('task',
            ARRAY[l.id, l.token, l.priority, l.attempts, l.deliveries, greatest(0, _now - l.ready_at)],
            ARRAY[l.progress])::tenure.answer ORDER BY l.token) AS tasks,
        array_agg(l.payload ORDER BY l.token) AS payloads
    INTO more FROM leased l;
    _taken := _taken || more.tasks;
    _payloads := _payloads || more.payloads;
END $$;

-- An answer that was remembered, in full: without the payloads, since the rows of leased tasks have them.
CREATE FUNCTION tenure.exchanged(_queue bytea, _answer tenure.answer[]) RETURNS SETOF tenure.answer
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT a.word, a.n, CASE WHEN a.word = 'task'
            THEN a.b || (SELECT t.payload FROM tenure.task t WHERE t.queue = _queue AND t.id = a.n[1]) ELSE a.b END
        FROM unnest(_answer) WITH ORDINALITY AS a (word, n, b, i) ORDER BY a.i;
END $$;

-- Settlements in arrays; a ttl below zero is for good, an aging of NULL is none.
-- -> exchanged(paused, again), refused(token...), stop(token...), then task(..., see `lease`; progress, payload);
-- gone, more
CREATE FUNCTION tenure.exchange(
    _clock bigint, _cap bigint, _session bytea, _n bigint, _queue bytea,
    _ids bigint[], _tokens bigint[], _verdicts text[], _results bytea[], _delays bigint[], _ttls bigint[],
    _want bigint, _wait boolean, _aging bigint, _max_deliveries bigint, _keep boolean
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    known tenure.answer[];
    leased record;
    taken tenure.answer[] := '{}';
    payloads bytea[] := '{}';
    queue tenure.queue;
    settled record;
    refused bigint[] := '{}';
    stops bigint[];
    promoted bigint := 0;
    count bigint;
BEGIN
    PERFORM tenure.keep(_session);
    now := tenure.enter(_clock, 'queue', _queue);
    IF now IS NULL THEN
        RETURN NEXT tenure.word('more');
        RETURN;
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session;
    IF NOT FOUND THEN
        RETURN NEXT tenure.word('gone');
        RETURN;
    END IF;
    known := tenure.given(now, mine, 'exchange', _queue, _n);
    IF known IS NOT NULL THEN
        RETURN QUERY SELECT * FROM tenure.exchanged(_queue, known);
        RETURN;
    END IF;
    queue := tenure.queue_of(now, _queue);
    IF cardinality(_ids) > 0 AND queue.producers = 0
            AND _verdicts <@ ARRAY['done', 'dead', 'discarded', 'cancelled']
            AND cardinality(_ids) = (SELECT count(DISTINCT u.id) FROM unnest(_ids) u (id))
            AND NOT EXISTS (SELECT FROM tenure.watch w WHERE w.kind = 'task' AND w.name = _queue) THEN
        SELECT * INTO settled FROM tenure.settle_endings(
            now, queue, mine, _ids, _tokens, _verdicts, _results, _ttls);
        queue := settled._q;
        refused := settled._refused;
    ELSE
        FOR i IN 1 .. cardinality(_ids) LOOP
            SELECT * INTO settled FROM tenure.settle(now, queue, mine, _ids[i], _tokens[i], _verdicts[i],
                _results[i], _delays[i], CASE WHEN _ttls[i] >= 0 THEN _ttls[i] END);
            queue := settled._q;
            IF NOT settled._in_time THEN
                refused := refused || _tokens[i];
            END IF;
        END LOOP;
    END IF;
    IF queue.delayed > 0 THEN
        UPDATE tenure.task t SET delayed = false WHERE t.queue = _queue AND t.id = ANY (ARRAY(
            SELECT d.id FROM tenure.task d
            WHERE d.queue = _queue AND d.session IS NULL AND d.delayed AND d.ready_at <= now
            ORDER BY d.ready_at, d.id LIMIT _cap
        ));
        GET DIAGNOSTICS promoted = ROW_COUNT;
        queue.delayed := queue.delayed - promoted;
        queue.waiting := queue.waiting + promoted;
    END IF;
    IF _want > 0 AND queue.waiting > 0 AND NOT queue.paused THEN
        IF _aging IS NOT NULL THEN
            SELECT * INTO leased FROM tenure.lease(now, mine, _queue, ARRAY(
                SELECT t.id FROM tenure.task t
                WHERE t.queue = _queue AND t.session IS NULL AND NOT t.delayed AND t.ready_at < now - _aging
                ORDER BY t.ready_at, t.id LIMIT _want
            ), _max_deliveries, _keep, taken, payloads);
            taken := leased._taken;
            payloads := leased._payloads;
        END IF;
        IF cardinality(taken) < _want THEN
            SELECT * INTO leased FROM tenure.lease(now, mine, _queue, ARRAY(
                SELECT t.id FROM tenure.task t
                WHERE t.queue = _queue AND t.session IS NULL AND NOT t.delayed
                ORDER BY t.priority DESC, t.ready_at, t.id LIMIT _want - cardinality(taken)
            ), _max_deliveries, _keep, taken, payloads);
            taken := leased._taken;
            payloads := leased._payloads;
        END IF;
        queue.waiting := queue.waiting - cardinality(taken);
    END IF;
    IF _wait AND cardinality(taken) < _want THEN
        INSERT INTO tenure.taker AS t (queue, session, process, want)
        VALUES (_queue, mine.id, mine.process, _want - cardinality(taken))
        ON CONFLICT ON CONSTRAINT taker_pkey DO UPDATE SET want = excluded.want RETURNING (xmax = 0)::int INTO count;
        queue.takers := queue.takers + count;
    ELSIF queue.takers > 0 THEN
        DELETE FROM tenure.taker t WHERE t.queue = _queue AND t.session = mine.id;
        GET DIAGNOSTICS count = ROW_COUNT;
        queue.takers := queue.takers - count;
    END IF;
    queue := tenure.offer_tasks(queue, promoted - cardinality(taken));
    stops := ARRAY(SELECT t.token FROM tenure.task t
        WHERE t.session = mine.id AND t.queue = _queue AND t.stop IS NOT NULL ORDER BY t.stop);
    known := ARRAY[
        ROW('exchanged', ARRAY[queue.paused::int, tenure.again(now, tenure.next_due(queue))], NULL)::tenure.answer,
        ROW('refused', refused, NULL)::tenure.answer,
        ROW('stop', stops, NULL)::tenure.answer
    ] || taken;
    PERFORM tenure.save(now, queue);
    PERFORM tenure.remember(now, mine, 'exchange', _queue, _n, known);
    PERFORM tenure.forget_outdated(now, cardinality(_ids));
    RETURN QUERY SELECT a.word, a.n, CASE WHEN a.word = 'task' THEN a.b || a.payload ELSE a.b END
        FROM ROWS FROM (unnest(known), unnest(ARRAY[NULL, NULL, NULL]::bytea[] || payloads)) AS a (word, n, b, payload);
END $$;
