-- Tasks: a bounded priority queue whose tasks are leased, fenced and settled.
--
-- A function that changes the counters of a queue takes the row and returns it; `save_queue` writes it once.
-- Needs: families, groups, records, state, verdicts

-- Whether nothing but time keeps a queue; idle takers do not.
CREATE FUNCTION tenure.is_idle(_q tenure.queue) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN _q.live = 0 AND _q.held = 0 AND _q.lasting = 0 AND _q.dead = 0 AND _q.producers = 0 AND _q.reserved = 0 AND NOT _q.paused
        AND NOT EXISTS (SELECT FROM tenure.cursor c WHERE c.queue = _q.name);
END $$;

-- The queue as it is now: a row that is no longer needed counts as new; if there is none, all is NULL.
CREATE FUNCTION tenure.read_queue(_now bigint, _name bytea) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue;
BEGIN
    SELECT * INTO queue FROM tenure.queue q WHERE q.name = _name ORDER BY q.page DESC LIMIT 1;
    IF queue.live = 0 AND queue.keep_until <= _now AND tenure.is_idle(queue) THEN
        queue.put := 0;
        queue.done := 0;
        queue.cancelled := 0;
        queue.expired := 0;
        queue.discarded := 0;
        queue.purged := 0;
        IF queue.revision > 0 THEN
            queue.revision := 0;
            queue.rate := NULL;
            queue.group_rate := NULL;
            queue.starts_at := NULL;
            queue.paced_at := NULL;
            queue.closed_until := NULL;
            queue.weights := 0;
            queue := tenure.with_record(queue, NULL);
        END IF;
    END IF;
    IF queue.name IS NOT NULL THEN
        queue.at := _now;
    END IF;
    RETURN queue;
END $$;

-- The same, of a queue that comes into use.
CREATE FUNCTION tenure.use_queue(_now bigint, _name bytea) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue := tenure.read_queue(_now, _name);
BEGIN
    IF queue.name IS NULL THEN
        INSERT INTO tenure.queue (name) VALUES (_name) RETURNING * INTO queue;
        queue.at := _now;
    END IF;
    RETURN tenure.keep_record(_now, queue);
END $$;

-- The queue is used: its record, if it has one, lasts for a day at least.
CREATE FUNCTION tenure.keep_record(_now bigint, _q tenure.queue) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    IF _q.revision > 0 AND _q.keep_until < _now + 86400000000 THEN
        _q.keep_until := _now + 2 * 86400000000;
    END IF;
    RETURN _q;
END $$;

CREATE FUNCTION tenure.save_queue(_now bigint, _q tenure.queue) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    next_page bigint := _q.page + (_q.changes % 32 = 31)::int;
BEGIN
    IF _q.live = 0 AND (_q.check_at IS NULL OR _q.keep_until <= _now) AND tenure.is_idle(_q) THEN
        IF _q.keep_until > _now THEN
            _q.check_at := _q.keep_until;
        ELSIF EXISTS (SELECT FROM tenure.kept_key k WHERE k.queue = _q.name AND k.until >= _q.first_kept) THEN
            _q.check_at := _now;
        ELSIF _q.takers = 0 THEN
            IF _q.named > 0 THEN
                DELETE FROM tenure.task_group g WHERE g.queue = _q.name;
            END IF;
            DELETE FROM tenure.setting s WHERE s.queue = _q.name;
            DELETE FROM tenure.turn t WHERE t.queue = _q.name;
            DELETE FROM tenure.queue WHERE name = _q.name AND page = _q.page;
            RETURN true;
        END IF;
    END IF;
    IF _q.waiting = 0 THEN
        _q.fronts := '{}';
    END IF;
    UPDATE tenure.queue SET paused = _q.paused, awaited = _q.awaited, followed = _q.followed, revision = _q.revision,
        live = _q.live, waiting = _q.waiting, takeable = _q.takeable, delayed = _q.delayed, put = _q.put,
        done = _q.done, dead = _q.dead, cancelled = _q.cancelled, expired = _q.expired,
        discarded = _q.discarded, purged = _q.purged,
        reserved = _q.reserved, producers = _q.producers, takers = _q.takers, ordinal = _q.ordinal,
        lasting = _q.lasting, suspended = _q.suspended, ending = _q.ending, held = _q.held,
        max_size = _q.max_size, aging = _q.aging, max_deliveries = _q.max_deliveries,
        keep_payloads = _q.keep_payloads, dead_ttl = _q.dead_ttl,
        keep_until = _q.keep_until, check_at = _q.check_at, fronts = _q.fronts,
        first_due = _q.first_due, first_taker = _q.first_taker, first_producer = _q.first_producer,
        first_awaited = _q.first_awaited, first_followed = _q.first_followed, first_kept = _q.first_kept,
        page = next_page, changes = changes + 1
    WHERE name = _q.name AND page = _q.page;
    IF _q.has_groups THEN
        UPDATE tenure.queue SET has_groups = _q.named > 0 OR _q.per_group > 0 OR _q.group_size > 0 OR _q.weights > 0
                OR coalesce(_q.rate, _q.group_rate) IS NOT NULL OR _q.starts_at IS NOT NULL,
            rate = _q.rate, group_rate = _q.group_rate, starts_at = _q.starts_at,
            paced_at = _q.paced_at, closed_until = _q.closed_until, held_until = _q.held_until,
            first_closed = _q.first_closed, first_idle = _q.first_idle,
            named = _q.named, groups = _q.groups, round = _q.round, virtual_time = _q.virtual_time,
            period = _q.period, first_grouped = _q.first_grouped, per_group = _q.per_group,
            group_size = _q.group_size, weights = _q.weights, keep_order = _q.keep_order
        WHERE name = _q.name AND page = next_page;
    END IF;
    RETURN true;
END $$;

-- The fronts, when tasks of a priority can be taken from that time and id on.
CREATE FUNCTION tenure.with_front(_fronts bigint[], _priority bigint, _ready_at bigint, _id bigint)
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    i int := 1;
    most constant int := 48;  -- three numbers for each of 16 priorities
BEGIN
    WHILE _fronts[i] > _priority LOOP
        i := i + 3;
    END LOOP;
    IF _fronts[i] = _priority THEN
        IF (_ready_at, _id) < (_fronts[i + 1], _fronts[i + 2]) THEN
            _fronts[i + 1] := _ready_at;
            _fronts[i + 2] := _id;
        END IF;
        RETURN _fronts;
    END IF;
    RETURN CASE WHEN cardinality(_fronts) < most
        THEN _fronts[:i - 1] || ARRAY[_priority, _ready_at, _id] || _fronts[i:] END;
END $$;

-- The same for several priorities.
CREATE FUNCTION tenure.with_fronts(_fronts bigint[], _priorities bigint[], _ready_at bigint, _id bigint)
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    priority bigint;
BEGIN
    IF _priorities[1] = ALL (_priorities) THEN
        RETURN tenure.with_front(_fronts, _priorities[1], _ready_at, _id);
    END IF;
    FOR priority IN SELECT DISTINCT u.p FROM unnest(_priorities) u (p) LOOP
        _fronts := tenure.with_front(_fronts, priority, _ready_at, _id);
    END LOOP;
    RETURN _fronts;
END $$;

-- The time before which no task is ready that can be taken.
CREATE FUNCTION tenure.oldest_front(_fronts bigint[]) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    oldest bigint := CASE WHEN _fronts IS NULL THEN 0 ELSE 9223372036854775807 END;
BEGIN
    FOR i IN 2 .. coalesce(cardinality(_fronts), 0) BY 3 LOOP
        oldest := least(oldest, _fronts[i]);
    END LOOP;
    RETURN oldest;
END $$;

CREATE FUNCTION tenure.delayed_until(_q tenure.queue) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _q.delayed = 0 THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT t.ready_at FROM tenure.task t WHERE t.queue = _q.name AND t.session IS NULL AND t.delayed
        AND t.ready_at >= _q.first_due ORDER BY t.ready_at LIMIT 1);
END $$;

-- When more tasks can be taken, since a task is due, or the queue or a group opens; NULL for never.
CREATE FUNCTION tenure.next_due(_q tenure.queue) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF _q.closed_until IS NOT NULL AND _q.waiting > 0 THEN
        RETURN least(tenure.delayed_until(_q), ceil(_q.closed_until)::bigint);
    ELSIF _q.first_closed IS NOT NULL THEN
        RETURN least(tenure.delayed_until(_q), (SELECT ceil(g.rank)::bigint FROM tenure.task_group g
            WHERE g.queue = _q.name AND g.line = -1 AND g.rank >= _q.first_closed ORDER BY g.rank LIMIT 1));
    END IF;
    RETURN tenure.delayed_until(_q);
END $$;

-- idle takers

CREATE FUNCTION tenure.forget_taker(_now bigint, _queue bytea, _session bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue;
BEGIN
    DELETE FROM tenure.taker t WHERE t.queue = _queue AND t.session = _session;
    IF FOUND THEN
        queue := tenure.use_queue(_now, _queue);
        queue.takers := queue.takers - 1;
        PERFORM tenure.save_queue(_now, queue);
    END IF;
END $$;

-- Have as many idle takers ask as are needed for `_count` tasks.
CREATE FUNCTION tenure.hint_takers(_q tenure.queue, _count bigint) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    taker tenure.taker;
BEGIN
    IF _count > 0 AND _q.takers > 0 THEN
        PERFORM tenure.break_silence(); -- this taker may be dead
    END IF;
    WHILE _count > 0 AND _q.takers > 0 AND NOT _q.paused LOOP
        SELECT * INTO taker FROM tenure.taker t WHERE t.queue = _q.name AND t.made >= _q.first_taker
        ORDER BY t.made LIMIT 1;
        DELETE FROM tenure.taker t WHERE t.queue = _q.name AND t.session = taker.session AND t.made = taker.made;
        PERFORM tenure.hint(taker.process, _q.name, '', 'ready');
        _q.first_taker := taker.made + 1;
        _q.takers := _q.takers - 1;
        _count := _count - taker.want;
    END LOOP;
    RETURN _q;
END $$;

-- Hint idle takers that `_count` more tasks can be taken, as many takers as are needed. A queue with a pace hints one:
-- whoever takes something has the next one hinted.
CREATE FUNCTION tenure.offer_tasks(_q tenure.queue, _count bigint) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    RETURN tenure.hint_takers(_q, CASE WHEN _q.closed_until IS NOT NULL THEN 0
        WHEN _q.rate IS NOT NULL OR _q.starts_at IS NOT NULL THEN least(_count, 1) ELSE _count END);
END $$;

-- A new earliest due time: one idle taker must know, to ask in time.
CREATE FUNCTION tenure.offer_sooner(_q tenure.queue, _before bigint) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    IF _q.takers > 0 AND tenure.next_due(_q) < coalesce(_before, 'infinity'::float8) THEN
        RETURN tenure.hint_takers(_q, 1);
    END IF;
    RETURN _q;
END $$;

-- producers

-- Reserve slots for the head of the producers' line, for as long as it fits.
CREATE FUNCTION tenure.admit_producers(_q tenure.queue) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    head tenure.producer;
BEGIN
    WHILE _q.producers > 0 LOOP
        SELECT * INTO head FROM tenure.producer p
        WHERE p.queue = _q.name AND NOT p.reserved AND NOT p.for_group AND p.ordinal >= _q.first_producer
        ORDER BY p.ordinal LIMIT 1;
        _q.first_producer := coalesce(head.ordinal, _q.ordinal + 1);
        EXIT WHEN NOT FOUND OR _q.live + _q.reserved > 0 AND head.count > _q.max_size - _q.live - _q.reserved;
        UPDATE tenure.producer p SET reserved = true WHERE p.queue = _q.name AND p.name = head.name;
        _q.producers := _q.producers - 1;
        _q.reserved := _q.reserved + head.count;
        PERFORM tenure.hint(head.process, _q.name, head.name, 'room');
    END LOOP;
    RETURN _q;
END $$;

-- -> released, left, unknown
CREATE FUNCTION tenure.remove_producer(_now bigint, _queue bytea, _name bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue;
    place tenure.producer;
BEGIN
    DELETE FROM tenure.producer p WHERE p.queue = _queue AND p.name = _name RETURNING * INTO place;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    queue := tenure.use_queue(_now, _queue);
    IF place.reserved THEN
        queue.reserved := queue.reserved - place.count;
    ELSE
        queue.producers := queue.producers - 1;
    END IF;
    IF place.group_name <> '' THEN
        queue := tenure.regroup(queue, ARRAY[place.group_name], 0, 0, 0,
            CASE WHEN place.for_group THEN 0 ELSE -place.count END, -place.for_group::int);
    END IF;
    PERFORM tenure.save_queue(_now, tenure.make_room(queue, ARRAY[place.group_name]));
    RETURN CASE WHEN place.reserved THEN 'released' ELSE 'left' END;
END $$;

-- endings

-- The counters of a queue without a task that was suspended or ending.
CREATE FUNCTION tenure.count_apart(_q tenure.queue, _task tenure.task) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    IF _task.session = 0 THEN
        _q.suspended := _q.suspended - (NOT _task.ending)::int;
        _q.ending := _q.ending - _task.ending::int;
    END IF;
    RETURN _q;
END $$;

-- The task is unfinished no more, and leaves its order, or its session.
CREATE FUNCTION tenure.remove_task(_q tenure.queue, _task tenure.task) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    leased int := coalesce(_task.session > 0, false)::int;
    delayed int := (_task.session IS NULL AND _task.delayed)::int;
    waiting int := (_task.session IS NULL AND NOT _task.delayed)::int;
BEGIN
    DELETE FROM tenure.task t WHERE t.queue = _q.name AND t.id = _task.id;
    _q := tenure.count_apart(_q, _task);
    _q := tenure.count_tasks(_q, ARRAY[_task.group_name], 1, -1, -waiting, -delayed, -leased);
    IF _q.producers > 0 THEN
        _q := tenure.make_room(_q, ARRAY[_task.group_name]);
    END IF;
    IF _q.live = 0 THEN
        PERFORM tenure.notify_watchers('drain', _q.name, 0, '', 'drained');
    END IF;
    RETURN _q;
END $$;

-- Hint those that watch the changes of the tasks; call it only for a queue that is followed.
CREATE FUNCTION tenure.notify_followers(_q tenure.queue, _ids bigint[]) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    watch tenure.watch;
    first bigint;
BEGIN
    FOR watch IN
        -- one task after the other, whatever the planner believes of the watches
        DELETE FROM tenure.watch w WHERE w.ctid = ANY (ARRAY(
            SELECT f.ctid FROM unnest(_ids) i (id) CROSS JOIN LATERAL (
                SELECT o.ctid FROM tenure.watch o
                WHERE o.kind = 'change' AND o.name = _q.name AND o.task = i.id OFFSET 0
            ) f
        )) RETURNING w.*
    LOOP
        PERFORM tenure.hint(watch.process, _q.name, watch.task::text::bytea, 'changed');
    END LOOP;
    SELECT w.task INTO first FROM tenure.watch w
    WHERE w.kind = 'change' AND w.name = _q.name AND w.task >= _q.first_followed ORDER BY w.task LIMIT 1;
    _q.followed := FOUND;
    _q.first_followed := coalesce(first, _q.first_followed);
    RETURN _q;
END $$;

CREATE FUNCTION tenure.notify_finished(_q tenure.queue, _id bigint) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    IF _q.awaited THEN
        PERFORM tenure.notify_watchers('task', _q.name, _id, _id::text::bytea, 'finished');
    END IF;
    IF _q.followed THEN
        _q := tenure.notify_followers(_q, ARRAY[_id]);
    END IF;
    RETURN _q;
END $$;

-- The task has ended; without `_ttl` its record is kept for good, and "purged" has none. `_own` is the ttl of the
-- session that settled it, 0 if none did.
CREATE FUNCTION tenure.end_task(
    _now bigint, _q tenure.queue, _task tenure.task, _state text, _result bytea, _ttl bigint, _own bigint
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    _q := tenure.remove_task(_q, _task);
    CASE _state
        WHEN 'done' THEN _q.done := _q.done + 1;
        WHEN 'dead' THEN _q.dead := _q.dead + 1;
        WHEN 'discarded' THEN _q.discarded := _q.discarded + 1;
        WHEN 'cancelled' THEN _q.cancelled := _q.cancelled + 1;
        WHEN 'expired' THEN _q.expired := _q.expired + 1;
        WHEN 'purged' THEN
            _q.purged := _q.purged + 1;
            RETURN tenure.notify_finished(_q, _task.id);
    END CASE;
    _q.lasting := _q.lasting + (_ttl IS NULL)::int;
    -- a dead letter keeps its queue by being there
    _q.keep_until := greatest(
        _q.keep_until, CASE WHEN _state <> 'dead' THEN _now + _ttl END, _now + 2 * _own
    );
    INSERT INTO tenure.ended
        (id, queue, state, seq, priority, attempts, deliveries, ended_at, token, expires, key, result, payload,
        progress, failure, meta, group_name, kin)
    VALUES (_task.id, _q.name, _state, nextval('tenure.last_ending'), _task.priority, _task.attempts, _task.deliveries,
        _now, _task.token, _now + _ttl, _task.key, _result,
        tenure.payload_after(_state, _task.keep, _task.payload), nullif(_task.progress, ''),
        _task.failure, _task.meta, _task.group_name, _task.kin);
    IF _state = 'dead' AND _ttl IS NOT NULL THEN
        INSERT INTO tenure.todo (due, id, name) VALUES (_now + _ttl, _task.id, _q.name);
    END IF;
    RETURN tenure.notify_finished(_q, _task.id);
END $$;

-- A task is in the orders again; the caller offers what can be taken.
CREATE FUNCTION tenure.return_task(_now bigint, _q tenure.queue, _task tenure.task) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
DECLARE
    before bigint := tenure.next_due(_q);
BEGIN
    UPDATE tenure.task t SET ready_at = _task.ready_at, delayed = _task.ready_at > _now, attempts = _task.attempts,
        deliveries = _task.deliveries, session = NULL, process = NULL, token = 0, stop = NULL, stop_ttl = NULL,
        failure = _task.failure, ending = false
    WHERE t.queue = _q.name AND t.id = _task.id;
    IF _q.followed THEN
        _q := tenure.notify_followers(_q, ARRAY[_task.id]);
    END IF;
    _q := tenure.count_apart(_q, _task);
    _q := tenure.count_tasks(_q, ARRAY[_task.group_name], 1, 0, (_task.ready_at <= _now)::int,
        (_task.ready_at > _now)::int, -coalesce(_task.session > 0, false)::int, ARRAY[_task.priority],
        CASE WHEN _task.ready_at <= _now THEN _task.ready_at END, _task.id);
    IF _task.ready_at > _now THEN
        _q.first_due := least(_q.first_due, _task.ready_at);
        RETURN tenure.offer_sooner(_q, before);
    END IF;
    RETURN _q;
END $$;

-- The session that held the task has ended.
CREATE FUNCTION tenure.drop_task(_now bigint, _queue bytea, _id bigint, _session bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
    queue tenure.queue;
    before bigint;
    silent bigint;
BEGIN
    -- by its id alone, so that what the session has is not searched for each
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _queue AND t.id = _id;
    IF task.session IS DISTINCT FROM _session THEN
        RETURN;
    END IF;
    task.ready_at := least(task.ready_at, _now);
    queue := tenure.use_queue(_now, task.queue);
    before := queue.takeable;
    silent := task.deliveries - task.attempts;
    IF task.deadline <= _now THEN
        queue := tenure.finish_task(_now, queue, task, 'expired', '', 3600000000, 0);
    ELSIF task.stop IS NOT NULL THEN
        queue := tenure.finish_task(_now, queue, task, 'cancelled', '', task.stop_ttl, 0);
    ELSIF silent >= task.max_deliveries THEN
        queue := tenure.finish_task(
            _now, queue, task, 'dead',
            format('delivered %s without a verdict: process ',
                CASE silent WHEN 1 THEN 'once' ELSE silent || ' times' END)::bytea || task.process
                || ' died or lost its session'::bytea
                || (CASE WHEN task.max_deliveries = 0 THEN ' while the task ran alone in it' ELSE '' END)::bytea,
            task.dead_ttl, 0);
    ELSE
        queue := tenure.return_task(_now, queue, task);
    END IF;
    IF queue.round > 0 THEN
        PERFORM tenure.refund_turn(queue, task.group_name);
    END IF;
    PERFORM tenure.save_queue(_now, tenure.offer_tasks(queue, queue.takeable - before));
END $$;

-- The time has come at which a task expires, if it has not begun, or is late. False if no step is left.
CREATE FUNCTION tenure.expire_task(_now bigint, _queue bytea, _id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    task tenure.task;
    queue tenure.queue;
    before bigint;
BEGIN
    SELECT * INTO task FROM tenure.task t WHERE t.queue = _queue AND t.id = _id AND t.expires <= _now;
    IF NOT FOUND THEN
        RETURN true;
    ELSIF task.session IS NOT NULL AND NOT coalesce(task.deadline <= _now, false) THEN
        UPDATE tenure.task t SET expires = t.deadline WHERE t.queue = _queue AND t.id = _id;
        RETURN true;
    ELSIF NOT tenure.step() THEN
        RETURN false;
    ELSIF task.session IS NOT NULL OR task.kin THEN
        UPDATE tenure.task t SET expires = NULL WHERE t.queue = _queue AND t.id = _id;
    END IF;
    queue := tenure.use_queue(_now, task.queue);
    before := queue.takeable;
    queue := (tenure.cancel_task(_now, queue, _id, 3600000000, 'expired'))._q;
    PERFORM tenure.save_queue(_now, tenure.offer_tasks(queue, queue.takeable - before));
    RETURN true;
END $$;

-- The time of a dead letter has come. False if no step is left.
CREATE FUNCTION tenure.expire_dead_letter(_now bigint, _queue bytea, _id bigint, _due bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue;
    has_family boolean;
BEGIN
    IF NOT tenure.step() THEN
        RETURN false;
    END IF;
    DELETE FROM tenure.todo t WHERE t.due = _due AND t.id = _id;
    DELETE FROM tenure.ended e WHERE e.id = _id AND e.state = 'dead' AND e.expires <= _now
    RETURNING e.kin INTO has_family;
    IF NOT FOUND THEN
        RETURN true;
    ELSIF has_family THEN
        PERFORM tenure.forget_family(_id);
    END IF;
    queue := tenure.use_queue(_now, _queue);
    queue.dead := queue.dead - 1;
    queue.purged := queue.purged + 1;
    PERFORM tenure.save_queue(_now, queue);
    RETURN true;
END $$;

-- Forget outdated records, but for dead letters, a few more than came.
CREATE FUNCTION tenure.forget_records(_now bigint, _ended bigint, _rescue boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most bigint := 16 + 2 * _ended;
    behind constant bigint := 100000;
    since bigint := pg_sequence_last_value('tenure.last_forgotten');
    gone record;
    reached bigint;
BEGIN
    IF _rescue OR since IS NULL OR since > _now THEN
        since := -1;
    END IF;
    WITH forgotten AS (
        DELETE FROM tenure.ended WHERE ctid = ANY (ARRAY(
            SELECT e.ctid FROM tenure.ended e
            WHERE e.expires >= since AND e.expires <= _now AND e.state <> 'dead'
            ORDER BY e.expires LIMIT most
            FOR UPDATE SKIP LOCKED
        )) RETURNING expires
    )
    SELECT count(*) AS n, max(f.expires) AS last INTO gone FROM forgotten f;
    reached := CASE WHEN gone.n < most THEN _now ELSE gone.last END - behind;
    IF reached > since + behind OR since < 0 THEN
        PERFORM setval('tenure.last_forgotten', greatest(0, reached));
    END IF;
END $$;
