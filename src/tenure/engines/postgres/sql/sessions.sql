-- Sessions: life signs.
-- Needs: state

CREATE FUNCTION tenure.ping(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE sql VOLATILE
    RETURN tenure.reply(CASE WHEN tenure.is_due(tenure.time(_clock)) THEN 'more' ELSE 'ok' END);

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
    INSERT INTO tenure.session AS s (name, process, ttl, expires) VALUES (_session, _process, _ttl, now + _ttl)
    ON CONFLICT (name) DO UPDATE SET ttl = excluded.ttl, expires = excluded.expires;
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
    UPDATE tenure.session s SET expires = now + s.ttl WHERE s.name = _session;
    RETURN tenure.reply(CASE WHEN FOUND THEN 'ok' ELSE 'gone' END);
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
        (SELECT 1, t.made, 'claims', t.pool, t.holder, t.resource IS NOT NULL, coalesce(r.token, 0)
            FROM tenure.claim t LEFT JOIN tenure.resource r ON r.pool = t.pool AND r.name = t.resource
            WHERE t.session = _session AND (1, t.made) > (_rank, _number)
            ORDER BY t.made LIMIT _limit)
        UNION ALL
        (SELECT 2, t.made, 'arrivals', t.key, t.name, t.outcome IS NOT NULL, 0
            FROM tenure.participant t WHERE t.session = _session AND (2, t.made) > (_rank, _number)
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
