-- Holds: weighted capacity with a line, the algorithm under locks, semaphores, read-write locks and elections.
-- Needs: state

-- Where a holder stands: granted, queued, unknown.
CREATE FUNCTION tenure.holder_status(_now bigint, _key bytea, _holder bytea) RETURNS tenure.answer
LANGUAGE plpgsql AS $$
DECLARE
    hold tenure.hold;
BEGIN
    SELECT * INTO hold FROM tenure.hold h WHERE h.key = _key AND h.holder = _holder;
    IF NOT FOUND THEN
        RETURN tenure.reply('unknown');
    ELSIF hold.token > 0 THEN
        RETURN ROW('granted', ARRAY[hold.token], NULL)::tenure.answer;
    END IF;
    RETURN ROW('queued', ARRAY[
        hold.ordinal + 1
            - (SELECT h.ordinal FROM tenure.hold h WHERE h.key = _key AND h.token = 0 ORDER BY h.ordinal LIMIT 1),
        tenure.ask_again_in(_now, NULL)
    ], NULL)::tenure.answer;
END $$;

-- Grant to the head of the line for as long as it fits; keep the line. False when the steps did not suffice.
CREATE FUNCTION tenure.serve_line(_now bigint, _key bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    line tenure.line;
    head tenure.hold;
    fresh bigint;
    finished boolean := true;
BEGIN
    SELECT * INTO line FROM tenure.line l WHERE l.key = _key;
    WHILE line.waiting > 0 LOOP
        SELECT * INTO head FROM tenure.hold h WHERE h.key = _key AND h.token = 0 ORDER BY h.ordinal LIMIT 1;
        EXIT WHEN head.weight <= line.capacity AND line.used + head.weight > line.capacity;
        IF NOT tenure.step() THEN
            INSERT INTO tenure.todo (due, id, name) VALUES (0, 0, _key);
            finished := false;
            EXIT;
        END IF;
        line.waiting := line.waiting - 1;
        IF head.weight > line.capacity THEN
            DELETE FROM tenure.hold h WHERE h.key = _key AND h.holder = head.holder;
            PERFORM tenure.hint(head.process, _key, head.holder, 'ask');
        ELSE
            fresh := tenure.new_tokens(_now, 1);
            UPDATE tenure.hold h SET token = fresh, since = _now WHERE h.key = _key AND h.holder = head.holder;
            line.used := line.used + head.weight;
            line.held := line.held + 1;
            PERFORM tenure.notify_watchers('hold', _key, 0, '', 'changed');
            PERFORM tenure.hint(head.process, _key, head.holder, 'granted', ' ' || fresh);
        END IF;
    END LOOP;
    IF line.held = 0 AND line.waiting = 0 AND NOT line.fixed THEN
        DELETE FROM tenure.line l WHERE l.key = _key;
    ELSE
        UPDATE tenure.line l SET used = line.used, held = line.held, waiting = line.waiting WHERE l.key = _key;
    END IF;
    RETURN finished;
END $$;

-- Release, or leave the line; call `begin_steps` before. -> released, left, unknown; more: the steps did not suffice
CREATE FUNCTION tenure.remove_hold(_now bigint, _key bytea, _holder bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hold tenure.hold;
BEGIN
    DELETE FROM tenure.hold h WHERE h.key = _key AND h.holder = _holder RETURNING * INTO hold;
    IF NOT FOUND THEN
        RETURN 'unknown';
    ELSIF hold.token > 0 THEN
        UPDATE tenure.line l SET used = l.used - hold.weight, held = l.held - 1 WHERE l.key = _key;
        PERFORM tenure.notify_watchers('hold', _key, 0, '', 'changed');
    ELSE
        UPDATE tenure.line l SET waiting = l.waiting - 1 WHERE l.key = _key;
    END IF;
    RETURN CASE
        WHEN NOT tenure.serve_line(_now, _key) THEN 'more'
        WHEN hold.token > 0 THEN 'released'
        ELSE 'left'
    END;
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
BEGIN
    PERFORM tenure.keep_session(_session);
    now := tenure.enter_object(_clock, 'hold', _key);
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session;
    IF NOT FOUND THEN
        RETURN tenure.reply('gone');
    END IF;
    SELECT * INTO line FROM tenure.line l WHERE l.key = _key;
    IF FOUND THEN
        known := tenure.holder_status(now, _key, _holder);
        IF known.word <> 'unknown' THEN
            RETURN known;
        END IF;
    ELSE
        line := ROW(_key, _capacity, false, 0, 0, 0, 0)::tenure.line;
    END IF;
    IF line.capacity <> _capacity THEN
        RETURN ROW('mismatch', ARRAY[line.capacity], NULL)::tenure.answer;
    END IF;
    fits := line.waiting = 0 AND line.used + _weight <= line.capacity;
    IF NOT fits AND NOT _wait THEN
        RETURN tenure.reply('refused');
    END IF;
    IF fits THEN
        fresh := tenure.new_tokens(now, 1);
        PERFORM tenure.notify_watchers('hold', _key, 0, '', 'changed');
    END IF;
    INSERT INTO tenure.line AS l (key, capacity, fixed, used, ordinal, held, waiting)
    VALUES (_key, _capacity, false, fits::int * _weight, 1, fits::int, (NOT fits)::int)
    ON CONFLICT (key) DO UPDATE SET used = l.used + excluded.used, ordinal = l.ordinal + 1,
        held = l.held + excluded.held, waiting = l.waiting + excluded.waiting;
    INSERT INTO tenure.hold (key, holder, session, process, weight, value, ordinal, since, token)
    VALUES (_key, _holder, mine.id, mine.process, _weight, _value, line.ordinal + 1, now, fresh);
    IF fits THEN
        RETURN ROW('granted', ARRAY[fresh], NULL)::tenure.answer;
    END IF;
    RETURN tenure.holder_status(now, _key, _holder);
END $$;

-- -> asked, then of each holder: granted, queued, unknown; gone, more
CREATE FUNCTION tenure.ask(_clock bigint, _cap bigint, _session bytea, _key bytea, _holders bytea[])
RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    holder bytea;
BEGIN
    PERFORM tenure.keep_session(_session);
    now := tenure.enter_object(_clock, 'hold', _key);
    IF now IS NULL THEN
        RETURN NEXT tenure.reply('more');
    ELSIF NOT EXISTS (SELECT FROM tenure.session s WHERE s.name = _session) THEN
        RETURN NEXT tenure.reply('gone');
    ELSE
        RETURN NEXT tenure.reply('asked');
        FOREACH holder IN ARRAY _holders LOOP
            RETURN NEXT tenure.holder_status(now, _key, holder);
        END LOOP;
    END IF;
END $$;

-- -> released, left, unknown, more
CREATE FUNCTION tenure.release(_clock bigint, _cap bigint, _key bytea, _holder bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'hold', _key);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    PERFORM tenure.begin_steps(_cap);
    RETURN tenure.reply(tenure.remove_hold(now, _key, _holder));
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
    RETURN tenure.reply(CASE tenure.remove_hold(now, _key, _holder) WHEN 'more' THEN 'more' ELSE 'ok' END);
END $$;

-- -> ok, more
CREATE FUNCTION tenure.resize(_clock bigint, _cap bigint, _key bytea, _capacity bigint)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.enter_object(_clock, 'hold', _key);
BEGIN
    IF now IS NULL THEN
        RETURN tenure.reply('more');
    END IF;
    PERFORM tenure.begin_steps(_cap);
    INSERT INTO tenure.line AS l (key, capacity, fixed, used, ordinal, held, waiting)
    VALUES (_key, _capacity, true, 0, 0, 0, 0)
    ON CONFLICT (key) DO UPDATE SET capacity = excluded.capacity, fixed = true;
    RETURN tenure.reply(CASE WHEN tenure.serve_line(now, _key) THEN 'ok' ELSE 'more' END);
END $$;
