-- Sessions: life signs.

CREATE FUNCTION tenure.ping(_clock bigint, _cap bigint) RETURNS tenure.answer LANGUAGE sql VOLATILE
    RETURN tenure.word(CASE WHEN tenure.is_due(tenure.time(_clock)) THEN 'more' ELSE 'ok' END);

CREATE FUNCTION tenure.open_session(_clock bigint, _cap bigint, _session bytea, _process bytea, _ttl bigint)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
BEGIN
    PERFORM tenure.keep(_session);
    now := tenure.time(_clock);
    IF tenure.is_due(now) THEN
        RETURN tenure.word('more');
    END IF;
    INSERT INTO tenure.session AS s (name, process, ttl, expires) VALUES (_session, _process, _ttl, now + _ttl)
    ON CONFLICT (name) DO UPDATE SET ttl = excluded.ttl, expires = excluded.expires;
    RETURN tenure.word('ok');
END $$;

CREATE FUNCTION tenure.renew_session(_clock bigint, _cap bigint, _session bytea)
RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint;
BEGIN
    PERFORM tenure.keep(_session);
    now := tenure.time(_clock);
    IF tenure.is_due(now) THEN
        RETURN tenure.word('more');
    END IF;
    UPDATE tenure.session s SET expires = now + s.ttl WHERE s.name = _session;
    RETURN tenure.word(CASE WHEN FOUND THEN 'ok' ELSE 'gone' END);
END $$;
