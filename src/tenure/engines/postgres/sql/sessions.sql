-- Sessions: life signs.
-- Needs: state, tasks

CREATE FUNCTION tenure.ping(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE sql VOLATILE
    RETURN tenure.reply(CASE WHEN tenure.is_due(tenure.time(_clock)) THEN 'more' ELSE 'ok' END);

-- The session lives for a ttl from now on, or for its own. False if there is none.
CREATE FUNCTION tenure.prolong_session(_session bytea, _now bigint, _ttl bigint DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenure.break_silence();
    -- a session that was prolonged meanwhile has a later page
    UPDATE tenure.session s SET ttl = coalesce(_ttl, s.ttl), expires = _now + coalesce(_ttl, s.ttl), page = s.page + 1,
        resting = false
    WHERE s.name = _session AND s.page >= (
        SELECT o.page FROM tenure.session o WHERE o.name = _session ORDER BY o.page DESC LIMIT 1);
    RETURN FOUND;
END $$;

CREATE FUNCTION tenure.open_session(_clock bigint, _cap bigint, _session bytea, _process bytea, _ttl bigint)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
BEGIN
    PERFORM tenure.keep_session(_session);
    now := tenure.time(_clock);
    IF tenure.is_due(now) THEN
        RETURN tenure.reply('more');
    END IF;
    IF NOT tenure.prolong_session(_session, now, _ttl) THEN
        INSERT INTO tenure.session (name, process, ttl, expires) VALUES (_session, _process, _ttl, now + _ttl)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN tenure.reply('ok');
END $$;

-- When an idle taker of a queue has to ask.
CREATE FUNCTION tenure.taker_due(_now bigint, _queue bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    queue tenure.queue;
BEGIN
    SELECT * INTO queue FROM tenure.queue q WHERE q.name = _queue ORDER BY q.page DESC LIMIT 1;
    RETURN CASE WHEN NOT queue.paused THEN CASE WHEN queue.takeable > 0 AND queue.closed_until IS NULL THEN _now
        ELSE tenure.next_due(queue) END END;
END $$;

-- The session rests for `_longest`, or until something is due or another session may have ended. -> resting: for how
-- long; or nothing, if it has something else than takers and watches
CREATE FUNCTION tenure.rest_session(_now bigint, _session bytea, _longest bigint) RETURNS tenure.answer
LANGUAGE plpgsql AS $$
DECLARE
    since bigint := tenure.due_since(_now);
    mine tenure.session;
    time bigint;
BEGIN
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session ORDER BY s.page DESC LIMIT 1;
    IF NOT FOUND OR EXISTS (SELECT FROM tenure.belongings(mine.id, 0, 0, 1) b WHERE b.rank < 5) THEN
        RETURN NULL;
    END IF;
    time := least(_now + _longest,
        (SELECT s.expires FROM tenure.session s WHERE NOT s.resting AND s.id <> mine.id AND s.expires >= since
            ORDER BY s.expires LIMIT 1),
        (SELECT t.expires FROM tenure.task t WHERE t.expires >= since ORDER BY t.expires LIMIT 1),
        (SELECT r.rest_until FROM tenure.resource r WHERE r.rests AND r.rest_until >= since ORDER BY r.rest_until LIMIT 1),
        (SELECT t.due FROM tenure.todo t WHERE t.due >= since ORDER BY t.due LIMIT 1),
        (SELECT min(tenure.taker_due(_now, t.queue)) FROM tenure.taker t WHERE t.session = mine.id));
    time := greatest(time, _now);
    UPDATE tenure.session s SET expires = time + s.ttl, page = s.page + 1, resting = true WHERE s.id = mine.id;
    RETURN ROW('resting', ARRAY[time - _now], NULL)::tenure.answer;
END $$;

CREATE FUNCTION tenure.renew_session(_clock bigint, _cap bigint, _session bytea, _rest bigint DEFAULT 0)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
    rest tenure.answer;
BEGIN
    PERFORM tenure.keep_session(_session);
    now := tenure.time(_clock);
    IF tenure.is_due(now) THEN
        RETURN tenure.reply('more');
    END IF;
    IF _rest > 0 THEN
        rest := tenure.rest_session(now, _session, _rest);
        IF rest.word IS NOT NULL THEN
            RETURN rest;
        END IF;
    END IF;
    RETURN tenure.reply(CASE WHEN tenure.prolong_session(_session, now) THEN 'ok' ELSE 'gone' END);
END $$;

-- What a session has, or waits for, above a rank of the family and a number: the first `_limit` things, in the order in
-- which the end of the session gives them up.
CREATE FUNCTION tenure.belongings(_session bigint, _rank bigint, _number bigint, _limit bigint)
RETURNS SETOF tenure.belonging LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM (
        (SELECT 0 AS rank, t.made AS number, 'holds' AS family, t.key, t.holder AS name, t.token > 0, t.token
            FROM tenure.hold t WHERE t.session = _session AND (0, t.made) > (_rank, _number)
            ORDER BY t.made LIMIT _limit)
        UNION ALL
        (SELECT 1, t.made, 'claims', t.pool, t.holder, t.resource IS NOT NULL, t.token
            FROM tenure.claim t
            WHERE t.session = _session AND (1, t.made) > (_rank, _number)
            ORDER BY t.made LIMIT _limit)
        UNION ALL
        (SELECT 3, t.made, 'producers', t.queue, t.name, t.reserved, 0
            FROM tenure.producer t WHERE t.session = _session AND (3, t.made) > (_rank, _number)
            ORDER BY t.made LIMIT _limit)
        UNION ALL
        (SELECT 4, t.token, 'tasks', t.queue, convert_to(t.id || ' ' || t.token, 'UTF8'), true, t.token
            FROM tenure.task t WHERE t.session = _session AND (4, t.token) > (_rank, _number)
            ORDER BY t.token LIMIT _limit)
        UNION ALL
        (SELECT 5, t.made, 'takers', t.queue, ''::bytea, false, 0
            FROM tenure.taker t WHERE t.session = _session AND (5, t.made) > (_rank, _number)
            ORDER BY t.made LIMIT _limit)
        UNION ALL
        (SELECT 6, t.made, 'watches', t.name, ''::bytea, false, 0
            FROM tenure.watch t WHERE t.session = _session AND (6, t.made) > (_rank, _number)
            ORDER BY t.made LIMIT _limit)
    ) b ORDER BY b.rank, b.number LIMIT _limit;
END $$;
