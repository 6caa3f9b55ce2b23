-- Groups of tasks, which take turns: limits, tags, and the lines of producers for room in a group.
--
-- Groups take turns while one of them has a task or a producer. The tasks without a group are one group then, whose
-- name is empty. A group is open, or closed until a time, or until something happens. Without tasks it is idle while
-- the time of its next start has an effect. A group that comes and goes all the time would leave dead rows of one name.
-- So the row of a group stays until the period ends, unless there are many more rows than groups in use.
-- Needs: paces, state, takers, tasks

-- How many tasks of a group can be taken, as far as its limit and its order go.
CREATE FUNCTION tenure.takeable(_limit bigint, _name bytea, _waiting bigint, _leased bigint, _rests boolean)
RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _limit = 0 OR _name = '' THEN _waiting WHEN _rests THEN 0
        ELSE greatest(0, least(_limit - _leased, _waiting)) END;

CREATE FUNCTION tenure.cost_of(_q tenure.queue, _name bytea) RETURNS double precision STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT t.cost FROM tenure.turn t WHERE t.queue = _q.name AND t.name = _name), 1);
END $$;

-- Where the row of a group is; NULL if it has none.
CREATE FUNCTION tenure.place_of_group(_q tenure.queue, _name bytea) RETURNS tid STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT g.ctid FROM tenure.task_group g
        WHERE g.queue = _q.name AND g.period = _q.period AND g.name = _name ORDER BY g.page DESC LIMIT 1);
END $$;

-- A task of a group or its producer comes: groups take turns from now on.
CREATE FUNCTION tenure.begin_turns(_q tenure.queue) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    _q.has_groups := true;
    _q.round := nextval('tenure.last_made');
    -- beside idle groups there is a row in each round: nobody searches for it among those of the rounds before
    IF _q.live > 0 OR _q.named > 0 THEN
        INSERT INTO tenure.task_group (queue, period, name, live, waiting, leased, takeable, cost, line, rank, fronts)
        SELECT _q.name, _q.period, '', _q.live, _q.waiting,
            _q.live - _q.waiting - _q.delayed - _q.suspended - _q.ending, _q.waiting, c.cost,
            CASE WHEN _q.waiting > 0 THEN _q.round ELSE 0 END, CASE WHEN _q.waiting > 0 THEN c.cost END, _q.fronts
        FROM tenure.cost_of(_q, '') c (cost);
    END IF;
    RETURN _q;
END $$;

-- Find anew until when these groups are closed, and how many of their tasks can be taken. They changed by so many for
-- each time that a group is named. `count_tasks` calls it for tasks, which change the counters of the queue too; others
-- call it for producers and times, which change none of these. `_priorities` has the priority of a task that can be
-- taken now for each name, and no such task was ready before `_ready_at`.
CREATE FUNCTION tenure.regroup(
    _q tenure.queue, _names bytea[], _live bigint, _waiting bigint, _leased bigint, _reserved bigint DEFAULT 0,
    _producers bigint DEFAULT 0, _priorities bigint[] DEFAULT NULL, _ready_at bigint DEFAULT NULL, _id bigint DEFAULT 0
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    changes record;
    most bigint := 256 + 2 * _q.groups;
BEGIN
    _q.has_groups := true;
    WITH named AS (
        SELECT u.name, count(*) AS n, array_agg(u.priority) AS priorities
        FROM unnest(_names, _priorities) u (name, priority) GROUP BY u.name
    ), counted AS (
        SELECT n.name, n.priorities, g.place, g.live AS former_live, coalesce(g.takeable, 0) AS former, g.pinned,
            g.fronts, g.starts_at, CASE WHEN g.line > 0 THEN g.rank END AS tag,
            coalesce(g.live, 0) + n.n * _live AS live, coalesce(g.waiting, 0) + n.n * _waiting AS waiting,
            coalesce(g.leased, 0) + n.n * _leased AS leased, coalesce(g.reserved, 0) + n.n * _reserved AS reserved,
            coalesce(g.producers, 0) + n.n * _producers AS producers,
            coalesce(g.cost, CASE WHEN _q.weights = 0 THEN 1 ELSE tenure.cost_of(_q, n.name) END) AS cost,
            CASE WHEN g.pinned > 0 THEN (
                SELECT t.delayed OR coalesce(t.session = 0, false) FROM tenure.task t
                WHERE t.queue = _q.name AND t.id = g.pinned
            ) END AS pinned_is_delayed
        FROM named n LEFT JOIN LATERAL (
            SELECT o.ctid AS place, o.* FROM tenure.task_group o
            WHERE o.queue = _q.name AND o.period = _q.period AND o.name = n.name ORDER BY o.page DESC LIMIT 1
        ) g ON true OFFSET 0
    ), timed AS (
        SELECT c.*, c.live + c.reserved + c.producers > 0 AS is_used,
            CASE WHEN c.starts_at IS NOT NULL THEN c.starts_at + tenure.slack_of(_q.group_rate) END AS until,
            tenure.takeable(_q.per_group, c.name, c.waiting, c.leased, coalesce(
                c.pinned_is_delayed AND _q.per_group = 1 AND _q.keep_order, false)) AS free
        FROM counted c OFFSET 0
    ), lined AS (
        SELECT t.*, CASE WHEN t.free > 0 THEN CASE WHEN t.starts_at > _q.at + 1 THEN -1 ELSE _q.round END
            WHEN NOT t.is_used AND t.until > _q.at THEN -2 ELSE 0 END AS line
        FROM timed t OFFSET 0
    ), now AS (
        SELECT l.*, l.is_used OR l.line < 0 OR _q.named < most AS stays,
            CASE WHEN l.line <= 0 THEN 0 WHEN _q.group_rate IS NULL OR l.name = '' THEN l.free ELSE 1 END AS takeable,
            CASE l.line WHEN 0 THEN NULL WHEN -1 THEN l.starts_at WHEN -2 THEN l.until
                ELSE coalesce(l.tag, _q.virtual_time + l.cost) END AS rank
        FROM lined l
    ), gone AS (
        DELETE FROM tenure.task_group g WHERE g.ctid = ANY (ARRAY(SELECT n.place FROM now n WHERE NOT n.stays))
    ), came AS (
        INSERT INTO tenure.task_group
            (queue, period, name, live, waiting, leased, takeable, reserved, producers, cost, line, rank, fronts)
        SELECT _q.name, _q.period, n.name, n.live, n.waiting, n.leased, n.takeable, n.reserved, n.producers,
            n.cost, n.line, n.rank,
            CASE WHEN n.waiting = 0 THEN '{}' ELSE tenure.with_fronts('{}', n.priorities, _ready_at, _id) END
        FROM now n WHERE n.place IS NULL AND n.stays
    ), changed AS (
        UPDATE tenure.task_group g SET live = n.live, waiting = n.waiting, leased = n.leased, takeable = n.takeable,
            pinned = CASE WHEN n.pinned_is_delayed IS NULL THEN 0 ELSE n.pinned END, reserved = n.reserved,
            producers = n.producers, line = n.line, rank = n.rank,
            fronts = CASE WHEN n.waiting = 0 THEN '{}'
                WHEN _ready_at IS NULL OR n.fronts[1] = ALL (n.priorities) AND n.fronts[2] < _ready_at THEN n.fronts
                ELSE tenure.with_fronts(n.fronts, n.priorities, _ready_at, _id) END,
            page = CASE WHEN g.changes % 32 = 31 THEN nextval('tenure.last_made') ELSE g.page END,
            changes = g.changes + 1
        FROM now n WHERE n.stays AND n.place IS NOT NULL AND g.ctid = n.place
    )
    SELECT sum(n.takeable - n.former) AS takeable,
        min(n.rank) FILTER (WHERE n.line = -1) AS closed, min(n.rank) FILTER (WHERE n.line = -2) AS idle,
        sum((n.live > 0)::int - (coalesce(n.former_live, 0) > 0)::int) FILTER (WHERE n.name <> '') AS groups,
        sum(n.stays::int - (n.place IS NOT NULL)::int) FILTER (WHERE n.name <> '') AS named,
        bool_or(n.reserved + n.producers > 0) AS are_awaited
    INTO changes FROM now n;
    _q.takeable := _q.takeable + coalesce(changes.takeable, 0);
    _q.first_closed := least(_q.first_closed, changes.closed);
    _q.first_idle := least(_q.first_idle, changes.idle);
    _q.groups := _q.groups + coalesce(changes.groups, 0);
    _q.named := _q.named + coalesce(changes.named, 0);
    IF _q.groups = 0 AND _q.reserved = 0 AND _q.producers = 0 AND NOT changes.are_awaited THEN
        _q := tenure.end_turns(_q);
    END IF;
    RETURN _q;
END $$;

-- No group has a task or a producer: groups take no turns, until a task with a group comes. The period ends with the
-- last idle group.
CREATE FUNCTION tenure.end_turns(_q tenure.queue) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    rest record;
BEGIN
    IF _q.round > 0 THEN
        DELETE FROM tenure.task_group g WHERE g.ctid = tenure.place_of_group(_q, '')
        RETURNING g.fronts, g.waiting INTO rest;
        _q.fronts := CASE WHEN rest.waiting > 0 THEN rest.fronts ELSE '{}' END;
        _q.round := 0;
        _q.virtual_time := 0;
        _q.first_closed := NULL;
    END IF;
    IF _q.first_idle IS NULL THEN
        DELETE FROM tenure.task_group g WHERE g.queue = _q.name AND g.period = _q.period;
        _q.period := nextval('tenure.last_made');
        _q.named := 0;
        _q.held_until := NULL;
    END IF;
    RETURN _q;
END $$;

-- Tasks are put whose groups, one each, have no rows. False if some have, or are the same.
CREATE FUNCTION tenure.put_only_tasks(
    _q tenure.queue, _names bytea[], _priorities bigint[], _ready_at bigint, _id bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    WITH absent AS (
        SELECT u.name, u.priority FROM unnest(_names, _priorities) u (name, priority)
        WHERE u.name <> '' AND (SELECT count(DISTINCT n) FROM unnest(_names) n) = cardinality(_names)
            AND (SELECT o.ctid FROM tenure.task_group o
                WHERE o.queue = _q.name AND o.period = _q.period AND o.name = u.name LIMIT 1) IS NULL
    ), fit AS (
        SELECT count(DISTINCT a.name) = cardinality(_names) AS ok FROM absent a
    )
    INSERT INTO tenure.task_group
        (queue, period, name, live, waiting, leased, takeable, cost, line, rank, fronts)
    SELECT _q.name, _q.period, a.name, 1, 1, 0, 1, c.cost, _q.round, _q.virtual_time + c.cost,
        ARRAY[a.priority, _ready_at, _id]
    FROM fit CROSS JOIN absent a CROSS JOIN LATERAL (
        SELECT CASE WHEN _q.weights = 0 THEN 1 ELSE tenure.cost_of(_q, a.name) END AS cost OFFSET 0
    ) c
    WHERE fit.ok;
    RETURN FOUND;
END $$;

-- The next tasks in turn are leased, each the only one of its group. -> where they are, in order, and the last tag;
-- NULL if the marks of a group do not lead to its task
CREATE FUNCTION tenure.take_only_tasks(_q tenure.queue, _want bigint, OUT _places tid[], OUT _reached double precision)
LANGUAGE plpgsql AS $$
BEGIN
    WITH first AS (
        SELECT g.name, g.rank AS tag, g.ctid AS place, (
            SELECT o.ctid FROM tenure.task o
            WHERE o.queue = _q.name AND o.group_name = g.name AND o.session IS NULL AND NOT o.delayed
                AND o.priority = g.fronts[1] AND (o.ready_at, o.id) >= (g.fronts[2], g.fronts[3])
            ORDER BY o.ready_at, o.id LIMIT 1
        ) AS task
        FROM tenure.task_group g
        WHERE g.queue = _q.name AND g.line = _q.round AND g.rank >= _q.virtual_time AND g.rank IS NOT NULL
        ORDER BY g.rank, g.name LIMIT _want
    ), sum AS (
        -- the marks of a group may be older than its task
        SELECT array_agg(f.task ORDER BY f.tag, f.name) AS places, max(f.tag) AS reached,
            bool_and(f.task IS NOT NULL) AS are_found
        FROM first f
    ), turned AS (
        UPDATE tenure.task_group g SET waiting = 0, leased = 1, takeable = 0, line = 0, rank = NULL, fronts = '{}',
            page = nextval('tenure.last_made'), changes = 0
        WHERE g.ctid = ANY (ARRAY(SELECT f.place FROM first f)) AND (SELECT s.are_found FROM sum s)
    )
    SELECT s.places, s.reached INTO _places, _reached FROM sum s WHERE s.are_found;
END $$;

-- Leased tasks end, each the only one of its group.
CREATE FUNCTION tenure.end_only_tasks(_q tenure.queue, _names bytea[]) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    most bigint := 256 + 2 * _q.groups;
    gone bigint;
BEGIN
    _q.groups := _q.groups - cardinality(_names);
    IF _q.groups = 0 THEN
        RETURN tenure.end_turns(_q);
    END IF;
    WITH these AS (
        SELECT (SELECT o.ctid FROM tenure.task_group o
            WHERE o.queue = _q.name AND o.period = _q.period AND o.name = u.name ORDER BY o.page DESC LIMIT 1) AS place
        FROM unnest(_names) u (name)
    ), kept AS (
        UPDATE tenure.task_group g SET live = 0, leased = 0, pinned = 0,
            page = CASE WHEN g.changes % 32 = 31 THEN nextval('tenure.last_made') ELSE g.page END,
            changes = g.changes + 1
        WHERE _q.named < most AND g.ctid = ANY (ARRAY(SELECT t.place FROM these t))
    )
    DELETE FROM tenure.task_group g WHERE _q.named >= most AND g.ctid = ANY (ARRAY(SELECT t.place FROM these t));
    GET DIAGNOSTICS gone = ROW_COUNT;
    _q.named := _q.named - gone;
    RETURN _q;
END $$;

-- `_n` tasks changed, each in one of these groups (NULL: none has one): so many more or less of each are unfinished,
-- waiting, delayed and leased. Call it behind the change of their rows. It keeps the order of what follows: first the
-- groups, since those without a group become one with the counters as they were, then the counters. Of tasks that can
-- be taken now it has the priorities, and a time and an id before which none of them is.
CREATE FUNCTION tenure.count_tasks(
    _q tenure.queue, _groups bytea[], _n bigint, _live int, _waiting int, _delayed int, _leased int,
    _priorities bigint[] DEFAULT NULL, _ready_at bigint DEFAULT NULL, _id bigint DEFAULT 0
) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    are_only boolean;
BEGIN
    IF _q.round > 0 OR '' <> ANY (_groups) THEN
        IF _q.round = 0 THEN
            _q := tenure.begin_turns(_q);
        END IF;
        _q.first_grouped := least(_q.first_grouped, _ready_at);
        -- each task is the only one of its group
        are_only := _live <> 0 AND _q.live = _q.groups AND tenure.is_timeless(_q) AND _q.producers = 0
            AND _q.reserved = 0 AND cardinality(_groups) > 0;
        IF are_only AND _leased = -1 THEN
            _q := tenure.end_only_tasks(_q, _groups);
        ELSIF are_only AND _waiting = 1 AND tenure.put_only_tasks(_q, _groups, _priorities, _ready_at, _id) THEN
            _q.groups := _q.groups + _n;
            _q.named := _q.named + _n;
            _q.takeable := _q.takeable + _n;
        ELSE
            _q := tenure.regroup(_q, _groups, _live, _waiting, _leased, 0, 0, _priorities, _ready_at, _id);
        END IF;
    ELSE
        IF _ready_at IS NOT NULL AND (_q.fronts[1] = ALL (_priorities) AND _q.fronts[2] < _ready_at) IS NOT TRUE THEN
            _q.fronts := tenure.with_fronts(_q.fronts, _priorities, _ready_at, _id);
        END IF;
        _q.takeable := _q.takeable + _n * _waiting;
    END IF;
    _q.live := _q.live + _n * _live;
    _q.waiting := _q.waiting + _n * _waiting;
    _q.delayed := _q.delayed + _n * _delayed;
    RETURN _q;
END $$;

-- A task that was tried goes back: it stays ahead of its group where order is kept, unless it is a child: the name of
-- its group begins with a zero byte. Its `regroup` follows.
CREATE FUNCTION tenure.pin(_q tenure.queue, _group bytea, _id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF _group >= '\x01' AND _q.per_group = 1 AND _q.keep_order THEN
        UPDATE tenure.task_group g SET pinned = _id WHERE g.ctid = tenure.place_of_group(_q, _group);
    END IF;
END $$;

-- The turn of a task that went back untried was none.
CREATE FUNCTION tenure.refund_turn(_q tenure.queue, _group bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenure.task_group g SET rank = greatest(_q.virtual_time, g.rank - g.cost)
    WHERE g.ctid = tenure.place_of_group(_q, _group) AND g.line > 0;
END $$;

-- The groups of the next `_want` tasks have had their turns. -> the queue, and where these tasks are, in order
--
-- A turn changes the tag of its own group only. So the tags that each group will have are known beforehand, and the
-- order of the turns is that of all these tags. Behind the first `_want` groups nothing matters.
CREATE FUNCTION tenure.take_turns(
    _now bigint, INOUT _q tenure.queue, _want bigint, _aging bigint, OUT _places tid[], OUT _again bigint
) LANGUAGE plpgsql AS $$
DECLARE
    sums record;
BEGIN
    _again := 0;
    IF _q.live = _q.groups AND tenure.is_timeless(_q) THEN
        sums := tenure.take_only_tasks(_q, _want);
        IF sums._places IS NOT NULL THEN
            _places := sums._places;
            _q.virtual_time := sums._reached;
            _q.takeable := _q.takeable - cardinality(_places);
            RETURN;
        END IF;
    END IF;
    WITH RECURSIVE first AS (
        -- no tag is below the virtual time: so the index entries of former tags are passed over
        SELECT g.name, g.rank AS tag, g.cost, g.waiting, g.leased, g.takeable, g.pinned, g.fronts, g.starts_at,
            g.ctid AS place, CASE WHEN _q.group_rate IS NULL OR g.name = '' THEN g.takeable ELSE least(
                tenure.takeable(_q.per_group, g.name, g.waiting, g.leased, false),
                tenure.possible_starts(_q.group_rate, coalesce(g.starts_at, 0), _now)
            ) END AS most
        FROM tenure.task_group g
        WHERE g.queue = _q.name AND g.line = _q.round AND g.rank >= _q.virtual_time AND g.rank IS NOT NULL
        ORDER BY g.rank, g.name LIMIT _want
    ), last AS (
        SELECT f.tag, f.name FROM first f ORDER BY f.tag, f.name OFFSET _want - 1
    ), turn AS (
        SELECT f.*, 1::bigint AS n FROM first f
        UNION ALL
        SELECT t.name, t.tag + t.cost, t.cost, t.waiting, t.leased, t.takeable, t.pinned, t.fronts, t.starts_at,
            t.place, t.most, t.n + 1
        FROM turn t
        WHERE t.n < least(t.most, _want)
            AND NOT EXISTS (SELECT FROM last l WHERE (t.tag + t.cost, t.name) > (l.tag, l.name))
    ), taken AS (
        SELECT p.name, p.place, p.cost, p.takeable AS former, p.pinned, p.fronts,
            p.pinned > 0 AND _q.per_group = 1 AND _q.keep_order AS is_pinned,
            array_agg(p.tag ORDER BY p.n) AS tags, max(p.tag) AS last, count(*) AS count,
            p.waiting - count(*) AS waiting, p.leased + count(*) AS leased,
            tenure.takeable(_q.per_group, p.name, p.waiting - count(*), p.leased + count(*), false) AS free,
            CASE WHEN _q.group_rate IS NULL OR p.name = '' THEN p.starts_at
                ELSE tenure.start_after(_q.group_rate, coalesce(p.starts_at, 0), _now, count(*)) END AS starts_at
        FROM (SELECT * FROM turn t ORDER BY t.tag, t.name, t.n LIMIT _want) p
        GROUP BY p.name, p.place, p.cost, p.waiting, p.leased, p.takeable, p.pinned, p.fronts, p.starts_at
    ), lined AS (
        SELECT t.*, CASE WHEN t.free = 0 THEN 0 WHEN t.starts_at > _now + 1 THEN -1 ELSE _q.round END AS line
        FROM taken t
    ), chosen AS (
        -- as in `next_tasks`, which would take longer for many groups
        SELECT t.*, n.places, ARRAY[t.fronts[n.last[1]], n.last[2], n.last[3] + 1] || t.fronts[n.last[1] + 3:] AS behind
        FROM lined t CROSS JOIN LATERAL (
            SELECT array_agg(f.place) AS places, max(ARRAY[f.i, f.ready_at, f.id]) AS last FROM (
                SELECT s.i, p.* FROM generate_series(1, cardinality(t.fronts), 3) s (i) CROSS JOIN LATERAL (
                    SELECT o.ctid AS place, o.ready_at, o.id FROM tenure.task o
                    WHERE o.queue = _q.name AND o.group_name = t.name AND o.session IS NULL AND NOT o.delayed
                        AND o.priority = t.fronts[s.i]
                        AND (o.ready_at, o.id) >= (t.fronts[s.i + 1], t.fronts[s.i + 2])
                    ORDER BY o.ready_at, o.id LIMIT t.count
                ) p LIMIT t.count
            ) f
        ) n
        WHERE NOT t.is_pinned AND _aging IS NULL AND t.fronts IS NOT NULL
        UNION ALL
        SELECT t.*, n._places, n._fronts FROM lined t
        CROSS JOIN LATERAL tenure.next_tasks(_now, t.fronts, _q.name, t.name, t.count, _aging) n
        WHERE NOT t.is_pinned AND (_aging IS NOT NULL OR t.fronts IS NULL)
        UNION ALL
        SELECT t.*, ARRAY[b.ctid], t.fronts FROM lined t
        CROSS JOIN LATERAL (SELECT ctid FROM tenure.task WHERE queue = _q.name AND id = t.pinned LIMIT 1) b
        WHERE t.is_pinned
    ), now AS (
        SELECT c.*,
            CASE WHEN c.line <= 0 THEN 0 WHEN _q.group_rate IS NULL OR c.name = '' THEN c.free ELSE 1 END AS takeable
        FROM chosen c
    ), turned AS (
        UPDATE tenure.task_group g SET waiting = c.waiting, leased = c.leased, takeable = c.takeable, line = c.line,
            rank = CASE c.line WHEN 0 THEN NULL WHEN -1 THEN c.starts_at ELSE c.last + c.cost END,
            starts_at = c.starts_at, paced_at = CASE WHEN _q.group_rate IS NULL THEN g.paced_at END,
            fronts = CASE WHEN c.waiting = 0 THEN '{}' ELSE c.behind END,
            page = nextval('tenure.last_made'), changes = 0
        FROM now c WHERE g.ctid = c.place
    )
    SELECT array_agg(f.place ORDER BY t.tags[f.n], t.name, f.n) AS places,
        max(t.last) AS reached, min(t.starts_at) FILTER (WHERE t.line = -1) AS closed,
        sum(t.takeable - t.former) FILTER (WHERE f.n = 1) AS takeable,
        sum(t.count - 1 + t.takeable) FILTER (WHERE f.n = 1 AND t.name <> '' AND _q.group_rate IS NOT NULL) AS again
    INTO sums
    FROM now t CROSS JOIN LATERAL unnest(t.places) WITH ORDINALITY f (place, n);
    _places := sums.places;
    _q.virtual_time := sums.reached;
    _q.takeable := _q.takeable + sums.takeable;
    _q.first_closed := least(_q.first_closed, sums.closed);
    _again := coalesce(sums.again, 0);
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
            SELECT * FROM tenure.task_group o WHERE o.queue = _q.name AND o.period = _q.period AND o.name = c.name
            ORDER BY o.page DESC LIMIT 1
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
        IF _q.round = 0 THEN
            _q := tenure.begin_turns(_q);
        END IF;
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
        EXIT WHEN _q.round = 0;
        LOOP
            SELECT * INTO head FROM tenure.producer p
            WHERE p.queue = _q.name AND p.for_group AND p.group_name = wanted ORDER BY p.ordinal LIMIT 1;
            EXIT WHEN NOT FOUND;
            SELECT g.live + g.reserved INTO taken FROM tenure.task_group g
            WHERE g.ctid = tenure.place_of_group(_q, wanted);
            EXIT WHEN _q.group_size > 0 AND taken > 0 AND head.count > _q.group_size - taken;
            _q.ordinal := _q.ordinal + 1;
            UPDATE tenure.producer p SET for_group = false, ordinal = _q.ordinal
            WHERE p.queue = _q.name AND p.name = head.name;
            UPDATE tenure.task_group g SET reserved = g.reserved + head.count, producers = g.producers - 1
            WHERE g.ctid = tenure.place_of_group(_q, wanted);
        END LOOP;
    END LOOP;
    RETURN tenure.admit_producers(_q);
END $$;

-- settings and figures

-- The value of a field that nobody has named, as JSON.
CREATE FUNCTION tenure.default_of(_name text) RETURNS text LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE _name WHEN 'max_size' THEN '10000' WHEN 'max_deliveries' THEN '20' WHEN 'dead' THEN '15552000.0'
        WHEN 'results' THEN '3600.0' WHEN 'payloads' THEN 'false' WHEN 'tracebacks' THEN 'true' WHEN 'hold' THEN 'true'
        WHEN 'group_limit' THEN '0' WHEN 'group_size' THEN '0' WHEN 'weights' THEN '[]' ELSE 'null' END;
END;

-- The value of a field of the record, as JSON; NULL for null.
CREATE FUNCTION tenure.setting_of(_queue bytea, _name text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN nullif(coalesce((SELECT s.value FROM tenure.setting s WHERE s.queue = _queue AND s.name = _name),
        tenure.default_of(_name)), 'null');
END $$;

CREATE FUNCTION tenure.setting_duration(_queue bytea, _name text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN round(tenure.setting_of(_queue, _name)::numeric * 1000000);
END $$;

CREATE FUNCTION tenure.setting_rate(_queue bytea, _name text) RETURNS double precision[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    value jsonb := tenure.setting_of(_queue, _name)::jsonb;
BEGIN
    RETURN CASE WHEN value IS NOT NULL THEN ARRAY[
        (value ->> 0)::double precision * 1000000, (value ->> 1)::double precision] END;
END $$;

-- The queue has the settings of the record of a queue, or the defaults if that is NULL; but for rates and weights.
CREATE FUNCTION tenure.with_record(_q tenure.queue, _queue bytea) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    _q.max_size := tenure.setting_of(_queue, 'max_size')::bigint;
    _q.aging := tenure.setting_duration(_queue, 'aging');
    _q.max_deliveries := tenure.setting_of(_queue, 'max_deliveries')::bigint;
    _q.dead_ttl := tenure.setting_duration(_queue, 'dead');
    _q.keep_payloads := tenure.setting_of(_queue, 'payloads')::boolean;
    _q.has_groups := true;
    _q.per_group := tenure.setting_of(_queue, 'group_limit')::bigint;
    _q.group_size := tenure.setting_of(_queue, 'group_size')::bigint;
    _q.keep_order := tenure.setting_of(_queue, 'hold')::boolean;
    RETURN _q;
END $$;

-- The queue has the settings of its record, and these costs of a turn, or as before if that is NULL.
CREATE FUNCTION tenure.have_settings(_q tenure.queue, _groups bytea[], _costs double precision[])
RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    before bigint := _q.takeable;
    was_closed boolean := _q.closed_until IS NOT NULL;
    due bigint := tenure.next_due(_q);
    former tenure.queue := _q;
BEGIN
    _q := tenure.with_record(_q, _q.name);
    IF _groups IS NOT NULL THEN
        _q.weights := cardinality(_groups);
        DELETE FROM tenure.turn t WHERE t.queue = _q.name;
        INSERT INTO tenure.turn (queue, name, cost)
        SELECT _q.name, u.name, u.cost FROM unnest(_groups, _costs) u (name, cost);
    END IF;
    _q := tenure.set_rates(_q, tenure.setting_rate(_q.name, 'rate'), tenure.setting_rate(_q.name, 'group_rate'));
    IF _q.named > 0 THEN
        UPDATE tenure.task_group g SET cost = coalesce(t.cost, 1)
        FROM tenure.task_group o LEFT JOIN tenure.turn t ON t.queue = o.queue AND t.name = o.name
        WHERE _groups IS NOT NULL AND g.ctid = o.ctid AND o.queue = _q.name AND o.period = _q.period
            AND g.cost <> coalesce(t.cost, 1);
        IF (former.per_group, former.keep_order) <> (_q.per_group, _q.keep_order)
                OR former.group_rate IS DISTINCT FROM _q.group_rate THEN
            _q := tenure.regroup(_q, ARRAY(
                SELECT g.name FROM tenure.task_group g WHERE g.queue = _q.name AND g.period = _q.period), 0, 0, 0);
        END IF;
        IF former.group_size <> _q.group_size THEN
            _q := tenure.make_room(_q, ARRAY(
                SELECT g.name FROM tenure.task_group g
                WHERE g.queue = _q.name AND g.period = _q.period AND g.producers > 0 ORDER BY g.name));
        END IF;
    END IF;
    IF _q.producers > 0 THEN
        _q := tenure.admit_producers(_q);
    END IF;
    _q := tenure.offer_tasks(
        _q, CASE WHEN was_closed THEN _q.waiting ELSE _q.takeable - before END);
    RETURN tenure.offer_sooner(_q, due);
END $$;

-- The names of fields, their values, and the groups with their costs of a turn if those are named. `_missing`: only fields
-- that are not in the record.
-- -> configured(revision), then setting(age; name, value, who set it) of each; more
CREATE FUNCTION tenure.configure(
    _clock bigint, _cap bigint, _queue bytea, _by bytea, _names text[], _values text[], _missing boolean,
    _groups bytea[], _costs double precision[]
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'queue', _queue);
    queue tenure.queue;
    changed text[];
BEGIN
    IF now IS NULL THEN
        RETURN NEXT tenure.reply('more');
        RETURN;
    END IF;
    queue := tenure.read_queue(now, _queue);
    IF coalesce(queue.revision, 0) = 0 AND cardinality(_names) > 0 THEN
        DELETE FROM tenure.setting s WHERE s.queue = _queue;
    END IF;
    changed := ARRAY(
        SELECT n.name FROM unnest(_names, _values) n (name, value)
        LEFT JOIN tenure.setting s ON s.queue = _queue AND s.name = n.name
        WHERE n.value <> coalesce(s.value, tenure.default_of(n.name)) AND NOT (s.name IS NOT NULL AND _missing));
    IF cardinality(changed) > 0 THEN
        queue := tenure.use_queue(now, _queue);
        INSERT INTO tenure.setting AS s (queue, name, value, since, set_by)
        SELECT _queue, n.name, n.value, now, _by FROM unnest(_names, _values) n (name, value) WHERE n.name = ANY (changed)
        ON CONFLICT ON CONSTRAINT setting_pkey
        DO UPDATE SET value = excluded.value, since = excluded.since, set_by = excluded.set_by;
        queue.revision := tenure.new_tokens(now, 1);
        queue := tenure.have_settings(queue, CASE WHEN 'weights' = ANY (changed) THEN _groups END, _costs);
        PERFORM tenure.save_queue(now, tenure.keep_record(now, queue));
    ELSIF cardinality(_names) > 0 AND (tenure.keep_record(now, queue)).keep_until > queue.keep_until THEN
        PERFORM tenure.save_queue(now, tenure.keep_record(now, queue));
    END IF;
    RETURN NEXT ROW('configured', ARRAY[coalesce(queue.revision, 0)], NULL)::tenure.answer;
    IF queue.revision > 0 THEN
        RETURN QUERY SELECT 'setting', ARRAY[now - s.since],
            ARRAY[convert_to(s.name, 'UTF8'), convert_to(s.value, 'UTF8'), s.set_by]
            FROM tenure.setting s WHERE s.queue = _queue ORDER BY s.name;
    END IF;
END $$;
