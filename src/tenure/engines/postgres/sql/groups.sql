-- Groups of tasks, which take turns: limits, tags, and the lines of producers for room in a group.
--
-- All of this is for queues in which `named` is above 0. Tasks without a group are one group there, whose name is
-- empty.
-- Needs: state, tasks

-- How many tasks of a group can be taken now.
CREATE FUNCTION tenure.takeable(_limit bigint, _name bytea, _waiting bigint, _leased bigint, _rests boolean)
RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _limit = 0 OR _name = '' THEN _waiting WHEN _rests THEN 0
        ELSE greatest(0, least(_limit - _leased, _waiting)) END;

-- What a turn of a group costs.
CREATE FUNCTION tenure.cost_of(_q tenure.queue, _name bytea) RETURNS double precision STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT t.cost FROM tenure.turn t WHERE t.queue = _q.name AND t.name = _name), 1);
END $$;

-- These groups changed, by so many for each time that a group is named. `count_tasks` calls it for tasks, which change
-- the counters of the queue too; others call it for producers, which change none of these.
CREATE FUNCTION tenure.regroup(
    _q tenure.queue, _names bytea[], _live bigint, _waiting bigint, _leased bigint, _reserved bigint DEFAULT 0,
    _producers bigint DEFAULT 0
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    changes record;
BEGIN
    IF _q.named = 0 THEN
        IF coalesce('' = ALL (_names), true) THEN
            RETURN _q;
        ELSIF _q.live > 0 THEN
            -- those without a group are one from now on
            INSERT INTO tenure.task_group (queue, name, live, waiting, leased, cost, tag)
            SELECT _q.name, '', _q.live, _q.waiting, _q.live - _q.waiting - _q.delayed, c.cost,
                CASE WHEN _q.waiting > 0 THEN c.cost END
            FROM tenure.cost_of(_q, '') c (cost);
        END IF;
    END IF;
    _q.has_groups := true;
    WITH named AS (
        SELECT u.name, count(*) AS n FROM unnest(_names) u (name) GROUP BY u.name
    ), counted AS (
        SELECT n.name, g.place, g.live AS former_live, g.held AS former_held, g.tag, g.pinned,
            coalesce(g.live, 0) + n.n * _live AS live, coalesce(g.waiting, 0) + n.n * _waiting AS waiting,
            coalesce(g.leased, 0) + n.n * _leased AS leased, coalesce(g.reserved, 0) + n.n * _reserved AS reserved,
            coalesce(g.producers, 0) + n.n * _producers AS producers,
            coalesce(g.cost, CASE WHEN _q.weights = 0 THEN 1 ELSE tenure.cost_of(_q, n.name) END) AS cost,
            CASE WHEN g.pinned > 0 THEN (
                SELECT t.delayed FROM tenure.task t WHERE t.queue = _q.name AND t.id = g.pinned
            ) END AS pinned_is_delayed
        FROM named n LEFT JOIN LATERAL (
            SELECT o.ctid AS place, o.* FROM tenure.task_group o WHERE o.queue = _q.name AND o.name = n.name LIMIT 1
        ) g ON true
    ), now AS (
        SELECT c.*, c.live + c.reserved + c.producers > 0 AS stays, tenure.takeable(_q.per_group, c.name, c.waiting,
            c.leased, coalesce(c.pinned_is_delayed AND _q.per_group = 1 AND _q.keep_order, false)) AS free
        FROM counted c
    ), gone AS (
        DELETE FROM tenure.task_group g WHERE g.ctid = ANY (ARRAY(SELECT n.place FROM now n WHERE NOT n.stays))
    ), came AS (
        INSERT INTO tenure.task_group (queue, name, live, waiting, leased, held, reserved, producers, cost, tag)
        SELECT _q.name, n.name, n.live, n.waiting, n.leased, n.waiting - n.free, n.reserved, n.producers, n.cost,
            CASE WHEN n.free > 0 THEN _q.virtual_time + n.cost END
        FROM now n WHERE n.place IS NULL AND n.stays
    ), changed AS (
        UPDATE tenure.task_group g SET live = n.live, waiting = n.waiting, leased = n.leased, held = n.waiting - n.free,
            pinned = CASE WHEN n.pinned_is_delayed IS NULL THEN 0 ELSE n.pinned END, reserved = n.reserved,
            producers = n.producers,
            tag = CASE WHEN n.free > 0 THEN coalesce(n.tag, _q.virtual_time + n.cost) END
        FROM now n WHERE n.stays AND n.place IS NOT NULL AND g.ctid = n.place
    )
    SELECT sum(n.waiting - n.free - coalesce(n.former_held, 0)) AS held,
        sum((n.live > 0)::int - (coalesce(n.former_live, 0) > 0)::int) FILTER (WHERE n.name <> '') AS groups,
        sum(n.stays::int - (n.place IS NOT NULL)::int) FILTER (WHERE n.name <> '') AS named
    INTO changes FROM now n;
    _q.held := _q.held + coalesce(changes.held, 0);
    _q.groups := _q.groups + coalesce(changes.groups, 0);
    _q.named := _q.named + coalesce(changes.named, 0);
    IF _q.named = 0 THEN
        DELETE FROM tenure.task_group o WHERE o.queue = _q.name;
        _q.virtual_time := 0;
    END IF;
    RETURN _q;
END $$;

-- `_n` tasks changed, each in one of these groups (NULL: none has one): so many more or less of each are unfinished,
-- waiting, delayed and leased. Call it behind the change of their rows. It keeps the order of what follows: first the
-- groups, since those without a group become one with the counters as they were, then the counters.
CREATE FUNCTION tenure.count_tasks(
    _q tenure.queue, _groups bytea[], _n bigint, _live int, _waiting int, _delayed int, _leased int
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    IF _q.named > 0 OR '' <> ANY (_groups) THEN
        _q := tenure.regroup(_q, _groups, _live, _waiting, _leased);
    END IF;
    _q.live := _q.live + _n * _live;
    _q.waiting := _q.waiting + _n * _waiting;
    _q.delayed := _q.delayed + _n * _delayed;
    RETURN _q;
END $$;

-- A task that was tried goes back: it stays ahead of its group where order is kept. Its `regroup` follows.
CREATE FUNCTION tenure.pin(_q tenure.queue, _group bytea, _id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _group <> '' AND _q.per_group = 1 AND _q.keep_order THEN
        UPDATE tenure.task_group g SET pinned = _id WHERE g.queue = _q.name AND g.name = _group;
    END IF;
END $$;

-- The turn of a task that went back untried was none.
CREATE FUNCTION tenure.refund_turn(_q tenure.queue, _group bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenure.task_group g SET tag = greatest(_q.virtual_time, g.tag - g.cost)
    WHERE g.queue = _q.name AND g.name = _group AND g.tag IS NOT NULL;
END $$;

-- The groups of the next `_want` tasks have had their turns. -> the queue, and where these tasks are, in order
--
-- A turn changes the tag of its own group only. So the tags that each group will have are known beforehand, and the
-- order of the turns is that of all these tags. Behind the first `_want` groups nothing matters.
CREATE FUNCTION tenure.take_turns(
    _now bigint, INOUT _q tenure.queue, _want bigint, _aging bigint, OUT _places tid[]
) LANGUAGE plpgsql AS $$
DECLARE
    sums record;
BEGIN
    WITH RECURSIVE first AS (
        -- no tag is below the virtual time: so the index entries of former tags are passed over
        SELECT g.name, g.tag, g.cost, g.waiting, g.leased, g.held, g.pinned, g.ctid AS place FROM tenure.task_group g
        WHERE g.queue = _q.name AND g.tag >= _q.virtual_time AND g.tag IS NOT NULL ORDER BY g.tag, g.name LIMIT _want
    ), last AS (
        SELECT f.tag, f.name FROM first f ORDER BY f.tag, f.name OFFSET _want - 1
    ), turn AS (
        SELECT f.*, 1::bigint AS n FROM first f
        UNION ALL
        SELECT t.name, t.tag + t.cost, t.cost, t.waiting, t.leased, t.held, t.pinned, t.place, t.n + 1 FROM turn t
        WHERE t.n < least(t.waiting - t.held, _want)
            AND NOT EXISTS (SELECT FROM last l WHERE (t.tag + t.cost, t.name) > (l.tag, l.name))
    ), taken AS (
        SELECT p.name, p.place, p.cost, p.held, p.pinned, array_agg(p.tag ORDER BY p.n) AS tags, max(p.tag) AS last,
            count(*) AS count, p.waiting - count(*) AS waiting, p.leased + count(*) AS leased,
            tenure.takeable(_q.per_group, p.name, p.waiting - count(*), p.leased + count(*), false) AS free
        FROM (SELECT * FROM turn t ORDER BY t.tag, t.name, t.n LIMIT _want) p
        GROUP BY p.name, p.place, p.cost, p.waiting, p.leased, p.held, p.pinned
    ), turned AS (
        UPDATE tenure.task_group g SET waiting = t.waiting, leased = t.leased, held = t.waiting - t.free,
            tag = CASE WHEN t.free > 0 THEN t.last + t.cost END
        FROM taken t WHERE g.ctid = t.place
    )
    SELECT array_agg(f.place ORDER BY t.tags[f.n], t.name, f.n) FILTER (WHERE f.n <= t.count) AS places,
        max(t.last) AS reached, sum(t.waiting - t.free - t.held) FILTER (WHERE f.n = 1) AS held
    INTO sums
    FROM taken t CROSS JOIN LATERAL unnest(
        CASE WHEN t.pinned > 0 AND _q.per_group = 1 AND _q.keep_order THEN ARRAY(
            SELECT b.ctid FROM tenure.task b WHERE b.queue = _q.name AND b.id = t.pinned LIMIT 1
        ) END || CASE WHEN _aging IS NOT NULL THEN ARRAY(
            SELECT a.ctid FROM tenure.task a
            WHERE a.queue = _q.name AND a.group_name = t.name AND a.session IS NULL AND NOT a.delayed
                AND a.ready_at < _now - _aging
            ORDER BY a.ready_at, a.id LIMIT t.count
        ) END || ARRAY(
            -- as many again may be old
            SELECT y.ctid FROM (
                SELECT p.ctid, p.ready_at FROM tenure.task p
                WHERE p.queue = _q.name AND p.group_name = t.name AND p.session IS NULL AND NOT p.delayed
                ORDER BY p.priority DESC, p.ready_at, p.id
                LIMIT CASE WHEN _aging IS NULL THEN t.count ELSE 2 * t.count END
            ) y WHERE _aging IS NULL OR y.ready_at >= _now - _aging
        )
    ) WITH ORDINALITY f (place, n);
    _places := sums.places;
    _q.virtual_time := sums.reached;
    _q.held := _q.held + sums.held;
END $$;

-- producers

-- Whether each group has room for those of the tasks that are no duplicates.
CREATE FUNCTION tenure.groups_have_room(_q tenure.queue, _groups bytea[], _twins bigint[], _firsts bigint[])
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM (
            SELECT u.name, count(*) AS n FROM unnest(_groups, _twins, _firsts) WITH ORDINALITY u (name, twin, first, i)
            WHERE u.name <> '' AND u.twin IS NULL AND coalesce(u.first, u.i) = u.i GROUP BY u.name
        ) c LEFT JOIN LATERAL (
            SELECT * FROM tenure.task_group o WHERE o.queue = _q.name AND o.name = c.name LIMIT 1
        ) g ON true
        WHERE g.producers > 0 OR c.n > _q.group_size - coalesce(g.live + g.reserved, 0)
    );
END $$;

-- The producer of `_count` tasks of these groups begins to wait. -> the queue, and its place; NULL if it would wait for
-- ever
CREATE FUNCTION tenure.join_line(
    INOUT _q tenure.queue, _mine tenure.session, _name bytea, _count bigint, _groups bytea[], OUT _place tenure.producer
) LANGUAGE plpgsql AS $$
DECLARE
    wanted bytea := ''::bytea;
    is_full boolean := false;
BEGIN
    IF _q.group_size > 0 AND _groups IS NOT NULL THEN
        wanted := _groups[1];
        IF NOT wanted = ALL (_groups) OR (wanted <> '' AND _count > _q.group_size) THEN
            RETURN;
        END IF;
    END IF;
    IF wanted <> '' THEN
        is_full := NOT tenure.groups_have_room(_q, _groups, NULL, NULL);
        _q := tenure.regroup(_q, ARRAY[wanted], 0, 0, 0, CASE WHEN is_full THEN 0 ELSE _count END, is_full::int);
    END IF;
    _q.ordinal := _q.ordinal + 1;
    _q.producers := _q.producers + 1;
    INSERT INTO tenure.producer AS p (queue, name, session, process, count, ordinal, group_name, for_group)
    VALUES (_q.name, _name, _mine.id, _mine.process, _count, _q.ordinal, wanted, is_full) RETURNING * INTO _place;
END $$;

-- Something was freed in these groups, and so in the queue: those that waited for it go on to the line of the queue.
CREATE FUNCTION tenure.make_room(_q tenure.queue, _groups bytea[]) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    head tenure.producer;
    wanted bytea;
    taken bigint;
BEGIN
    FOREACH wanted IN ARRAY _groups LOOP
        EXIT WHEN _q.named = 0;
        LOOP
            SELECT * INTO head FROM tenure.producer p
            WHERE p.queue = _q.name AND p.for_group AND p.group_name = wanted ORDER BY p.ordinal LIMIT 1;
            EXIT WHEN NOT FOUND;
            SELECT g.live + g.reserved INTO taken FROM tenure.task_group g WHERE g.queue = _q.name AND g.name = wanted;
            EXIT WHEN _q.group_size > 0 AND taken > 0 AND head.count > _q.group_size - taken;
            _q.ordinal := _q.ordinal + 1;
            UPDATE tenure.producer p SET for_group = false, ordinal = _q.ordinal
            WHERE p.queue = _q.name AND p.name = head.name;
            UPDATE tenure.task_group g SET reserved = g.reserved + head.count, producers = g.producers - 1
            WHERE g.queue = _q.name AND g.name = wanted;
        END LOOP;
    END LOOP;
    RETURN tenure.admit_producers(_q);
END $$;

-- settings and figures

-- The groups with their costs of a turn. -> ok, more
CREATE FUNCTION tenure.set_groups(
    _clock bigint, _cap bigint, _queue bytea, _per_group bigint, _max_size bigint, _groups bytea[],
    _costs double precision[], _keep_order boolean
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'queue', _queue);
    queue tenure.queue;
    before bigint;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    queue := tenure.use_queue(now, _queue);
    -- each process sends them in each of its sessions: without a change that costs little
    IF (queue.per_group, queue.group_size, queue.keep_order) = (_per_group, _max_size, _keep_order) AND NOT EXISTS (
        SELECT FROM (SELECT t.name, t.cost FROM tenure.turn t WHERE t.queue = _queue) t
        FULL JOIN unnest(_groups, _costs) u (name, cost) USING (name, cost) WHERE t IS NULL OR u IS NULL
    ) THEN
        PERFORM tenure.save_queue(now, queue);
        RETURN tenure.reply('ok');
    END IF;
    before := queue.waiting - queue.held;
    queue.has_groups := true;
    queue.per_group := _per_group;
    queue.group_size := _max_size;
    queue.keep_order := _keep_order;
    queue.weights := cardinality(_groups);
    DELETE FROM tenure.turn t WHERE t.queue = _queue;
    INSERT INTO tenure.turn (queue, name, cost)
    SELECT _queue, u.name, u.cost FROM unnest(_groups, _costs) u (name, cost);
    IF queue.named > 0 THEN
        UPDATE tenure.task_group g SET cost = coalesce(t.cost, 1)
        FROM tenure.task_group o LEFT JOIN tenure.turn t ON t.queue = o.queue AND t.name = o.name
        WHERE g.queue = _queue AND o.queue = _queue AND o.name = g.name AND g.cost <> coalesce(t.cost, 1);
        queue := tenure.regroup(
            queue, ARRAY(SELECT g.name FROM tenure.task_group g WHERE g.queue = _queue), 0, 0, 0);
        queue := tenure.make_room(queue, ARRAY(
            SELECT g.name FROM tenure.task_group g WHERE g.queue = _queue AND g.producers > 0 ORDER BY g.name));
    END IF;
    PERFORM tenure.save_queue(now, tenure.offer_tasks(queue, queue.waiting - queue.held - before));
    RETURN tenure.reply('ok');
END $$;
