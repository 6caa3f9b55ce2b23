-- Spending at rates, with several limits (GCRA, ITU-T I.371): `Limiter` in tenure/engine/_rates.py says what and why.
-- Times are in seconds, as floats; `_at` and `now` are the engine's time.
-- Needs: state

-- The limiter, as a new one if it has no effect.
CREATE FUNCTION tenure.limiter_of(_at double precision, _key bytea) RETURNS tenure.limiter LANGUAGE plpgsql AS $$
DECLARE
    it tenure.limiter;
BEGIN
    SELECT * INTO it FROM tenure.limiter l WHERE l.key = _key ORDER BY l.page DESC LIMIT 1;
    IF NOT FOUND OR it.until <= _at THEN
        it := ROW(_key, 0, 0, 0, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', it.check_at, it.page, it.changes)::tenure.limiter;
    END IF;
    RETURN it;
END $$;

-- Keep the limiter if it says anything.
CREATE FUNCTION tenure.keep_limiter(_at double precision, _it tenure.limiter) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    latest double precision := _it.last_due;
BEGIN
    FOR i IN 1 .. cardinality(_it.ends) LOOP
        latest := greatest(latest, _it.ends[i]);
    END LOOP;
    _it.until := greatest(_it.held_until, latest + _it.held);
    IF _it.page IS NOT NULL THEN
        UPDATE tenure.limiter l SET until = _it.until, held_until = _it.held_until, held = _it.held,
            last_due = _it.last_due, names = _it.names, ends = _it.ends, rates = _it.rates,
            moved = _it.moved, sessions = _it.sessions, dues = _it.dues, sizes = _it.sizes,
            page = l.page + (l.changes % 32 = 31)::int, changes = l.changes + 1
        WHERE l.key = _it.key AND l.page = _it.page;
    ELSIF _it.until > _at THEN
        _it.check_at := tenure.limiter_check_at(_it.until);
        _it.page := 0;
        _it.changes := 0;
        INSERT INTO tenure.limiter SELECT _it.*;
    END IF;
END $$;

-- When to look whether a limiter says something: a second later, for those whose clock was read a little earlier.
CREATE FUNCTION tenure.limiter_check_at(_until double precision) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN (least(_until, 1e12) * 1e6)::bigint + 1000001;

-- Forget a limiter that has no effect, or set when to look again.
CREATE FUNCTION tenure.tidy_limiter(_now bigint, _key bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    it tenure.limiter;
    later bigint;
BEGIN
    SELECT * INTO it FROM tenure.limiter l WHERE l.key = _key ORDER BY l.page DESC LIMIT 1;
    later := tenure.limiter_check_at(it.until);
    IF later > _now THEN
        UPDATE tenure.limiter l SET check_at = later WHERE l.key = _key AND l.page = it.page;
    ELSE
        DELETE FROM tenure.limiter l WHERE l.key = _key AND l.page = it.page;
        DELETE FROM tenure.limiter_waiter w WHERE w.key = _key AND w.due < _now / 1e6::double precision - 1;
    END IF;
END $$;

-- For how many seconds a limit is booked from that time of the limiter's clock on, at its rate of today.
CREATE FUNCTION tenure.booked_ahead(
    _it tenure.limiter, _time double precision, _name bytea, _rate double precision
) RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    i int := array_position(_it.names, _name);
BEGIN
    IF i IS NULL OR _it.ends[i] <= _time THEN
        RETURN 0;
    END IF;
    RETURN least((_it.ends[i] - _time) * (_it.rates[i] / _rate), 1e9);
END $$;

-- The costs of all requests come one after the other, for each limit.
-- -> spent, then of each request: booked(; delay, held, end and size of each limit) or not(; delay, held); gone, more
CREATE FUNCTION tenure.spend(
    _clock bigint, _cap bigint, _session bytea, _n bigint, _key bytea, _names bytea[], _rates double precision[],
    _bursts double precision[], _costs double precision[], _longest double precision[], _horizon double precision
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    entry record := tenure.enter_in_session(_clock, _session, 'limiter', _key);
    now bigint := entry.now;
    at double precision;
    mine tenure.session := entry.mine;
    known tenure.answer[];
    it tenure.limiter;
    clock double precision;
    count int := cardinality(_names);
    cost double precision;
    ahead double precision[];
    before double precision;
    after double precision;
    far boolean[];
    is_far boolean;
    start double precision;
    delay double precision;
    bookings bytea[];
    waits boolean := false;
    place int;
BEGIN
    IF entry.refusal IS NOT NULL THEN
        RETURN NEXT tenure.reply(entry.refusal);
        RETURN;
    END IF;
    known := tenure.cached_reply(now, mine, 'spend', _key, _n);
    IF known IS NULL THEN
        at := now / 1e6::double precision;
        it := tenure.limiter_of(at, _key);
        clock := greatest(at, it.held_until) - it.held;
        known := ARRAY[tenure.reply('spent')];
        FOR j IN 1 .. cardinality(it.names) LOOP
            -- what a session booked ends with it
            IF it.sessions[j] <> '' AND it.dues[j] > clock AND it.names[j] = ANY (_names)
                AND NOT EXISTS (SELECT FROM tenure.session s WHERE s.name = it.sessions[j])
            THEN
                it.ends[j] := it.ends[j] - it.sizes[j];
                it.sessions[j] := '';
            END IF;
        END LOOP;
        FOR j IN 1 .. count LOOP
            ahead[j] := tenure.booked_ahead(it, clock, _names[j], _rates[j]);
            far[j] := ahead[j] - _bursts[j] / _rates[j] > _horizon + 1e-6;
            place := array_position(it.names, _names[j]);
            IF it.rates[place] <> _rates[j] THEN
                it.ends[place] := clock + ahead[j];
                it.rates[place] := _rates[j];
                it.moved[place] := 0;
                it.sessions[place] := '';
            END IF;
        END LOOP;
        FOR j IN REVERSE cardinality(it.names) .. 1 LOOP
            IF it.ends[j] <= clock THEN
                it.names := it.names[:j - 1] || it.names[j + 1:];
                it.ends := it.ends[:j - 1] || it.ends[j + 1:];
                it.rates := it.rates[:j - 1] || it.rates[j + 1:];
                it.moved := it.moved[:j - 1] || it.moved[j + 1:];
                it.sessions := it.sessions[:j - 1] || it.sessions[j + 1:];
                it.dues := it.dues[:j - 1] || it.dues[j + 1:];
                it.sizes := it.sizes[:j - 1] || it.sizes[j + 1:];
            END IF;
        END LOOP;
        FOR i IN 1 .. cardinality(_longest) LOOP
            start := 0;
            is_far := false;
            FOR j IN 1 .. count LOOP
                cost := _costs[(i - 1) * count + j];
                IF cost <> 0 THEN
                    start := greatest(start, ahead[j] + (cost - _bursts[j]) / _rates[j]);
                    is_far := is_far OR far[j];
                END IF;
            END LOOP;
            IF start < 1e-6 THEN
                start := 0;
            END IF;
            delay := greatest(0, it.held_until - at) + start;
            bookings := ARRAY[delay::text::bytea, it.held::text::bytea];
            IF delay > _longest[i] + 1e-6 OR (start > 0 AND is_far) THEN
                known := known || ROW('not', NULL, bookings)::tenure.answer;
                CONTINUE;
            END IF;
            FOR j IN 1 .. count LOOP
                cost := _costs[(i - 1) * count + j];
                before := ahead[j];
                after := before;
                IF cost <> 0 THEN
                    -- what would come back beyond the burst before the start is lost
                    after := greatest(after + cost / _rates[j], start + least(cost, _bursts[j]) / _rates[j]);
                    place := coalesce(array_position(it.names, _names[j]), cardinality(it.names) + 1);
                    it.names[place] := _names[j];
                    it.ends[place] := clock + after;
                    it.rates[place] := _rates[j];
                    it.moved[place] := 0;
                    it.sessions[place] := CASE WHEN delay > 0 THEN _session ELSE '' END;
                    it.dues[place] := clock + start;
                    it.sizes[place] := after - before;
                    ahead[j] := least(after, 1e9);
                END IF;
                bookings := bookings || ARRAY[(clock + after)::text::bytea, (after - before)::text::bytea];
            END LOOP;
            IF delay > 0 THEN
                it.last_due := greatest(it.last_due, clock + start);
                waits := true;
            END IF;
            known := known || ROW('booked', NULL, bookings)::tenure.answer;
        END LOOP;
        PERFORM tenure.keep_limiter(at, it);
        IF waits THEN
            DELETE FROM tenure.limiter_waiter w WHERE w.key = _key AND w.due < clock;
            INSERT INTO tenure.limiter_waiter (key, process, due) VALUES (_key, mine.process, it.last_due)
            ON CONFLICT (key, process) DO UPDATE SET due = excluded.due;
        END IF;
        PERFORM tenure.cache_reply(now, mine, 'spend', _key, _n, known);
    END IF;
    RETURN QUERY SELECT * FROM unnest(known);
END $$;

-- Bookings and amounts come one request after the other, for each limit; an amount that is no number is none. -> ok,
-- gone, more
CREATE FUNCTION tenure.refund(
    _clock bigint, _cap bigint, _session bytea, _n bigint, _key bytea, _names bytea[], _rates double precision[],
    _ends double precision[], _sizes double precision[], _amounts double precision[]
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    entry record := tenure.enter_in_session(_clock, _session, 'limiter', _key);
    now bigint := entry.now;
    at double precision;
    mine tenure.session := entry.mine;
    it tenure.limiter;
    clock double precision;
    j int;
    place int;
    change double precision;
    ahead double precision;
    back double precision;
    ends_in double precision;
    after double precision;
BEGIN
    IF entry.refusal IS NOT NULL THEN
        RETURN tenure.reply(entry.refusal);
    ELSIF tenure.cached_reply(now, mine, 'spend', _key, _n) IS NOT NULL THEN
        RETURN tenure.reply('ok');
    END IF;
    at := now / 1e6::double precision;
    it := tenure.limiter_of(at, _key);
    clock := greatest(at, it.held_until) - it.held;
    FOR i IN 1 .. cardinality(_ends) LOOP
        j := (i - 1) % cardinality(_names) + 1;
        place := array_position(it.names, _names[j]);
        back := CASE WHEN _amounts[i] = 'NaN' THEN _sizes[i] ELSE _amounts[i] / _rates[j] END;
        IF place IS NULL AND back < 0 THEN
            place := cardinality(it.names) + 1;
            it.names[place] := _names[j];
            it.ends[place] := clock;
            it.rates[place] := _rates[j];
            it.moved[place] := 0;
            it.sessions[place] := '';
            it.dues[place] := 0;
            it.sizes[place] := 0;
        END IF;
        CONTINUE WHEN place IS NULL OR back = 0;
        -- in seconds at the rate of the booking, from now on
        change := it.rates[place] / _rates[j];
        ahead := (it.ends[place] - clock) * change;
        ends_in := _ends[i] - clock;
        IF _amounts[i] = 'NaN' THEN
            -- there may be another booking behind it, whose caller may have counted on none of it
            CONTINUE WHEN abs(ahead - it.moved[place] * change - ends_in) > 1e-6
                OR it.sessions[place] NOT IN ('', _session);
            IF it.moved[place] = 0 THEN
                ahead := ends_in; -- no rounding adds up
            END IF;
            it.sessions[place] := '';
        ELSIF back < 0 THEN
            ahead := greatest(0, ahead);
        END IF;
        after := clock + least((ahead - least(back, greatest(0, ends_in))) / change, 1e9);
        IF _amounts[i] <> 'NaN' THEN
            it.moved[place] := it.moved[place] + after - it.ends[place];
        END IF;
        it.ends[place] := after;
    END LOOP;
    PERFORM tenure.keep_limiter(at, it);
    PERFORM tenure.cache_reply(now, mine, 'spend', _key, _n, ARRAY[tenure.reply('ok')]);
    RETURN tenure.reply('ok');
END $$;

-- 0 seconds end a hold. -> ok, gone, more
CREATE FUNCTION tenure.hold_off(
    _clock bigint, _cap bigint, _session bytea, _n bigint, _key bytea, _seconds bigint
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    entry record := tenure.enter_in_session(_clock, _session, 'limiter', _key);
    now bigint := entry.now;
    at double precision;
    mine tenure.session := entry.mine;
    it tenure.limiter;
    clock double precision;
    begin_at double precision;
    ends_at double precision;
    waiter bytea;
BEGIN
    IF entry.refusal IS NOT NULL THEN
        RETURN tenure.reply(entry.refusal);
    ELSIF tenure.cached_reply(now, mine, 'spend', _key, _n) IS NOT NULL THEN
        RETURN tenure.reply('ok');
    END IF;
    at := now / 1e6::double precision;
    it := tenure.limiter_of(at, _key);
    begin_at := greatest(at, it.held_until);
    clock := begin_at - it.held;
    ends_at := at + greatest(0, _seconds) / 1e6::double precision;
    IF ends_at > begin_at OR (_seconds <= 0 AND at < it.held_until) THEN
        it.held_until := ends_at;
        it.held := it.held + (it.held_until - begin_at);
        FOR waiter IN SELECT w.process FROM tenure.limiter_waiter w WHERE w.key = _key AND w.due >= clock LOOP
            PERFORM tenure.hint(waiter, _key, '', 'held');
        END LOOP;
    END IF;
    PERFORM tenure.keep_limiter(at, it);
    PERFORM tenure.cache_reply(now, mine, 'spend', _key, _n, ARRAY[tenure.reply('ok')]);
    RETURN tenure.reply('ok');
END $$;
