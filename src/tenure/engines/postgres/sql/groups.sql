-- Groups of tasks, which take turns: limits, tags, and the lines of producers for room in a group.
--
-- All of this is for queues in which `named` is above 0. Tasks without a group are one group there, whose name is empty.

-- How many tasks of a group can be taken now.
CREATE FUNCTION tenure.takeable(_limit bigint, _name bytea, _waiting bigint, _leased bigint, _rests boolean)
RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _limit = 0 OR _name = '' THEN _waiting WHEN _rests THEN 0
        ELSE greatest(0, least(_limit - _leased, _waiting)) END;

-- What a turn of a group costs.
CREATE FUNCTION tenure.cost_of(_q tenure.queue, _name bytea) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    IF _q.weights = 0 THEN
        RETURN 1;
    END IF;
    RETURN coalesce((SELECT t.cost FROM tenure.turn t WHERE t.queue = _q.name AND t.name = _name), 1);
END $$;

-- Some of a group changed, by so many: call it behind the change of the tasks, and before that of the counters of the
-- queue.
CREATE FUNCTION tenure.regroup(
    _q tenure.queue, _name bytea, _live bigint, _waiting bigint, _leased bigint, _reserved bigint DEFAULT 0,
    _producers bigint DEFAULT 0
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    former tenure.task_group;
    g tenure.task_group;
    rests boolean := false;
    free bigint;
BEGIN
    IF _q.named = 0 AND _name = '' THEN
        RETURN _q;
    END IF;
    _q.has_groups := true;
    IF _q.named = 0 AND _q.live > 0 THEN
        -- those without a group are one from now on
        g.cost := tenure.cost_of(_q, '');
        INSERT INTO tenure.task_group (queue, name, live, waiting, leased, cost, tag)
        VALUES (_q.name, '', _q.live, _q.waiting, _q.live - _q.waiting - _q.delayed, g.cost,
            CASE WHEN _q.waiting > 0 THEN g.cost END);
    END IF;
    SELECT * INTO former FROM tenure.task_group o WHERE o.queue = _q.name AND o.name = _name;
    g := former;
    IF former.name IS NULL THEN
        g := ROW(_q.name, _name, 0, 0, 0, 0, 0, 0, 0, tenure.cost_of(_q, _name), NULL);
    END IF;
    g.live := g.live + _live;
    g.waiting := g.waiting + _waiting;
    g.leased := g.leased + _leased;
    g.reserved := g.reserved + _reserved;
    g.producers := g.producers + _producers;
    IF g.bound > 0 THEN
        SELECT t.delayed AND _q.per_group = 1 AND _q.keep_order INTO rests FROM tenure.task t
        WHERE t.queue = _q.name AND t.id = g.bound;
        IF NOT FOUND THEN
            g.bound := 0;
        END IF;
    END IF;
    free := tenure.takeable(_q.per_group, _name, g.waiting, g.leased, coalesce(rests, false));
    g.held := g.waiting - free;
    g.tag := CASE WHEN free > 0 THEN coalesce(g.tag, _q.virtual_time + g.cost) END;
    IF g.live + g.reserved + g.producers = 0 THEN
        DELETE FROM tenure.task_group o WHERE o.queue = _q.name AND o.name = _name;
    ELSIF former.name IS NULL THEN
        INSERT INTO tenure.task_group VALUES (g.*);
    ELSE
        UPDATE tenure.task_group o SET live = g.live, waiting = g.waiting, leased = g.leased, held = g.held,
            bound = g.bound, reserved = g.reserved, producers = g.producers, tag = g.tag
        WHERE o.queue = _q.name AND o.name = _name;
    END IF;
    _q.held := _q.held + g.held - coalesce(former.held, 0);
    IF _name <> '' THEN
        _q.groups := _q.groups + (g.live > 0)::int - (coalesce(former.live, 0) > 0)::int;
        _q.named := _q.named + (g.live + g.reserved + g.producers > 0)::int - (former.name IS NOT NULL)::int;
        IF _q.named = 0 THEN
            DELETE FROM tenure.task_group o WHERE o.queue = _q.name;
            _q.virtual_time := 0;
        END IF;
    END IF;
    RETURN _q;
END $$;

-- The same for several tasks, each of the group at its place; a number is what each task changes.
CREATE FUNCTION tenure.regroup_all(
    _q tenure.queue, _groups bytea[], _live bigint, _waiting bigint, _leased bigint
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    IF cardinality(_groups) = 1 THEN
        RETURN tenure.regroup(_q, _groups[1], _live, _waiting, _leased);
    END IF;
    -- those without a group behind those that make it one
    FOR one IN SELECT u.name, count(*) AS n FROM unnest(_groups) u (name) GROUP BY u.name ORDER BY u.name DESC LOOP
        _q := tenure.regroup(_q, one.name, one.n * _live, one.n * _waiting, one.n * _leased);
    END LOOP;
    RETURN _q;
END $$;

-- The tasks with an id above 0 were put, each in the group at its place; without `_groups` they have none.
CREATE FUNCTION tenure.put_in_groups(_q tenure.queue, _ids bigint[], _groups bytea[], _delays bigint[])
RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    added record;
BEGIN
    IF cardinality(_ids) = 1 AND _ids[1] > 0 THEN
        RETURN tenure.regroup(_q, coalesce(_groups[1], ''), 1, (_delays[1] = 0)::int, 0);
    END IF;
    SELECT array_agg(coalesce(u.name, '')) AS groups,
        array_agg(coalesce(u.name, '')) FILTER (WHERE u.delay = 0) AS ready_groups
    INTO added FROM unnest(_ids, _groups, _delays) u (id, name, delay) WHERE u.id > 0;
    IF cardinality(added.groups) = cardinality(added.ready_groups) THEN
        RETURN tenure.regroup_all(_q, added.groups, 1, 1, 0);
    END IF;
    RETURN tenure.regroup_all(
        tenure.regroup_all(_q, added.groups, 1, 0, 0), added.ready_groups, 0, 1, 0);
END $$;

-- A task that was tried goes back: it stays ahead of its group where order is kept. Its `regroup` follows.
CREATE FUNCTION tenure.bind(_q tenure.queue, _group bytea, _id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _group <> '' AND _q.per_group = 1 AND _q.keep_order THEN
        UPDATE tenure.task_group g SET bound = _id WHERE g.queue = _q.name AND g.name = _group;
    END IF;
END $$;

-- The turn of a task that went back untried was none.
CREATE FUNCTION tenure.refund(_q tenure.queue, _group bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenure.task_group g SET tag = greatest(_q.virtual_time, g.tag - g.cost)
    WHERE g.queue = _q.name AND g.name = _group AND g.tag IS NOT NULL;
END $$;

-- The groups of the next `_want` tasks have had their turns. -> the queue, and where these tasks are, in order
--
-- A turn changes the tag of its own group only. So the tags that each group will have are known beforehand, and the
-- order of the turns is that of all these tags. Behind the first `_want` groups there is nothing to be looked at.
CREATE FUNCTION tenure.take_turns(
    _now bigint, INOUT _q tenure.queue, _want bigint, _aging bigint, OUT _places tid[]
) LANGUAGE plpgsql AS $$
DECLARE
    sums record;
BEGIN
    WITH RECURSIVE first AS (
        -- no tag is below the virtual time: so the index entries of former tags are passed over
        SELECT g.name, g.tag, g.cost, g.waiting, g.leased, g.held, g.bound, g.ctid AS place FROM tenure.task_group g
        WHERE g.queue = _q.name AND g.tag >= _q.virtual_time AND g.tag IS NOT NULL ORDER BY g.tag, g.name LIMIT _want
    ), last AS (
        SELECT f.tag, f.name FROM first f ORDER BY f.tag, f.name OFFSET _want - 1
    ), turn AS (
        SELECT f.*, 1::bigint AS n FROM first f
        UNION ALL
        SELECT t.name, t.tag + t.cost, t.cost, t.waiting, t.leased, t.held, t.bound, t.place, t.n + 1 FROM turn t
        WHERE t.n < least(t.waiting - t.held, _want)
            AND NOT EXISTS (SELECT FROM last l WHERE (t.tag + t.cost, t.name) > (l.tag, l.name))
    ), picked AS (
        SELECT t.*, row_number() OVER (ORDER BY t.tag, t.name, t.n) AS rank FROM turn t
        ORDER BY t.tag, t.name, t.n LIMIT _want
    ), taken AS (
        SELECT p.name, p.place, p.held, p.bound, array_agg(p.rank ORDER BY p.n) AS ranks, count(*) AS count,
            max(p.tag) AS last, max(p.tag) + p.cost AS next, p.waiting - count(*) AS waiting, p.leased + count(*) AS leased,
            tenure.takeable(_q.per_group, p.name, p.waiting - count(*), p.leased + count(*), false) AS free
        FROM picked p GROUP BY p.name, p.place, p.cost, p.waiting, p.leased, p.held, p.bound
    ), turned AS (
        UPDATE tenure.task_group g SET waiting = t.waiting, leased = t.leased, held = t.waiting - t.free,
            tag = CASE WHEN t.free > 0 THEN t.next END
        FROM taken t WHERE g.ctid = t.place
    ), found AS (
        SELECT o.place, t.ranks[row_number() OVER (PARTITION BY t.place
            ORDER BY o.step, CASE o.step WHEN 3 THEN o.priority END DESC, o.ready_at, o.id)] AS rank
        FROM taken t CROSS JOIN LATERAL (
            (SELECT 1 AS step, b.ctid AS place, b.priority, b.ready_at, b.id FROM tenure.task b
                WHERE t.bound > 0 AND _q.per_group = 1 AND _q.keep_order AND b.queue = _q.name AND b.id = t.bound LIMIT 1)
            UNION ALL
            (SELECT 2, a.ctid, a.priority, a.ready_at, a.id FROM tenure.task a
                WHERE a.queue = _q.name AND a.group_name = t.name AND a.session IS NULL AND NOT a.delayed
                    AND a.ready_at < _now - _aging
                ORDER BY a.ready_at, a.id LIMIT t.count)
            UNION ALL
            -- as many again may be old
            (SELECT 3, y.* FROM (
                SELECT p.ctid, p.priority, p.ready_at, p.id FROM tenure.task p
                WHERE p.queue = _q.name AND p.group_name = t.name AND p.session IS NULL AND NOT p.delayed
                ORDER BY p.priority DESC, p.ready_at, p.id LIMIT CASE WHEN _aging IS NULL THEN t.count ELSE 2 * t.count END
            ) y WHERE _aging IS NULL OR y.ready_at >= _now - _aging)
        ) o
    )
    SELECT array_agg(f.place ORDER BY f.rank) FILTER (WHERE f.rank IS NOT NULL) AS places,
        (SELECT max(t.last) FROM taken t) AS reached, (SELECT sum(t.waiting - t.free - t.held) FROM taken t) AS held
    INTO sums FROM found f;
    _places := sums.places;
    _q.virtual_time := sums.reached;
    _q.held := _q.held + sums.held;
END $$;

-- producers

-- Whether each group has room for those of the tasks that are no duplicates.
CREATE FUNCTION tenure.have_room(_q tenure.queue, _groups bytea[], _twins bigint[], _firsts bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
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
    wanted bytea := '';
    is_full boolean := false;
BEGIN
    IF _q.group_size > 0 AND _groups IS NOT NULL THEN
        wanted := _groups[1];
        IF NOT wanted = ALL (_groups) OR (wanted <> '' AND _count > _q.group_size) THEN
            RETURN;
        END IF;
    END IF;
    IF wanted <> '' THEN
        is_full := NOT tenure.have_room(_q, _groups, NULL, NULL);
        _q := tenure.regroup(_q, wanted, 0, 0, 0, CASE WHEN is_full THEN 0 ELSE _count END, is_full::int);
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
            EXIT WHEN _q.group_size > 0 AND head.count > _q.group_size - taken;
            _q.ordinal := _q.ordinal + 1;
            UPDATE tenure.producer p SET for_group = false, ordinal = _q.ordinal
            WHERE p.queue = _q.name AND p.name = head.name;
            UPDATE tenure.task_group g SET reserved = g.reserved + head.count, producers = g.producers - 1
            WHERE g.queue = _q.name AND g.name = wanted;
        END LOOP;
    END LOOP;
    RETURN tenure.admit(_q);
END $$;

-- settings and figures

-- The groups with their costs of a turn. -> ok, more
CREATE FUNCTION tenure.set_groups(
    _clock bigint, _cap bigint, _queue bytea, _per_group bigint, _max_size bigint, _groups bytea[],
    _costs double precision[], _keep_order boolean
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter(_clock, 'queue', _queue);
    queue tenure.queue;
    before bigint;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.word('more');
    END IF;
    queue := tenure.queue_of(now, _queue);
    before := queue.waiting - queue.held;
    queue.has_groups := true;
    queue.per_group := _per_group;
    queue.group_size := _max_size;
    queue.keep_order := _keep_order;
    queue.weights := cardinality(_groups);
    DELETE FROM tenure.turn t WHERE t.queue = _queue;
    INSERT INTO tenure.turn (queue, name, cost) SELECT _queue, u.name, u.cost FROM unnest(_groups, _costs) u (name, cost);
    IF queue.named > 0 THEN
        UPDATE tenure.task_group g SET cost = coalesce(t.cost, 1)
        FROM tenure.task_group o LEFT JOIN tenure.turn t ON t.queue = o.queue AND t.name = o.name
        WHERE g.queue = _queue AND o.queue = _queue AND o.name = g.name AND g.cost <> coalesce(t.cost, 1);
        queue := tenure.regroup_all(
            queue, ARRAY(SELECT g.name FROM tenure.task_group g WHERE g.queue = _queue), 0, 0, 0);
        queue := tenure.make_room(queue, ARRAY(
            SELECT g.name FROM tenure.task_group g WHERE g.queue = _queue AND g.producers > 0 ORDER BY g.name));
    END IF;
    PERFORM tenure.save(now, tenure.offer_tasks(queue, queue.waiting - queue.held - before));
    RETURN tenure.word('ok');
END $$;

-- The longest groups. -> groups(), then group(waiting, delayed, leased; name) of each; more
CREATE FUNCTION tenure.longest_groups(_clock bigint, _cap bigint, _queue bytea, _limit bigint)
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
BEGIN
    IF tenure.enter(_clock, 'queue', _queue) IS NULL THEN
        RETURN NEXT tenure.word('more');
        RETURN;
    END IF;
    RETURN NEXT tenure.word('groups');
    RETURN QUERY SELECT 'group', ARRAY[g.waiting, g.live - g.waiting - g.leased, g.leased], ARRAY[g.name]
        FROM tenure.task_group g WHERE g.queue = _queue AND g.name <> '' AND g.live > 0
        ORDER BY g.live DESC, g.name LIMIT _limit;
END $$;
