-- Holds: weighted capacity with a line, the algorithm under locks, semaphores, read-write locks and elections. A barrier is
-- a line of holds without weight, which is served at once.
-- Needs: state

CREATE FUNCTION tenure.line_of(_key bytea) RETURNS tenure.line LANGUAGE plpgsql AS $$
DECLARE
    line tenure.line;
BEGIN
    SELECT * INTO line FROM tenure.line l WHERE l.key = _key ORDER BY l.page DESC LIMIT 1;
    RETURN line;
END $$;

-- The same with a capacity, of a key that comes into use.
CREATE FUNCTION tenure.use_line(_line tenure.line, _key bytea, _capacity bigint) RETURNS tenure.line
LANGUAGE plpgsql AS $$
DECLARE
    ordinal bigint;
BEGIN
    IF _line.key IS NULL THEN
        -- above all ordinals that a former row of the key had
        ordinal := nextval('tenure.last_made');
        INSERT INTO tenure.line (key, capacity, fixed, used, ordinal, held, waiting, first_waiter)
        VALUES (_key, _capacity, false, 0, ordinal, 0, 0, ordinal + 1) RETURNING * INTO _line;
    END IF;
    _line.capacity := _capacity;
    RETURN _line;
END $$;

CREATE FUNCTION tenure.save_line(_now bigint, _l tenure.line) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF _l.held = 0 AND _l.waiting = 0 AND NOT _l.fixed THEN
        _l.capacity := 0;
        _l.meeting := 0;
        -- a lock that is used again and again keeps its row
        _l.check_at := coalesce(_l.check_at, _now + 10000000);
    END IF;
    UPDATE tenure.line l SET capacity = _l.capacity, fixed = _l.fixed, used = _l.used, ordinal = _l.ordinal,
        held = _l.held, waiting = _l.waiting, first_waiter = _l.first_waiter, meeting = _l.meeting, check_at = _l.check_at,
        page = l.page + (l.changes % 32 = 31)::int, changes = l.changes + 1
    WHERE l.key = _l.key AND l.page = _l.page;
    RETURN true;
END $$;

-- Forget a key that has no effect.
CREATE FUNCTION tenure.tidy_line(_now bigint, _key bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    line tenure.line := tenure.line_of(_key);
BEGIN
    IF line.capacity = 0 AND NOT line.fixed AND line.check_at <= _now THEN
        DELETE FROM tenure.line l WHERE l.key = _key AND l.page = line.page;
    ELSIF line.check_at <= _now THEN
        line.check_at := NULL;
        PERFORM tenure.save_line(_now, line);
    END IF;
END $$;

-- The first in the line; all is NULL if nobody waits.
CREATE FUNCTION tenure.first_waiter(_line tenure.line) RETURNS tenure.hold LANGUAGE plpgsql AS $$
DECLARE
    head tenure.hold;
BEGIN
    SELECT * INTO head FROM tenure.hold h WHERE h.key = _line.key AND h.token = 0 AND h.ordinal >= _line.first_waiter
    ORDER BY h.ordinal LIMIT 1;
    RETURN head;
END $$;

-- Where a holder stands: granted, queued, unknown.
CREATE FUNCTION tenure.holder_status(_now bigint, _line tenure.line, _holder bytea) RETURNS tenure.answer
LANGUAGE plpgsql AS $$
DECLARE
    hold tenure.hold;
BEGIN
    SELECT * INTO hold FROM tenure.hold h WHERE h.key = _line.key AND h.holder = _holder;
    IF NOT FOUND THEN
        RETURN tenure.reply('unknown');
    ELSIF hold.token > 0 THEN
        RETURN ROW('granted', ARRAY[hold.token], NULL)::tenure.answer;
    END IF;
    RETURN ROW('queued', ARRAY[
        hold.ordinal + 1 - (tenure.first_waiter(_line)).ordinal, tenure.ask_again_in(_now, NULL), _line.meeting
    ], NULL)::tenure.answer;
END $$;

-- Grant to the head of the line for as long as it fits; keep the line. Arrivals wait on until all are there. False when
-- the steps did not suffice.
CREATE FUNCTION tenure.serve_line(_now bigint, _line tenure.line) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    head tenure.hold;
    fresh bigint;
    finished boolean := true;
BEGIN
    WHILE _line.waiting > 0 LOOP
        head := tenure.first_waiter(_line);
        _line.first_waiter := head.ordinal;
        EXIT WHEN head.weight <= _line.capacity
            AND (_line.used + head.weight > _line.capacity OR head.weight = 0);
        IF NOT tenure.step() THEN
            INSERT INTO tenure.todo (due, id, name) VALUES (0, 0, _line.key);
            finished := false;
            EXIT;
        END IF;
        _line.waiting := _line.waiting - 1;
        IF head.weight > _line.capacity THEN
            DELETE FROM tenure.hold h WHERE h.key = _line.key AND h.holder = head.holder;
            PERFORM tenure.hint(head.process, _line.key, head.holder, 'ask');
        ELSE
            fresh := tenure.new_tokens(_now, 1);
            UPDATE tenure.hold h SET token = fresh, since = _now WHERE h.key = _line.key AND h.holder = head.holder;
            _line.used := _line.used + head.weight;
            _line.held := _line.held + 1;
            PERFORM tenure.notify_watchers('hold', _line.key, 0, '', 'changed');
            PERFORM tenure.hint(head.process, _line.key, head.holder, 'granted', ' ' || fresh);
        END IF;
    END LOOP;
    PERFORM tenure.save_line(_now, _line);
    RETURN finished;
END $$;

-- An arrival joined the line: if it completes the parties, all are granted at once. The tokens follow one another from a
-- multiple of the capacity.
CREATE FUNCTION tenure.gather(_now bigint, _line tenure.line, _holder bytea) RETURNS tenure.answer
LANGUAGE plpgsql AS $$
DECLARE
    party tenure.hold;
    fresh bigint;
BEGIN
    IF _line.meeting = 0 THEN
        _line.meeting := tenure.new_tokens(_now, 1);
    END IF;
    IF _line.waiting = _line.capacity THEN
        fresh := tenure.new_tokens(_now, 2 * _line.capacity - 1);
        fresh := (fresh + _line.capacity - 1) / _line.capacity * _line.capacity;
        FOR party IN SELECT * FROM tenure.hold h
            WHERE h.key = _line.key AND h.token = 0 AND h.ordinal >= _line.first_waiter ORDER BY h.ordinal
        LOOP
            UPDATE tenure.hold h SET token = fresh, since = _now WHERE h.key = _line.key AND h.holder = party.holder;
            IF party.holder <> _holder THEN
                PERFORM tenure.hint(party.process, _line.key, party.holder, 'granted', ' ' || fresh);
            END IF;
            fresh := fresh + 1;
        END LOOP;
        _line.held := _line.held + _line.waiting;
        _line.waiting := 0;
        _line.meeting := 0;
        PERFORM tenure.notify_watchers('hold', _line.key, 0, '', 'changed');
    END IF;
    PERFORM tenure.save_line(_now, _line);
    RETURN tenure.holder_status(_now, _line, _holder);
END $$;

-- Release, or leave the line; call `begin_steps` before. -> released, granted(token) of an arrival, left, unknown; more: the
-- steps did not suffice
CREATE FUNCTION tenure.remove_hold(_now bigint, _key bytea, _holder bytea) RETURNS tenure.answer
LANGUAGE plpgsql AS $$
DECLARE
    hold tenure.hold;
    line tenure.line;
BEGIN
    DELETE FROM tenure.hold h WHERE h.key = _key AND h.holder = _holder RETURNING * INTO hold;
    IF NOT FOUND THEN
        RETURN tenure.reply('unknown');
    END IF;
    line := tenure.line_of(_key);
    IF hold.token > 0 THEN
        line.used := line.used - hold.weight;
        line.held := line.held - 1;
        PERFORM tenure.notify_watchers('hold', _key, 0, '', 'changed');
    ELSE
        line.waiting := line.waiting - 1;
        IF hold.weight = 0 AND hold.value <> 'drop' THEN
            line.capacity := -1;
            line.fixed := true;
        END IF;
    END IF;
    IF NOT tenure.serve_line(_now, line) THEN
        RETURN tenure.reply('more');
    ELSIF hold.token > 0 AND hold.weight = 0 THEN
        RETURN ROW('granted', ARRAY[hold.token], NULL)::tenure.answer;
    END IF;
    RETURN tenure.reply(CASE WHEN hold.token > 0 THEN 'released' ELSE 'left' END);
END $$;

-- -> granted(token), queued(place, again), mismatch(stored), refused, gone, more
CREATE FUNCTION tenure.acquire(
    _clock bigint, _cap bigint, _session bytea, _key bytea, _holder bytea,
    _capacity bigint, _weight bigint, _value bytea, _wait boolean
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    mine tenure.session;
    line tenure.line;
    known tenure.answer;
    fits boolean;
    fresh bigint := 0;
    ok boolean;
BEGIN
    ok := tenure.keep_session(_session);
    now := tenure.enter_object(_clock, 'hold', _key);
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session ORDER BY s.page DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN tenure.reply('gone');
    END IF;
    line := tenure.line_of(_key);
    known := tenure.holder_status(now, line, _holder);
    IF known.word <> 'unknown' THEN
        RETURN known;
    ELSIF line.capacity <> _capacity AND (line.held > 0 AND _weight > 0 OR line.waiting > 0 OR line.fixed) THEN
        RETURN ROW('mismatch', ARRAY[line.capacity], NULL)::tenure.answer;
    END IF;
    fits := _weight > 0 AND coalesce(line.waiting, 0) = 0 AND coalesce(line.used, 0) + _weight <= _capacity;
    IF NOT fits AND NOT _wait THEN
        RETURN tenure.reply('refused');
    END IF;
    IF fits THEN
        fresh := tenure.new_tokens(now, 1);
        ok := tenure.notify_watchers('hold', _key, 0, '', 'changed');
    END IF;
    line := tenure.use_line(line, _key, _capacity);
    line.ordinal := line.ordinal + 1;
    IF fits THEN
        line.used := line.used + _weight;
        line.held := line.held + 1;
    ELSE
        line.first_waiter := CASE line.waiting WHEN 0 THEN line.ordinal ELSE line.first_waiter END;
        line.waiting := line.waiting + 1;
    END IF;
    INSERT INTO tenure.hold (key, holder, session, process, weight, value, ordinal, since, token)
    VALUES (_key, _holder, mine.id, mine.process, _weight, _value, line.ordinal, now, fresh);
    IF _weight = 0 THEN
        RETURN tenure.gather(now, line, _holder);
    END IF;
    ok := tenure.save_line(now, line);
    IF fits THEN
        RETURN ROW('granted', ARRAY[fresh], NULL)::tenure.answer;
    END IF;
    RETURN tenure.holder_status(now, line, _holder);
END $$;

-- -> asked, then of each holder: granted, queued, unknown; gone, more
CREATE FUNCTION tenure.ask(_clock bigint, _cap bigint, _session bytea, _key bytea, _holders bytea[])
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    entry record := tenure.enter_in_session(_clock, _session, 'hold', _key);
    line tenure.line;
    holder bytea;
BEGIN
    IF entry.refusal IS NOT NULL THEN
        RETURN NEXT tenure.reply(entry.refusal);
    ELSE
        line := tenure.line_of(_key);
        RETURN NEXT tenure.reply('asked');
        FOREACH holder IN ARRAY _holders LOOP
            RETURN NEXT tenure.holder_status(entry.now, line, holder);
        END LOOP;
    END IF;
END $$;

-- -> released, granted(token), left, unknown, more
CREATE FUNCTION tenure.release(_clock bigint, _cap bigint, _key bytea, _holder bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'hold', _key);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    PERFORM tenure.begin_steps(_cap);
    RETURN tenure.remove_hold(now, _key, _holder);
END $$;

-- -> ok, refused, more
CREATE FUNCTION tenure.set_value(_clock bigint, _cap bigint, _key bytea, _holder bytea, _token bigint, _value bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'hold', _key);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    UPDATE tenure.hold h SET value = _value
    WHERE h.key = _key AND h.holder = _holder AND h.token > 0 AND h.token = _token;
    IF NOT FOUND THEN
        RETURN tenure.reply('refused');
    END IF;
    PERFORM tenure.notify_watchers('hold', _key, 0, '', 'changed');
    RETURN tenure.reply('ok');
END $$;

-- -> ok, refused, more
CREATE FUNCTION tenure.break_hold(_clock bigint, _cap bigint, _key bytea, _holder bytea, _token bigint)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'hold', _key);
    whose bytea;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT h.process INTO whose FROM tenure.hold h
    WHERE h.key = _key AND h.holder = _holder AND h.token > 0 AND h.token = _token;
    IF NOT FOUND THEN
        RETURN tenure.reply('refused');
    END IF;
    PERFORM tenure.hint(whose, _key, _holder, 'broken');
    PERFORM tenure.begin_steps(_cap);
    RETURN tenure.reply(CASE (tenure.remove_hold(now, _key, _holder)).word WHEN 'more' THEN 'more' ELSE 'ok' END);
END $$;

-- -> ok, refused, more
CREATE FUNCTION tenure.resize(_clock bigint, _cap bigint, _key bytea, _capacity bigint)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'hold', _key);
    line tenure.line;
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    PERFORM tenure.begin_steps(_cap);
    line := tenure.line_of(_key);
    IF _capacity = 0 AND (line.used > 0 OR line.waiting > 0) THEN
        RETURN tenure.reply('refused');
    END IF;
    line := tenure.use_line(line, _key, _capacity);
    line.fixed := _capacity <> 0;
    RETURN tenure.reply(CASE WHEN tenure.serve_line(now, line) THEN 'ok' ELSE 'more' END);
END $$;
