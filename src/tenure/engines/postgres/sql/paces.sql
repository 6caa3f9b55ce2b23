-- Paces: when the next task of a group, or of a queue, may start: `rules/_paces.py`. A rate has the microseconds between
-- two starts and the burst.
-- Needs: groups

-- The number of tasks that may start now, at a rate (NULL: none).
CREATE FUNCTION tenure.possible_starts(_rate double precision[], _starts_at double precision, _now bigint)
RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    every double precision := coalesce(_rate[1], 0);
    first double precision := greatest(_starts_at, _now - (coalesce(_rate[2], 1) - 1) * every);
BEGIN
    IF first > _now + 1 THEN
        RETURN 0;
    END IF;
    RETURN CASE WHEN every = 0 THEN 'infinity'::float8 ELSE 1 + floor((_now - first + 1) / every) END;
END $$;

-- The time from which the next task may start, once `_count` tasks have started now.
CREATE FUNCTION tenure.start_after(_rate double precision[], _starts_at double precision, _now bigint, _count bigint)
RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN greatest(_starts_at, _now - (_rate[2] - 1) * _rate[1]) + _count * _rate[1];
END $$;

-- The time until a task may start.
CREATE FUNCTION tenure.starts_in(_now bigint, _starts_at double precision) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _starts_at > _now + 1 THEN ceil(_starts_at - _now)::bigint ELSE 0 END;

-- A rate in seconds, for the answer.
CREATE FUNCTION tenure.shown_rate(_rate double precision[]) RETURNS bytea LANGUAGE sql STABLE
    RETURN convert_to(_rate[1] / 1000000 || ' ' || _rate[2], 'UTF8');

-- The time for which a pace has an effect after the next start.
CREATE FUNCTION tenure.slack_of(_rate double precision[]) RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN coalesce((_rate[2] - 1) * _rate[1], 0);
END $$;

-- Check again whether a task of the queue may start.
CREATE FUNCTION tenure.open_queue(_q tenure.queue) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    _q.has_groups := true;
    IF _q.starts_at + tenure.slack_of(_q.rate) <= _q.at THEN
        _q.starts_at := NULL;
        _q.paced_at := NULL;
    END IF;
    _q.open := NULL;
    IF _q.rate IS NOT NULL OR _q.starts_at IS NOT NULL THEN
        _q.open := least(1, tenure.possible_starts(_q.rate, coalesce(_q.starts_at, 0), _q.at))::bigint;
    END IF;
    RETURN _q;
END $$;

-- The place of a group's pace.
CREATE FUNCTION tenure.place_of_pace(_q tenure.queue, _name bytea) RETURNS tid STABLE LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(_q.paces, 0) = 0 THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT p.ctid FROM tenure.pace p
        WHERE p.queue = _q.name AND p.name = _name AND p.starts_at >= least(_q.first_pace, _q.first_old)
        ORDER BY p.starts_at DESC LIMIT 1);
END $$;

-- How many tasks of these groups can be taken now: none that may not start yet, and of a group with a rate at most one.
-- The pace of a group whose row has gone is awaited no more.
CREATE FUNCTION tenure.hold_paced(_q tenure.queue, _names bytea[]) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    sums record;
BEGIN
    WITH counted AS (
        SELECT g.ctid AS place, g.name, g.waiting, g.held, g.cost, p.ctid AS pace, p.starts_at, p.awaited,
            coalesce(tenure.takeable(_q.per_group, g.name, g.waiting, g.leased, _q.per_group = 1 AND _q.keep_order
                AND g.pinned > 0 AND (SELECT t.delayed OR coalesce(t.session = 0, false) FROM tenure.task t
                    WHERE t.queue = _q.name AND t.id = g.pinned)), 0) AS free
        FROM (SELECT DISTINCT u.name FROM unnest(_names) u (name) WHERE u.name <> '') n
        CROSS JOIN LATERAL (SELECT tenure.place_of_group(_q, n.name) AS place OFFSET 0) o
        LEFT JOIN tenure.task_group g ON g.ctid = o.place
        CROSS JOIN LATERAL (SELECT tenure.place_of_pace(_q, n.name) AS place OFFSET 0) s
        LEFT JOIN tenure.pace p ON p.ctid = s.place
    ), looked AS (
        SELECT c.*, c.free > 0 AND coalesce(tenure.possible_starts(_q.group_rate, c.starts_at, _q.at) = 0, false)
            AS waits
        FROM counted c
    ), limited AS (
        SELECT l.*, CASE WHEN l.waits THEN 0 WHEN _q.group_rate IS NULL THEN l.free ELSE least(l.free, 1) END AS now_free
        FROM looked l
    ), held AS (
        UPDATE tenure.task_group g SET held = l.waiting - l.now_free,
            tag = CASE WHEN l.now_free > 0 THEN coalesce(g.tag, _q.virtual_time + l.cost) END
        FROM limited l WHERE g.ctid = l.place AND l.now_free <> l.waiting - l.held
    ), awaited AS (
        UPDATE tenure.pace p SET awaited = l.waits FROM limited l
        WHERE p.ctid = l.pace AND l.awaited <> l.waits
    )
    SELECT sum(l.waiting - l.now_free - l.held) AS held, min(l.starts_at) FILTER (WHERE l.waits) AS first_pace,
        min(l.starts_at) FILTER (WHERE NOT l.waits) AS first_old
    INTO sums FROM limited l;
    _q.held := _q.held + coalesce(sums.held, 0);
    _q.first_pace := least(_q.first_pace, sums.first_pace);
    _q.first_old := least(_q.first_old, sums.first_old);
    RETURN _q;
END $$;

-- Open the queue and the groups whose time has come, and forget paces without an effect.
CREATE FUNCTION tenure.pass_time(_q tenure.queue, _cap bigint) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    due record;
    old record;
    before double precision := _q.at - tenure.slack_of(_q.group_rate);
BEGIN
    _q := tenure.open_queue(_q);
    IF _q.first_pace <= _q.at + 1 THEN
        WITH due AS (
            UPDATE tenure.pace p SET awaited = false WHERE p.ctid = ANY (ARRAY(
                SELECT o.ctid FROM tenure.pace o
                WHERE o.queue = _q.name AND o.awaited AND o.starts_at >= _q.first_pace AND o.starts_at <= _q.at + 1
                ORDER BY o.starts_at, o.name LIMIT _cap
            )) RETURNING p.name, p.starts_at
        )
        SELECT array_agg(d.name) AS names, min(d.starts_at) AS first,
            max(d.starts_at) AS last, count(*) AS n
        INTO due FROM due d;
        _q.first_old := least(_q.first_old, due.first);
        _q.first_pace := CASE WHEN due.n = _cap THEN due.last ELSE _q.at + 1 END;
        IF due.n > 0 AND _q.named > 0 THEN
            _q := tenure.hold_paced(_q, due.names);
        END IF;
        _q.first_pace := (SELECT o.starts_at FROM tenure.pace o
            WHERE o.queue = _q.name AND o.awaited AND o.starts_at >= _q.first_pace ORDER BY o.starts_at LIMIT 1);
    END IF;
    IF _q.first_old <= before THEN
        WITH gone AS (
            DELETE FROM tenure.pace p WHERE p.ctid = ANY (ARRAY(
                SELECT o.ctid FROM tenure.pace o
                WHERE o.queue = _q.name AND o.starts_at >= _q.first_old AND o.starts_at <= before AND NOT o.awaited
                ORDER BY o.starts_at, o.name LIMIT _cap
            )) RETURNING p.starts_at
        )
        SELECT max(g.starts_at) AS last, count(*) AS n INTO old FROM gone g;
        _q.paces := _q.paces - old.n;
        _q.first_old := CASE WHEN old.n = _cap THEN old.last ELSE before END;
        _q.first_old := (SELECT o.starts_at FROM tenure.pace o
            WHERE o.queue = _q.name AND NOT o.awaited AND o.starts_at >= _q.first_old ORDER BY o.starts_at LIMIT 1);
    END IF;
    RETURN _q;
END $$;

-- Tasks of these groups have started, `_counts` of each, and groups have a rate. The waiting tasks are counted as by
-- `hold_paced`. -> the queue, and how often a group could be taken from again
CREATE FUNCTION tenure.start_in_groups(
    INOUT _q tenure.queue, _names bytea[], _counts bigint[], OUT _again bigint
) LANGUAGE plpgsql AS $$
DECLARE
    sums record;
BEGIN
    WITH taken AS (
        SELECT u.name, u.count, g.ctid AS place, g.waiting, g.held, s.place AS pace,
            tenure.start_after(_q.group_rate, coalesce(p.starts_at, 0), _q.at, u.count) AS starts_at
        FROM unnest(_names, _counts) u (name, count)
        CROSS JOIN LATERAL (SELECT tenure.place_of_group(_q, u.name) AS place OFFSET 0) o
        JOIN tenure.task_group g ON g.ctid = o.place
        CROSS JOIN LATERAL (SELECT tenure.place_of_pace(_q, u.name) AS place OFFSET 0) s
        LEFT JOIN tenure.pace p ON p.ctid = s.place WHERE u.name <> ''
    ), looked AS (
        SELECT t.*, t.waiting > t.held AND tenure.possible_starts(_q.group_rate, t.starts_at, _q.at) = 0 AS waits
        FROM taken t
    ), limited AS (
        SELECT l.*, CASE WHEN l.waits THEN 0 ELSE least(l.waiting - l.held, 1) END AS now_free FROM looked l
    ), held AS (
        UPDATE tenure.task_group g SET held = l.waiting - l.now_free, tag = CASE WHEN l.now_free > 0 THEN g.tag END
        FROM limited l WHERE g.ctid = l.place AND l.now_free <> l.waiting - l.held
    ), changed AS (
        UPDATE tenure.pace p SET starts_at = l.starts_at, awaited = l.waits, paced_at = NULL FROM limited l WHERE p.ctid = l.pace
    ), made AS (
        INSERT INTO tenure.pace (queue, name, starts_at, awaited)
        SELECT _q.name, l.name, l.starts_at, l.waits FROM limited l WHERE l.pace IS NULL
    )
    SELECT sum(l.waiting - l.now_free - l.held) AS held, count(*) FILTER (WHERE l.pace IS NULL) AS new,
        sum(l.count - 1 + l.now_free) AS again, min(l.starts_at) FILTER (WHERE l.waits) AS first_pace,
        min(l.starts_at) FILTER (WHERE NOT l.waits) AS first_old
    INTO sums FROM limited l;
    _again := sums.again;
    _q.held := _q.held + sums.held;
    _q.paces := coalesce(_q.paces, 0) + sums.new;
    _q.first_pace := least(_q.first_pace, sums.first_pace);
    _q.first_old := least(_q.first_old, sums.first_old);
END $$;

-- Whether a queue or a group is held off.
CREATE FUNCTION tenure.is_held_off(_starts_at double precision, _paced_at double precision, _now bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN coalesce(_paced_at IS NOT NULL AND _starts_at > _now + 1, false);

-- The two times of a pace that is held off until a time, or no longer, if that is not to come. -infinity: no effect.
CREATE FUNCTION tenure.held_off(INOUT _starts_at double precision, INOUT _paced_at double precision, _until double precision,
    _now bigint) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    alone double precision := CASE WHEN tenure.is_held_off(_starts_at, _paced_at, _now) THEN _paced_at ELSE _starts_at END;
BEGIN
    IF _until <= _now THEN
        _starts_at := alone;
        _paced_at := NULL;
    ELSIF _until > _starts_at THEN
        _starts_at := _until;
        _paced_at := alone;
    END IF;
END $$;

-- No task of a group, or of the queue for '', starts until this time; if that is not to come, it is held off no longer.
CREATE FUNCTION tenure.hold_off_queue(_q tenure.queue, _name bytea, _until double precision) RETURNS tenure.queue
LANGUAGE plpgsql AS $$
DECLARE
    place tid := tenure.place_of_group(_q, _name);
    pace tid := tenure.place_of_pace(_q, _name);
    times record;
BEGIN
    IF _name = '' THEN
        times := tenure.held_off(coalesce(_q.starts_at, '-infinity'), _q.paced_at, _until, _q.at);
        _q.starts_at := times._starts_at;
        _q.paced_at := times._paced_at;
        _q := tenure.open_queue(_q);
    ELSE
        _q.has_groups := true;
        times := tenure.held_off('-infinity', NULL, _until, _q.at);
        IF pace IS NOT NULL THEN
            SELECT h.* INTO times FROM tenure.pace p CROSS JOIN LATERAL tenure.held_off(p.starts_at, p.paced_at, _until, _q.at) h
            WHERE p.ctid = pace;
        END IF;
        IF times._starts_at > '-infinity' THEN
            IF pace IS NULL THEN
                INSERT INTO tenure.pace (queue, name, starts_at, paced_at)
                VALUES (_q.name, _name, times._starts_at, times._paced_at);
                _q.paces := coalesce(_q.paces, 0) + 1;
            ELSE
                UPDATE tenure.pace p SET starts_at = times._starts_at, paced_at = times._paced_at WHERE p.ctid = pace;
            END IF;
            _q.first_pace := least(_q.first_pace, times._starts_at, _until); -- a pace that is awaited may end later now
            _q.first_old := least(_q.first_old, times._starts_at, _until);
        ELSIF pace IS NOT NULL THEN
            DELETE FROM tenure.pace p WHERE p.ctid = pace;
            _q.paces := _q.paces - 1;
        END IF;
        IF place IS NOT NULL AND _q.named > 0 THEN
            _q := tenure.regroup(_q, ARRAY[_name], 0, 0, 0);
        END IF;
    END IF;
    IF _until > _q.at THEN
        _q.keep_until := greatest(_q.keep_until, ceil(times._starts_at
            + tenure.slack_of(CASE WHEN _name = '' THEN _q.rate ELSE _q.group_rate END))::bigint);
    END IF;
    RETURN _q;
END $$;

-- The two times of a pace whose rate is another one now: the tasks that have started count for as many as before.
CREATE FUNCTION tenure.repaced(INOUT _starts_at double precision, INOUT _paced_at double precision,
    _rate double precision[], _new double precision[], _now bigint) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    is_held constant boolean := tenure.is_held_off(_starts_at, _paced_at, _now);
    alone double precision := CASE WHEN is_held THEN _paced_at ELSE _starts_at END;
BEGIN
    alone := CASE WHEN _rate IS NULL OR _new IS NULL OR alone = '-infinity' THEN '-infinity'
        ELSE _now + least((alone - _now) / _rate[1] + _rate[2] - _new[2], 1) * _new[1] END;
    _paced_at := CASE WHEN is_held AND alone < _starts_at THEN alone END;
    IF _paced_at IS NULL THEN
        _starts_at := alone;
    END IF;
END $$;

-- The queue and its groups have other rates.
CREATE FUNCTION tenure.set_rates(_q tenure.queue, _rate double precision[], _group_rate double precision[])
RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    times record;
BEGIN
    IF _q.rate IS DISTINCT FROM _rate THEN
        times := tenure.repaced(coalesce(_q.starts_at, '-infinity'), _q.paced_at, _q.rate, _rate, _q.at);
        _q.starts_at := times._starts_at;
        _q.paced_at := times._paced_at;
    END IF;
    IF _q.group_rate IS DISTINCT FROM _group_rate AND _q.paces > 0 THEN
        UPDATE tenure.pace p SET starts_at = h._starts_at, paced_at = h._paced_at
        FROM tenure.pace o CROSS JOIN LATERAL tenure.repaced(o.starts_at, o.paced_at, _q.group_rate, _group_rate, _q.at) h
        WHERE o.queue = _q.name AND p.ctid = o.ctid;
        DELETE FROM tenure.pace p WHERE p.queue = _q.name AND p.starts_at = '-infinity';
        SELECT count(*), min(p.starts_at) FILTER (WHERE p.awaited), min(p.starts_at) FILTER (WHERE NOT p.awaited)
        INTO _q.paces, _q.first_pace, _q.first_old FROM tenure.pace p WHERE p.queue = _q.name;
    END IF;
    _q.rate := _rate;
    _q.group_rate := _group_rate;
    RETURN tenure.open_queue(_q);
END $$;
