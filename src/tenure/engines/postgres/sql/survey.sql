-- Looking around: names by kind, what sessions have, and how the server is doing.

-- The names from `_prefix` up to `_end` above `_after`, among the next `_limit`. -> names(; where to go on or empty,
-- name...), more
CREATE FUNCTION tenure.survey(
    _clock bigint, _cap bigint, _kind text, _prefix bytea, _end bytea, _after bytea, _limit bigint
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.time(_clock);
    one record;
    last bytea := _after;
    looked bigint := 0;
    names bytea[] := '{}';
BEGIN
    IF tenure.is_due(now) THEN
        RETURN tenure.word('more');
    END IF;
    IF _kind = 'pools' THEN
        WHILE looked < _limit LOOP
            last := (SELECT r.pool FROM tenure.resource r
                WHERE r.pool >= _prefix AND r.pool < _end AND r.pool > last ORDER BY r.pool LIMIT 1);
            EXIT WHEN last IS NULL;
            looked := looked + 1;
            names := names || last;
        END LOOP;
    ELSIF _kind = 'holds' THEN
        FOR one IN SELECT l.key AS name, l.held > 0 AS counts FROM tenure.line l
            WHERE l.key >= _prefix AND l.key < _end AND l.key > _after ORDER BY l.key LIMIT _limit
        LOOP
            looked := looked + 1;
            last := one.name;
            names := CASE WHEN one.counts THEN names || one.name ELSE names END;
        END LOOP;
    ELSIF _kind = 'queues' THEN
        FOR one IN SELECT q.name, (tenure.seen(now, q.name)).put > 0 AS counts FROM tenure.queue q
            WHERE q.name >= _prefix AND q.name < _end AND q.name > _after ORDER BY q.name LIMIT _limit
        LOOP
            looked := looked + 1;
            last := one.name;
            names := CASE WHEN one.counts THEN names || one.name ELSE names END;
        END LOOP;
    ELSE
        FOR one IN SELECT s.name FROM tenure.session s
            WHERE s.name >= _prefix AND s.name < _end AND s.name > _after ORDER BY s.name LIMIT _limit
        LOOP
            looked := looked + 1;
            last := one.name;
            names := names || one.name;
        END LOOP;
    END IF;
    RETURN ROW('names', NULL, CASE WHEN looked < _limit THEN '' ELSE last END || names)::tenure.answer;
END $$;

-- At most `_limit` things above a rank of the family and a number. -> session(; process), then the family's name(rank,
-- number, 1 if it is held, token; key, name); unknown, more
CREATE FUNCTION tenure.belongings(
    _clock bigint, _cap bigint, _session bytea, _rank bigint, _number bigint, _limit bigint
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    mine tenure.session;
BEGIN
    IF tenure.is_due(tenure.time(_clock)) THEN
        RETURN NEXT tenure.word('more');
        RETURN;
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session;
    IF NOT FOUND THEN
        RETURN NEXT tenure.word('unknown');
        RETURN;
    END IF;
    RETURN NEXT ROW('session', NULL, ARRAY[mine.process])::tenure.answer;
    RETURN QUERY
        SELECT b.family, ARRAY[b.rank, b.number, b.has::int, b.token], ARRAY[b.key, b.name]
        FROM (
            (SELECT 0 AS rank, t.made AS number, 'holds' AS family, t.key, t.holder AS name, t.token > 0 AS has,
                    t.token
                FROM tenure.hold t WHERE t.session = mine.id AND (0, t.made) > (_rank, _number)
                ORDER BY t.made LIMIT _limit)
            UNION ALL
            (SELECT 1, t.made, 'claims', t.pool, t.holder, t.resource IS NOT NULL, coalesce(r.token, 0)
                FROM tenure.claim t LEFT JOIN tenure.resource r ON r.pool = t.pool AND r.name = t.resource
                WHERE t.session = mine.id AND (1, t.made) > (_rank, _number)
                ORDER BY t.made LIMIT _limit)
            UNION ALL
            (SELECT 2, t.made, 'arrivals', t.key, t.participant, t.outcome IS NOT NULL, 0
                FROM tenure.party t WHERE t.session = mine.id AND (2, t.made) > (_rank, _number)
                ORDER BY t.made LIMIT _limit)
            UNION ALL
            (SELECT 3, t.made, 'producers', t.queue, t.name, t.reserved, 0
                FROM tenure.producer t WHERE t.session = mine.id AND (3, t.made) > (_rank, _number)
                ORDER BY t.made LIMIT _limit)
            UNION ALL
            (SELECT 4, t.token, 'tasks', t.queue, convert_to(t.id || ' ' || t.token, 'UTF8'), true,
                    t.token
                FROM tenure.task t WHERE t.session = mine.id AND (4, t.token) > (_rank, _number)
                ORDER BY t.token LIMIT _limit)
            UNION ALL
            (SELECT 5, t.made, 'takers', t.queue, ''::bytea, false, 0
                FROM tenure.taker t WHERE t.session = mine.id AND (5, t.made) > (_rank, _number)
                ORDER BY t.made LIMIT _limit)
        ) b
        ORDER BY b.rank, b.number LIMIT _limit;
END $$;

-- -> server(now, version of the schema, bytes of the database, dead rows, seconds of the oldest transaction,
-- connections, most connections), then setting(; name, value) of each that matters; more
CREATE FUNCTION tenure.examine(_clock bigint, _cap bigint) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.time(_clock);
BEGIN
    IF tenure.is_due(now) THEN
        RETURN NEXT tenure.word('more');
        RETURN;
    END IF;
    RETURN NEXT ROW('server', ARRAY[
        now,
        (SELECT m.version FROM tenure.meta m),
        pg_database_size(current_database()),
        (SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_stat_user_tables s
            WHERE s.relid IN ('tenure.task'::regclass, 'tenure.ended'::regclass)),
        (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - a.xact_start)), 0)::bigint FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.backend_type = 'client backend'),
        (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'),
        current_setting('max_connections')::bigint
    ], NULL)::tenure.answer;
    RETURN QUERY SELECT 'setting', NULL::bigint[], ARRAY[s.name::bytea, s.setting::bytea] FROM pg_settings s
        WHERE s.name IN ('server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum');
END $$;
