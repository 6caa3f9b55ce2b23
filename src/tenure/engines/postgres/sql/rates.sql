-- Spending at rates, with several limits (GCRA, ITU-T I.371): `Limiter` in tenure/engine/_rates.py says what and why.
-- Times are in seconds, as floats; `_at` and `now` are the engine's time.
-- Needs: state

-- The limiter, as a new one if it has no effect.
CREATE FUNCTION tenure.limiter_of(_at double precision, _key bytea) RETURNS tenure.limiter LANGUAGE plpgsql AS $$
DECLARE
    limiter tenure.limiter;
BEGIN
    SELECT * INTO limiter FROM tenure.limiter l WHERE l.key = _key ORDER BY l.page DESC LIMIT 1;
    IF NOT FOUND OR limiter.until <= _at THEN
        limiter := ROW(_key, 0, 0, 0, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}',
            limiter.check_at, limiter.page, limiter.changes)::tenure.limiter;
    END IF;
    RETURN limiter;
END $$;

CREATE FUNCTION tenure.keep_limiter(_at double precision, _limiter tenure.limiter) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    latest double precision := _limiter.last_due;
BEGIN
    FOR i IN 1 .. cardinality(_limiter.ends) LOOP
        latest := greatest(latest, _limiter.ends[i]);
    END LOOP;
    _limiter.until := greatest(_limiter.held_until, latest + _limiter.held);
    IF _limiter.page IS NOT NULL THEN
        UPDATE tenure.limiter l SET until = _limiter.until, held_until = _limiter.held_until, held = _limiter.held,
            last_due = _limiter.last_due, names = _limiter.names, ends = _limiter.ends, rates = _limiter.rates,
            moved = _limiter.moved, sessions = _limiter.sessions, dues = _limiter.dues, sizes = _limiter.sizes,
            page = l.page + (l.changes % 32 = 31)::int, changes = l.changes + 1
        WHERE l.key = _limiter.key AND l.page = _limiter.page;
    ELSIF _limiter.until > _at THEN
        _limiter.check_at := tenure.limiter_check_at(_limiter.until);
        _limiter.page := 0;
        _limiter.changes := 0;
        INSERT INTO tenure.limiter SELECT _limiter.*;
    END IF;
END $$;

-- When to look whether a limiter says something: a second later, for those whose clock was read a little earlier.
CREATE FUNCTION tenure.limiter_check_at(_until double precision) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN (least(_until, 1e12) * 1e6)::bigint + 1000001;

-- Forget a limiter that has no effect, or set when to look again.
CREATE FUNCTION tenure.tidy_limiter(_now bigint, _key bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    limiter tenure.limiter;
    later bigint;
BEGIN
    SELECT * INTO limiter FROM tenure.limiter l WHERE l.key = _key ORDER BY l.page DESC LIMIT 1;
    later := tenure.limiter_check_at(limiter.until);
    IF later > _now THEN
        UPDATE tenure.limiter l SET check_at = later WHERE l.key = _key AND l.page = limiter.page;
    ELSE
        DELETE FROM tenure.limiter l WHERE l.key = _key AND l.page = limiter.page;
        DELETE FROM tenure.limiter_waiter w WHERE w.key = _key AND w.due < _now / 1e6::double precision - 1;
    END IF;
END $$;

-- For how many seconds a limit is booked from that time of the limiter's clock on, at its rate of today.
CREATE FUNCTION tenure.booked_ahead(
    _limiter tenure.limiter, _time double precision, _name bytea, _rate double precision
) RETURNS double precision LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    i int := array_position(_limiter.names, _name);
BEGIN
    IF i IS NULL OR _limiter.ends[i] <= _time THEN
        RETURN 0;
    END IF;
    RETURN least((_limiter.ends[i] - _time) * (_limiter.rates[i] / _rate), 1e9);
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
    limiter tenure.limiter;
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
        limiter := tenure.limiter_of(at, _key);
        clock := greatest(at, limiter.held_until) - limiter.held;
        known := ARRAY[tenure.reply('spent')];
        FOR j IN 1 .. cardinality(limiter.names) LOOP
            -- what a session booked ends with it
            IF limiter.sessions[j] <> '' AND limiter.dues[j] > clock AND limiter.names[j] = ANY (_names)
                AND NOT EXISTS (SELECT FROM tenure.session s WHERE s.name = limiter.sessions[j])
            THEN
                limiter.ends[j] := limiter.ends[j] - limiter.sizes[j];
                limiter.sessions[j] := '';
            END IF;
        END LOOP;
        FOR j IN 1 .. count LOOP
            ahead[j] := tenure.booked_ahead(limiter, clock, _names[j], _rates[j]);
            far[j] := ahead[j] - _bursts[j] / _rates[j] > _horizon + 1e-6;
            place := array_position(limiter.names, _names[j]);
            IF limiter.rates[place] <> _rates[j] THEN
                limiter.ends[place] := clock + ahead[j];
                limiter.rates[place] := _rates[j];
                limiter.moved[place] := 0;
                limiter.sessions[place] := '';
            END IF;
        END LOOP;
        FOR j IN REVERSE cardinality(limiter.names) .. 1 LOOP
            IF limiter.ends[j] <= clock THEN
                limiter.names := limiter.names[:j - 1] || limiter.names[j + 1:];
                limiter.ends := limiter.ends[:j - 1] || limiter.ends[j + 1:];
                limiter.rates := limiter.rates[:j - 1] || limiter.rates[j + 1:];
                limiter.moved := limiter.moved[:j - 1] || limiter.moved[j + 1:];
                limiter.sessions := limiter.sessions[:j - 1] || limiter.sessions[j + 1:];
                limiter.dues := limiter.dues[:j - 1] || limiter.dues[j + 1:];
                limiter.sizes := limiter.sizes[:j - 1] || limiter.sizes[j + 1:];
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
            delay := greatest(0, limiter.held_until - at) + start;
            bookings := ARRAY[delay::text::bytea, limiter.held::text::bytea];
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
                    place := coalesce(array_position(limiter.names, _names[j]), cardinality(limiter.names) + 1);
                    limiter.names[place] := _names[j];
                    limiter.ends[place] := clock + after;
                    limiter.rates[place] := _rates[j];
                    limiter.moved[place] := 0;
                    limiter.sessions[place] := CASE WHEN delay > 0 THEN _session ELSE '' END;
                    limiter.dues[place] := clock + start;
                    limiter.sizes[place] := after - before;
                    ahead[j] := least(after, 1e9);
                END IF;
                bookings := bookings || ARRAY[(clock + after)::text::bytea, (after - before)::text::bytea];
            END LOOP;
            IF delay > 0 THEN
                limiter.last_due := greatest(limiter.last_due, clock + start);
                waits := true;
            END IF;
            known := known || ROW('booked', NULL, bookings)::tenure.answer;
        END LOOP;
        PERFORM tenure.keep_limiter(at, limiter);
        IF waits THEN
            DELETE FROM tenure.limiter_waiter w WHERE w.key = _key AND w.due < clock;
            INSERT INTO tenure.limiter_waiter (key, process, due) VALUES (_key, mine.process, limiter.last_due)
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
    limiter tenure.limiter;
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
    limiter := tenure.limiter_of(at, _key);
    clock := greatest(at, limiter.held_until) - limiter.held;
    FOR i IN 1 .. cardinality(_ends) LOOP
        j := (i - 1) % cardinality(_names) + 1;
        place := array_position(limiter.names, _names[j]);
        back := CASE WHEN _amounts[i] = 'NaN' THEN _sizes[i] ELSE _amounts[i] / _rates[j] END;
        IF place IS NULL AND back < 0 THEN
            place := cardinality(limiter.names) + 1;
            limiter.names[place] := _names[j];
            limiter.ends[place] := clock;
            limiter.rates[place] := _rates[j];
            limiter.moved[place] := 0;
            limiter.sessions[place] := '';
            limiter.dues[place] := 0;
            limiter.sizes[place] := 0;
        END IF;
        CONTINUE WHEN place IS NULL OR back = 0;
        -- in seconds at the rate of the booking, from now on
        change := limiter.rates[place] / _rates[j];
        ahead := (limiter.ends[place] - clock) * change;
        ends_in := _ends[i] - clock;
        IF _amounts[i] = 'NaN' THEN
            -- there may be another booking behind it, whose caller may have counted on none of it
            CONTINUE WHEN abs(ahead - limiter.moved[place] * change - ends_in) > 1e-6
                OR limiter.sessions[place] NOT IN ('', _session);
            IF limiter.moved[place] = 0 THEN
                ahead := ends_in; -- no rounding adds up
            END IF;
            limiter.sessions[place] := '';
        ELSIF back < 0 THEN
            ahead := greatest(0, ahead);
        END IF;
        after := clock + least((ahead - least(back, greatest(0, ends_in))) / change, 1e9);
        IF _amounts[i] <> 'NaN' THEN
            limiter.moved[place] := limiter.moved[place] + after - limiter.ends[place];
        END IF;
        limiter.ends[place] := after;
    END LOOP;
    PERFORM tenure.keep_limiter(at, limiter);
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
    limiter tenure.limiter;
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
    limiter := tenure.limiter_of(at, _key);
    begin_at := greatest(at, limiter.held_until);
    clock := begin_at - limiter.held;
    ends_at := at + greatest(0, _seconds) / 1e6::double precision;
    IF ends_at > begin_at OR (_seconds <= 0 AND at < limiter.held_until) THEN
        limiter.held_until := ends_at;
        limiter.held := limiter.held + (limiter.held_until - begin_at);
        FOR waiter IN SELECT w.process FROM tenure.limiter_waiter w WHERE w.key = _key AND w.due >= clock LOOP
            PERFORM tenure.hint(waiter, _key, '', 'held');
        END LOOP;
    END IF;
    PERFORM tenure.keep_limiter(at, limiter);
    PERFORM tenure.cache_reply(now, mine, 'spend', _key, _n, ARRAY[tenure.reply('ok')]);
    RETURN tenure.reply('ok');
END $$;
