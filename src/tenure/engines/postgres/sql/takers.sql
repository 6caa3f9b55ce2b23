-- Settling and taking tasks, in one exchange.
-- Needs: families, groups, paces, state, tasks, verdicts

-- -> the queue, and whether the settlement came in time; NULL: the task has a family or is late, and is to be settled
-- `_behind` the others
CREATE FUNCTION tenure.settle_task(
    _now bigint, INOUT _q tenure.queue, _mine tenure.session, _id bigint, _token bigint, _verdict text, _result bytea,
    _delay bigint, _ttl bigint, _failure bytea, _behind boolean, OUT _in_time boolean
) LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
    has_children boolean := false;
    is_late boolean;
    suspended record;
BEGIN
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _q.name AND t.id = _id;
    _in_time := FOUND AND task.token = _token AND task.session IS NOT DISTINCT FROM _mine.id;
    IF NOT _in_time THEN
        RETURN;
    ELSIF _verdict IN ('note', 'alone') THEN
        UPDATE tenure.task t SET failure = coalesce(_failure, t.failure),
            max_deliveries = CASE _verdict WHEN 'alone' THEN 0 ELSE t.max_deliveries END
        WHERE t.queue = _q.name AND t.id = _id;
        RETURN;
    END IF;
    is_late := task.deadline <= _now;
    IF task.kin OR is_late THEN
        IF NOT _behind THEN
            _in_time := NULL;
            RETURN;
        END IF;
        has_children := task.kin AND tenure.unfinished_children(_id) > 0;
    END IF;
    task.failure := coalesce(_failure, task.failure);
    -- a task that was ready stays so when the clock is set back
    task.ready_at := least(task.ready_at, _now);
    IF is_late AND (_verdict <> 'done' OR has_children) THEN
        _q := tenure.finish_task(_now, _q, task, 'expired', '', 3600000000, _mine.ttl);
    ELSIF tenure.is_ending(_verdict) AND NOT (_verdict = 'done' AND has_children) THEN
        task.attempts := tenure.attempts_after(_verdict, task.attempts);
        _q := tenure.finish_task(_now, _q, task, _verdict, _result, _ttl, _mine.ttl);
    ELSIF task.stop IS NOT NULL THEN
        _q := tenure.finish_task(_now, _q, task, 'cancelled', '', task.stop_ttl, _mine.ttl);
    ELSIF _verdict IN ('done', 'wait', 'wait for', 'wait for end') THEN
        PERFORM tenure.pin(_q, task.group_name, _id);
        suspended := tenure.suspend_task(_now, _q, task, CASE _verdict WHEN 'wait for' THEN _result ELSE '' END,
            CASE _verdict WHEN 'wait' THEN _result ELSE '' END,
            CASE _verdict WHEN 'wait for end' THEN convert_from(_result, 'UTF8')::bigint ELSE 0 END,
            CASE _verdict WHEN 'wait for' THEN _delay ELSE 0 END);
        _q := suspended._q;
        IF NOT suspended._done THEN
            task.deliveries := task.attempts;
            _q := tenure.return_task(_now, _q, task);
        END IF;
    ELSIF _verdict = 'retry' AND has_children THEN
        task.attempts := tenure.attempts_after(_verdict, task.attempts);
        task.deliveries := task.attempts;
        task.ready_at := _now + _delay;
        _q := tenure.keep_verdict(_now, _q, task, 'retry', '', NULL);
    ELSE
        IF _verdict = 'retry' AND task.kin THEN
            PERFORM tenure.end_try(_id);
        END IF;
        task.attempts := tenure.attempts_after(_verdict, task.attempts, _result);
        task.deliveries := tenure.deliveries_after(_verdict, _result, task.attempts, task.deliveries);
        IF _verdict <> 'give back' THEN
            task.ready_at := _now + _delay;
            PERFORM tenure.pin(_q, task.group_name, _id);
        END IF;
        _q := tenure.return_task(_now, _q, task);
    END IF;
    IF _verdict IN ('give back', 'postpone') AND _q.round > 0 THEN
        PERFORM tenure.refund_turn(_q, task.group_name);
    END IF;
END $$;

-- Settle tasks without a family that are not late in one statement, if all of them end and no client waits for the end
-- of one. -> the queue, and which of the settlements were not applied
CREATE FUNCTION tenure.settle_endings(
    _now bigint, INOUT _q tenure.queue, _mine tenure.session, _settle tenure.settlements, OUT _left bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    ends record;
    ok boolean;
BEGIN
    WITH gone AS (
        DELETE FROM tenure.task t
        USING (
            -- one task after the other by its id, whatever the planner believes of the queue
            SELECT s.*, found.place
            FROM unnest(_settle.ids, _settle.tokens, _settle.verdicts, _settle.results, _settle.ttls, _settle.failures)
                    WITH ORDINALITY AS s (id, token, verdict, result, ttl, failure, i)
                CROSS JOIN LATERAL (
                    SELECT l.ctid AS place, l.token, l.session, l.kin, l.deadline FROM tenure.task l
                    WHERE l.queue = _q.name AND l.id = s.id LIMIT 1
                ) found
            WHERE found.token = s.token AND found.session = _mine.id AND NOT found.kin
                AND (found.deadline IS NULL OR found.deadline > _now)
        ) s
        WHERE t.ctid = s.place
        RETURNING t.id, t.token, t.priority, t.attempts, t.deliveries, t.key, t.keep, t.payload, t.progress, t.meta,
            t.group_name, s.verdict, s.result, s.ttl, coalesce(s.failure, t.failure) AS failure, s.i
    ), kept AS (
        INSERT INTO tenure.ended
            (id, queue, state, seq, priority, attempts, deliveries, ended_at, token, expires, key, result, payload,
            progress, failure, meta, group_name)
        SELECT g.id, _q.name, g.verdict, nextval('tenure.last_ending'), g.priority,
            tenure.attempts_after(g.verdict, g.attempts), g.deliveries, _now, g.token,
            CASE WHEN g.ttl >= 0 THEN _now + g.ttl END, g.key, g.result,
            tenure.payload_after(g.verdict, g.keep, g.payload), nullif(g.progress, ''), g.failure, g.meta, g.group_name
        FROM (SELECT * FROM gone ORDER BY gone.i) g
    )
    SELECT count(*) AS live, count(*) FILTER (WHERE g.verdict = 'done') AS done,
        count(*) FILTER (WHERE g.verdict = 'dead') AS dead,
        count(*) FILTER (WHERE g.verdict = 'discarded') AS discarded,
        count(*) FILTER (WHERE g.verdict = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE g.verdict = 'dead' AND g.ttl >= 0) AS letters,
        count(*) FILTER (WHERE g.ttl < 0) AS lasting, max(g.ttl) FILTER (WHERE g.verdict <> 'dead') AS ttl,
        coalesce(array_agg(g.id), '{}') AS ids, array_agg(g.group_name) FILTER (WHERE _q.round > 0) AS groups
    INTO ends FROM gone g;
    IF ends.letters > 0 THEN
        INSERT INTO tenure.todo (due, id, name)
        SELECT l.expires, l.id, _q.name FROM unnest(ends.ids) i (id)
            CROSS JOIN LATERAL (SELECT * FROM tenure.ended e WHERE e.id = i.id LIMIT 1) l
        WHERE l.state = 'dead' AND l.expires IS NOT NULL;
    END IF;
    IF ends.live = cardinality(_settle.ids) THEN
        _left := '{}';
    ELSE
        _left := ARRAY(SELECT s.i FROM unnest(_settle.ids) WITH ORDINALITY AS s (id, i)
            WHERE s.id <> ALL (ends.ids) ORDER BY s.i);
    END IF;
    _q := tenure.count_tasks(_q, ends.groups, ends.live, -1, 0, 0, -1);
    _q.done := _q.done + ends.done;
    _q.dead := _q.dead + ends.dead;
    _q.discarded := _q.discarded + ends.discarded;
    _q.cancelled := _q.cancelled + ends.cancelled;
    _q.lasting := _q.lasting + ends.lasting;
    IF ends.live > 0 THEN
        _q.keep_until := greatest(_q.keep_until, _now + ends.ttl, _now + 2 * _mine.ttl);
    END IF;
    IF ends.live > 0 AND _q.live = 0 THEN
        ok := tenure.notify_watchers('drain', _q.name, 0, '', 'drained');
    END IF;
    IF _q.followed THEN
        _q := tenure.notify_followers(_q, ends.ids);
    END IF;
END $$;

-- Settle tasks in the order given, those with a family and late ones behind the others. -> the queue, and the tokens
-- of settlements that came too late
CREATE FUNCTION tenure.settle_tasks(
    _now bigint, INOUT _q tenure.queue, _mine tenure.session, _settle tenure.settlements, OUT _refused bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    settled record;
    first bigint;
    i bigint;
    late bigint[] := '{}'::bigint[];
    turn bigint[] := '{}'::bigint[];
    left_over bigint[] := '{}'::bigint[];
BEGIN
    IF _q.producers = 0 AND NOT _q.awaited
            AND cardinality(_settle.ids) = (
                SELECT count(DISTINCT u.id) FILTER (WHERE tenure.is_ending(u.verdict))
                FROM unnest(_settle.ids, _settle.verdicts) u (id, verdict)
            ) THEN
        settled := tenure.settle_endings(_now, _q, _mine, _settle);
        _q := settled._q;
        left_over := settled._left;
        IF left_over = '{}' THEN
            _refused := '{}';
            RETURN;
        END IF;
    ELSE
        turn := ARRAY(SELECT generate_subscripts(_settle.ids, 1));
    END IF;
    FOR behind IN 0 .. 1 LOOP
        FOREACH i IN ARRAY turn LOOP
            settled := tenure.settle_task(_now, _q, _mine, _settle.ids[i], _settle.tokens[i], _settle.verdicts[i],
                _settle.results[i], _settle.delays[i], CASE WHEN _settle.ttls[i] >= 0 THEN _settle.ttls[i] END,
                _settle.failures[i], behind = 1);
            _q := settled._q;
            IF settled._in_time IS NULL THEN
                left_over := left_over || i;
            ELSIF NOT settled._in_time THEN
                late := late || i;
            END IF;
        END LOOP;
        turn := left_over;
    END LOOP;
    _refused := ARRAY(SELECT _settle.tokens[u.i] FROM unnest(late) u (i) ORDER BY u.i);
    IF _q.awaited THEN
        SELECT w.task INTO first FROM tenure.watch w
        WHERE w.kind = 'task' AND w.name = _q.name AND w.task >= _q.first_awaited ORDER BY w.task LIMIT 1;
        _q.awaited := FOUND;
        _q.first_awaited := coalesce(first, _q.first_awaited);
    END IF;
END $$;

-- The first `_cap` delayed tasks that are due become ready.
CREATE FUNCTION tenure.promote_tasks(_now bigint, _q tenure.queue, _cap bigint) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
DECLARE
    due record;
BEGIN
    WITH promoted AS (
        UPDATE tenure.task t SET delayed = false WHERE t.ctid = ANY (ARRAY(
            SELECT d.ctid FROM tenure.task d
            WHERE d.queue = _q.name AND d.session IS NULL AND d.delayed
                AND d.ready_at >= _q.first_due AND d.ready_at <= _now
            ORDER BY d.ready_at, d.id LIMIT _cap
        )) RETURNING t.priority, t.ready_at, t.group_name
    )
    SELECT count(*) AS n, array_agg(p.priority) AS priorities, array_agg(p.group_name) AS groups,
        min(p.ready_at) AS first, max(p.ready_at) AS last
    INTO due FROM promoted p;
    _q.first_due := CASE WHEN due.n < _cap THEN _now ELSE due.last END;
    IF due.n > 0 THEN
        _q := tenure.count_tasks(_q, due.groups, due.n, 0, 1, -1, 0, due.priorities, due.first);
    END IF;
    RETURN _q;
END $$;

-- The next `_want` tasks of a group, or of a queue without groups: first those that are older than `_aging`, then by
-- priority. -> where they are, in order, and the fronts behind them
CREATE FUNCTION tenure.next_tasks(
    _now bigint, INOUT _fronts bigint[], _queue bytea, _group bytea, _want bigint, _aging bigint, OUT _places tid[]
) LANGUAGE plpgsql AS $$
DECLARE
    batch record;
    floor_at bigint := -1;
    floor_id bigint := 0;
    since bigint;
    first bigint;
    behind bigint[] := '{}'::bigint[];
BEGIN
    _places := '{}';
    IF _aging IS NOT NULL THEN
        SELECT count(*) AS n, array_agg(o.place ORDER BY o.ready_at, o.id) AS places, max(o.ready_at) AS last,
            array_agg(o.id ORDER BY o.ready_at, o.id) AS ids
        INTO batch FROM (
            SELECT t.ctid AS place, t.ready_at, t.id FROM tenure.task t
            WHERE t.queue = _queue AND t.group_name = _group AND t.session IS NULL AND NOT t.delayed
                AND t.ready_at >= tenure.oldest_front(_fronts) AND t.ready_at < _now - _aging
            ORDER BY t.ready_at, t.id LIMIT _want
        ) o;
        _places := coalesce(batch.places, '{}');
        floor_at := CASE WHEN batch.n < _want THEN _now - _aging ELSE batch.last END;
        floor_id := CASE WHEN batch.n < _want THEN 0 ELSE batch.ids[batch.n] + 1 END;
    END IF;
    IF _fronts IS NULL THEN
        _places := _places || ARRAY(
            SELECT t.ctid FROM tenure.task t
            WHERE t.queue = _queue AND t.group_name = _group AND t.session IS NULL AND NOT t.delayed
                AND (_aging IS NULL OR t.ready_at >= _now - _aging)
            ORDER BY t.priority DESC, t.ready_at, t.id LIMIT _want - cardinality(_places)
        );
        RETURN;
    END IF;
    FOR i IN 1 .. cardinality(_fronts) BY 3 LOOP
        since := _fronts[i + 1];
        first := _fronts[i + 2];
        IF (since, first) < (floor_at, floor_id) THEN
            since := floor_at;
            first := floor_id;
        END IF;
        IF cardinality(_places) < _want THEN
            SELECT count(*) AS n, array_agg(p.place ORDER BY p.ready_at, p.id) AS places, max(p.ready_at) AS last,
                array_agg(p.id ORDER BY p.ready_at, p.id) AS ids
            INTO batch FROM (
                SELECT t.ctid AS place, t.ready_at, t.id FROM tenure.task t
                WHERE t.queue = _queue AND t.group_name = _group AND t.session IS NULL AND NOT t.delayed
                    AND t.priority = _fronts[i] AND (t.ready_at, t.id) >= (since, first)
                ORDER BY t.ready_at, t.id LIMIT _want - cardinality(_places)
            ) p;
            _places := _places || batch.places;
            -- fewer than were wanted: this priority has no more
            CONTINUE WHEN cardinality(_places) < _want;
            since := batch.last;
            first := batch.ids[batch.n] + 1;
        END IF;
        behind := behind || ARRAY[_fronts[i], since, first];
    END LOOP;
    _fronts := behind;
END $$;

-- Lease the tasks at these places to the session, with tokens that follow one another. -> how many, and the first token
CREATE FUNCTION tenure.lease_tasks(
    _now bigint, _mine tenure.session, _max_deliveries bigint, _keep boolean, _dead_ttl bigint, _places tid[],
    OUT _count bigint, OUT _first bigint
) LANGUAGE plpgsql AS $$
BEGIN
    _count := cardinality(_places);
    IF _count > 0 THEN
        _first := tenure.new_tokens(_now, _count);
        UPDATE tenure.task t SET session = _mine.id, process = _mine.process, token = _first + i.n - 1,
            deliveries = t.deliveries + 1, max_deliveries = _max_deliveries, keep = _keep, dead_ttl = _dead_ttl
        FROM unnest(_places) WITH ORDINALITY AS i (place, n) WHERE t.ctid = i.place;
    END IF;
END $$;

-- Lease the next `_want` tasks to the session. -> the queue, how many, the first token, and how often a group with a
-- rate could be taken from again
CREATE FUNCTION tenure.take_tasks(
    _now bigint, INOUT _q tenure.queue, _mine tenure.session, _want bigint, OUT _count bigint, OUT _first bigint,
    OUT _again bigint
) LANGUAGE plpgsql AS $$
DECLARE
    chosen record;
    leased record;
BEGIN
    IF _q.round > 0 THEN
        chosen := tenure.take_turns(_now, _q, _want, _q.aging);
        _q := chosen._q;
        _again := chosen._again;
    ELSE
        chosen := tenure.next_tasks(_now, _q.fronts, _q.name, '', _want, _q.aging);
        _q.fronts := chosen._fronts;
        _q.takeable := _q.takeable - cardinality(chosen._places);
        _again := 0;
    END IF;
    leased := tenure.lease_tasks(_now, _mine, _q.max_deliveries, _q.keep_payloads, _q.dead_ttl, chosen._places);
    _count := leased._count;
    _first := leased._first;
    _q.waiting := _q.waiting - _count;
    IF _q.followed THEN
        _q := tenure.notify_followers(_q, ARRAY(SELECT t.id FROM tenure.task t
            WHERE t.session = _mine.id AND t.token BETWEEN _first AND _first + _count - 1));
    END IF;
END $$;

-- The session is an idle taker that wants `_want` tasks more, or none if that is 0.
CREATE FUNCTION tenure.set_taker(_q tenure.queue, _mine tenure.session, _want bigint) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
DECLARE
    changed bigint;
BEGIN
    IF _want > 0 THEN
        IF _q.takers > 0 THEN
            UPDATE tenure.taker t SET want = _want
            WHERE t.queue = _q.name AND t.session = _mine.id AND t.made >= _q.first_taker;
        END IF;
        IF _q.takers = 0 OR NOT FOUND THEN
            INSERT INTO tenure.taker AS t (queue, session, process, want)
            VALUES (_q.name, _mine.id, _mine.process, _want) RETURNING t.made INTO changed;
            _q.first_taker := CASE WHEN _q.takers = 0 THEN changed ELSE _q.first_taker END;
            _q.takers := _q.takers + 1;
        END IF;
    ELSIF _q.takers > 0 THEN
        DELETE FROM tenure.taker t
        WHERE t.queue = _q.name AND t.session = _mine.id AND t.made >= _q.first_taker;
        GET DIAGNOSTICS changed = ROW_COUNT;
        _q.takers := _q.takers - changed;
    END IF;
    RETURN _q;
END $$;

-- The tasks of one exchange: `_leased` is their number, their first token, and the time. A task with a family comes with
-- the number of its entries, and a task with a deadline with both.
CREATE FUNCTION tenure.leased_tasks(_session bigint, _leased bigint[]) RETURNS SETOF tenure.answer
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT 'task',
        ARRAY[t.id, t.token, t.priority, t.attempts, t.deliveries, greatest(0, _leased[3] - t.ready_at)]
            || CASE WHEN t.kin OR t.deadline IS NOT NULL THEN
                CASE WHEN t.kin THEN tenure.count_entries(t.id) ELSE 0 END
                || CASE WHEN t.deadline IS NOT NULL THEN ARRAY[greatest(0, t.deadline - _leased[3])] END
            END,
        ARRAY[t.progress, t.payload, t.failure, t.meta, t.group_name]
    FROM tenure.task t
    WHERE t.session = _session AND t.token BETWEEN _leased[2] AND _leased[2] + _leased[1] - 1 ORDER BY t.token;
END;

-- -> exchanged(paused, again, revision), refused(token...), stop(token...), then task(id, token, priority, attempts, deliveries,
-- waited, entries, time until the deadline; progress, payload, failure or NULL, meta or NULL, group) of each that is
-- leased; gone, more
CREATE FUNCTION tenure.exchange(
    _clock bigint, _cap bigint, _session bytea, _n bigint, _queue bytea, _settle tenure.settlements, _want bigint,
    _wait boolean
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    known tenure.answer[];
    queue tenure.queue;
    settled record;
    refused bigint[] := '{}'::bigint[];
    before bigint;
    taken record;
    count bigint := 0;
    first bigint;
    stops bigint[] := '{}'::bigint[];
    due bigint;
    is_paced boolean;
    was_closed boolean;
    again bigint := 0;
    wanted bigint := _want;
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
    known := tenure.cached_reply(now, mine, 'exchange', _queue, _n);
    IF known IS NOT NULL THEN
        RETURN QUERY SELECT * FROM unnest(known[:3]);
        RETURN QUERY SELECT * FROM tenure.leased_tasks(mine.id, (known[4]).n);
        RETURN;
    END IF;
    queue := tenure.use_queue(now, _queue);
    before := queue.takeable;
    IF cardinality(_settle.ids) > 0 THEN
        settled := tenure.settle_tasks(now, queue, mine, _settle);
        queue := settled._q;
        refused := settled._refused;
    END IF;
    IF queue.delayed > 0 THEN
        queue := tenure.promote_tasks(now, queue, _cap);
    END IF;
    was_closed := queue.closed_until IS NOT NULL;
    is_paced := queue.rate IS NOT NULL OR queue.starts_at IS NOT NULL;
    IF is_paced OR queue.first_closed <= now + 1 OR queue.first_idle <= now THEN
        queue := tenure.pass_time(queue, _cap);
        IF is_paced THEN
            _want := least(_want, tenure.possible_starts(queue.rate, coalesce(queue.starts_at, 0), now))::bigint;
        END IF;
    END IF;
    IF _want > 0 AND queue.takeable > 0 AND NOT queue.paused THEN
        taken := tenure.take_tasks(now, queue, mine, _want);
        queue := taken._q;
        count := taken._count;
        first := taken._first;
        again := taken._again;
        IF queue.rate IS NOT NULL OR queue.group_rate IS NOT NULL THEN
            queue := tenure.start_tasks(queue, count);
        END IF;
    END IF;
    -- also after the hold, when the queue has no pace any more: an idle taker may have no time to ask by itself
    IF was_closed OR (is_paced AND count > 0) THEN
        again := before + queue.waiting - queue.takeable;
    END IF;
    IF queue.takers > 0 OR (_wait AND count < wanted) THEN
        queue := tenure.set_taker(queue, mine, CASE WHEN _wait THEN wanted - count ELSE 0 END);
    END IF;
    IF queue.takers > 0 AND queue.takeable + again > before THEN
        queue := tenure.offer_tasks(queue, queue.takeable + again - before);
    END IF;
    IF queue.live > count + queue.waiting + queue.delayed THEN
        stops := ARRAY(SELECT t.token FROM tenure.task t
            WHERE t.session = mine.id AND t.queue = _queue AND t.stop > 0 ORDER BY t.stop);
    END IF;
    IF queue.delayed > 0 OR queue.first_closed IS NOT NULL OR queue.closed_until IS NOT NULL THEN
        due := tenure.next_due(queue);
    END IF;
    known := ARRAY[
        ROW('exchanged', ARRAY[queue.paused::int, tenure.ask_again_in(now, due), queue.revision], NULL)::tenure.answer,
        ROW('refused', refused, NULL)::tenure.answer,
        ROW('stop', stops, NULL)::tenure.answer,
        ROW('leased', ARRAY[count, first, now], NULL)::tenure.answer
    ];
    ok := tenure.save_queue(now, queue);
    ok := tenure.cache_reply(now, mine, 'exchange', _queue, _n, known);
    -- four times as many in one of four exchanges
    IF _n % 4 = 0 AND cardinality(_settle.ids) > 0 THEN
        PERFORM tenure.forget_records(now, 4 * cardinality(_settle.ids));
    END IF;
    IF current_setting('tenure.sweeps', true) = 'on' THEN
        PERFORM tenure.sweep_on(now, _clock);
    END IF;
    RETURN NEXT known[1];
    RETURN NEXT known[2];
    RETURN NEXT known[3];
    IF count > 0 THEN
        RETURN QUERY SELECT * FROM tenure.leased_tasks(mine.id, (known[4]).n);
    END IF;
END $$;
