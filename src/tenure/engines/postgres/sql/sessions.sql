-- Sessions: life signs.
-- Needs: state

CREATE FUNCTION tenure.ping(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE sql VOLATILE
    RETURN tenure.reply(CASE WHEN tenure.is_due(tenure.time(_clock)) THEN 'more' ELSE 'ok' END);

-- The session lives for a ttl from now on, or for its own. False if there is none.
CREATE FUNCTION tenure.prolong_session(_session bytea, _now bigint, _ttl bigint DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    -- a session that was prolonged meanwhile has a later page
    UPDATE tenure.session s SET ttl = coalesce(_ttl, s.ttl), expires = _now + coalesce(_ttl, s.ttl), page = s.page + 1
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

CREATE FUNCTION tenure.renew_session(_clock bigint, _cap bigint, _session bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
BEGIN
    PERFORM tenure.keep_session(_session);
    now := tenure.time(_clock);
    IF tenure.is_due(now) THEN
        RETURN tenure.reply('more');
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
