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

CREATE FUNCTION tenure.starts_in(_now bigint, _starts_at double precision) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _starts_at > _now + 1 THEN ceil(_starts_at - _now)::bigint ELSE 0 END;

CREATE FUNCTION tenure.shown_rate(_rate double precision[]) RETURNS bytea LANGUAGE sql STABLE
    RETURN convert_to(_rate[1] / 1000000 || ' ' || _rate[2], 'UTF8');

-- The time for which a pace has an effect after the next start.
CREATE FUNCTION tenure.slack_of(_rate double precision[]) RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN coalesce((_rate[2] - 1) * _rate[1], 0);
END $$;

-- Check again until when the queue is closed.
CREATE FUNCTION tenure.open_queue(_q tenure.queue) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    _q.has_groups := true;
    IF _q.starts_at + tenure.slack_of(_q.rate) <= _q.at THEN
        _q.starts_at := NULL;
        _q.paced_at := NULL;
    END IF;
    _q.closed_until := CASE WHEN _q.starts_at > _q.at + 1 THEN _q.starts_at END;
    RETURN _q;
END $$;

-- Whether no time has an effect on a group.
CREATE FUNCTION tenure.is_timeless(_q tenure.queue) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN _q.group_rate IS NULL AND coalesce(_q.held_until <= _q.at, true);

-- `_count` tasks of the queue have started, and it or its groups have a rate.
CREATE FUNCTION tenure.start_tasks(_q tenure.queue, _count bigint) RETURNS tenure.queue LANGUAGE plpgsql AS $$
BEGIN
    IF _q.rate IS NOT NULL THEN
        _q.starts_at := tenure.start_after(_q.rate, coalesce(_q.starts_at, 0), _q.at, _count);
        _q.paced_at := NULL;
        _q := tenure.open_queue(_q);
    END IF;
    _q.keep_until := greatest(_q.keep_until, _q.at + ceil(greatest(
        _q.rate[1] * _q.rate[2], _q.group_rate[1] * _q.group_rate[2]))::bigint);
    RETURN _q;
END $$;

-- Open the queue and the groups whose time has come. Idle groups of which time has no effect are forgotten if they are
-- many, or with the last of them if groups take no turns.
CREATE FUNCTION tenure.pass_time(_q tenure.queue, _cap bigint) RETURNS tenure.queue LANGUAGE plpgsql AS $$
DECLARE
    due record;
BEGIN
    _q := tenure.open_queue(_q);
    IF _q.first_closed <= _q.at + 1 THEN
        due := tenure.due_groups(_q, -1, _q.first_closed, _q.at + 1, _cap);
        _q.first_closed := due._next;
        IF due._names <> '{}' THEN
            _q := tenure.regroup(_q, due._names, 0, 0, 0);
        END IF;
    END IF;
    IF _q.first_idle <= _q.at THEN
        due := tenure.due_groups(_q, -2, _q.first_idle, _q.at, _cap);
        _q.first_idle := due._next;
        IF _q.named >= 256 + 2 * _q.groups THEN
            DELETE FROM tenure.task_group g WHERE g.ctid = ANY (due._places);
            _q.named := _q.named - cardinality(due._places);
        END IF;
        IF _q.round = 0 THEN
            _q := tenure.end_turns(_q);
        END IF;
    END IF;
    RETURN _q;
END $$;

-- The groups in a line up to a time, and the time of the next one; none is before the mark.
CREATE FUNCTION tenure.due_groups(
    _q tenure.queue, _line bigint, _mark double precision, _time double precision, _cap bigint,
    OUT _names bytea[], OUT _places tid[], OUT _next double precision
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(array_agg(d.name), '{}'), coalesce(array_agg(d.place), '{}'),
        CASE WHEN count(*) = _cap THEN max(d.rank) ELSE _time END
    INTO _names, _places, _next
    FROM (
        SELECT g.name, g.ctid AS place, g.rank FROM tenure.task_group g
        WHERE g.queue = _q.name AND g.line = _line AND g.rank BETWEEN _mark AND _time
        ORDER BY g.rank, g.name LIMIT _cap
    ) d;
    _next := (SELECT g.rank FROM tenure.task_group g
        WHERE g.queue = _q.name AND g.line = _line AND g.rank >= _next AND g.ctid <> ALL (_places)
        ORDER BY g.rank LIMIT 1);
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
    former record;
    times record;
BEGIN
    IF _name = '' THEN
        times := tenure.held_off(coalesce(_q.starts_at, '-infinity'), _q.paced_at, _until, _q.at);
        _q.starts_at := nullif(times._starts_at, '-infinity');
        _q.paced_at := times._paced_at;
        _q := tenure.open_queue(_q);
    ELSE
        SELECT g.starts_at, g.paced_at INTO former FROM tenure.task_group g WHERE g.ctid = place;
        times := tenure.held_off(coalesce(former.starts_at, '-infinity'), former.paced_at, _until, _q.at);
        IF place IS NULL AND times._starts_at = '-infinity' THEN
            RETURN _q;
        ELSIF place IS NOT NULL THEN
            UPDATE tenure.task_group g SET starts_at = nullif(times._starts_at, '-infinity'), paced_at = times._paced_at
            WHERE g.ctid = place;
        ELSE
            INSERT INTO tenure.task_group (queue, period, name, live, waiting, leased, cost, starts_at, paced_at)
            VALUES (_q.name, _q.period, _name, 0, 0, 0, tenure.cost_of(_q, _name), times._starts_at, times._paced_at);
            _q.named := _q.named + 1;
        END IF;
        _q.held_until := greatest(_q.held_until, nullif(times._starts_at, '-infinity'));
        _q := tenure.regroup(_q, ARRAY[_name], 0, 0, 0);
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
        _q.starts_at := nullif(times._starts_at, '-infinity');
        _q.paced_at := times._paced_at;
    END IF;
    IF _q.group_rate IS DISTINCT FROM _group_rate AND _q.named > 0 THEN
        UPDATE tenure.task_group g SET starts_at = nullif(h._starts_at, '-infinity'), paced_at = h._paced_at
        FROM tenure.task_group o
            CROSS JOIN LATERAL tenure.repaced(o.starts_at, o.paced_at, _q.group_rate, _group_rate, _q.at) h
        WHERE o.queue = _q.name AND o.period = _q.period AND o.starts_at IS NOT NULL AND g.ctid = o.ctid;
        -- `have_settings` finds them with `regroup`
        _q.first_closed := NULL;
        _q.first_idle := NULL;
    END IF;
    _q.rate := _rate;
    _q.group_rate := _group_rate;
    RETURN tenure.open_queue(_q);
END $$;
