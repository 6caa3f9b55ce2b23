-- Looking around: names by kind, what sessions have, and how the server is doing.
-- Needs: sessions, state, tasks

-- The names from `_prefix` up to `_end` above `_after`, among the next `_limit`. -> names(; where to go on or empty,
-- name...), more
CREATE FUNCTION tenure.list_keys(
    _clock bigint, _cap bigint, _kind text, _prefix bytea, _end bytea, _after bytea, _limit bigint
) RETURNS tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.time(_clock);
    one record;
    last bytea := _after;
    seen bigint := 0;
    names bytea[] := '{}'::bytea[];
BEGIN
    IF tenure.is_due(now) THEN
        RETURN tenure.reply('more');
    END IF;
    IF _kind = 'pools' THEN
        WHILE seen < _limit LOOP
            last := (SELECT r.pool FROM tenure.resource r
                WHERE r.pool >= _prefix AND r.pool < _end AND r.pool > last ORDER BY r.pool LIMIT 1);
            EXIT WHEN last IS NULL;
            seen := seen + 1;
            names := names || last;
        END LOOP;
    ELSIF _kind = 'holds' THEN
        FOR one IN SELECT l.key AS name, l.held > 0 AS counts FROM tenure.line l
            WHERE l.key >= _prefix AND l.key < _end AND l.key > _after ORDER BY l.key LIMIT _limit
        LOOP
            seen := seen + 1;
            last := one.name;
            names := CASE WHEN one.counts THEN names || one.name ELSE names END;
        END LOOP;
    ELSIF _kind = 'queues' THEN
        FOR one IN SELECT q.name, (tenure.read_queue(now, q.name)).put > 0 AS counts FROM tenure.queue q
            WHERE q.name >= _prefix AND q.name < _end AND q.name > _after ORDER BY q.name LIMIT _limit
        LOOP
            seen := seen + 1;
            last := one.name;
            names := CASE WHEN one.counts THEN names || one.name ELSE names END;
        END LOOP;
    ELSE
        FOR one IN SELECT s.name FROM tenure.session s
            WHERE s.name >= _prefix AND s.name < _end AND s.name > _after ORDER BY s.name LIMIT _limit
        LOOP
            seen := seen + 1;
            last := one.name;
            names := names || one.name;
        END LOOP;
    END IF;
    RETURN ROW('names', NULL, CASE WHEN seen < _limit THEN '' ELSE last END || names)::tenure.answer;
END $$;

-- At most `_limit` things above a rank of the family and a number. -> session(; process), then the family's name(rank,
-- number, 1 if it is held, token; key, name); unknown, more
CREATE FUNCTION tenure.describe_session(
    _clock bigint, _cap bigint, _session bytea, _rank bigint, _number bigint, _limit bigint
) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    mine tenure.session;
BEGIN
    IF tenure.is_due(tenure.time(_clock)) THEN
        RETURN NEXT tenure.reply('more');
        RETURN;
    END IF;
    SELECT * INTO mine FROM tenure.session s WHERE s.name = _session;
    IF NOT FOUND THEN
        RETURN NEXT tenure.reply('unknown');
        RETURN;
    END IF;
    RETURN NEXT ROW('session', NULL, ARRAY[mine.process])::tenure.answer;
    RETURN QUERY SELECT b.family, ARRAY[b.rank, b.number, b.is_held::int, b.token], ARRAY[b.key, b.name]
        FROM tenure.belongings(mine.id, _rank, _number, _limit) b WHERE b.family <> 'watches';
END $$;

-- The oldest snapshot, which keeps dead rows from being cleared away: whose it is, how many transactions have begun
-- since, and for how many seconds it has been there, -1 if the server does not know. All is NULL if there is none.
CREATE FUNCTION tenure.oldest_snapshot(OUT _who text, OUT _age bigint, OUT _seconds bigint) LANGUAGE plpgsql AS $$
BEGIN
    SELECT s.who, s.age, coalesce(extract(epoch FROM clock_timestamp() - s.since), -1)::bigint
    INTO _who, _age, _seconds FROM (
        SELECT greatest(age(a.backend_xmin), age(a.backend_xid)) AS age, a.xact_start AS since, concat(
            a.backend_type, ' ', a.pid, ' of ', coalesce(a.usename, 'the server'),
            ' (' || nullif(a.application_name, '') || ')', ', ' || a.state) AS who
        FROM pg_stat_activity a
        WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database() OR a.backend_type = 'walsender')
        UNION ALL
        SELECT age(r.xmin), NULL, concat('replication slot ', r.slot_name) FROM pg_replication_slots r
        UNION ALL
        SELECT age(p.transaction), p.prepared, concat('prepared transaction ', p.gid, ' of ', p.owner)
        FROM pg_prepared_xacts p WHERE p.database = current_database()
    ) s WHERE s.age IS NOT NULL ORDER BY s.age DESC, s.since LIMIT 1;
END $$;

-- -> server(now, version of the schema, bytes of the database, dead rows, bytes of the tables with these, connections,
-- most connections), snapshot(age in transactions, seconds; who) of the oldest one, then setting(; name, value) of each
-- that matters; more
CREATE FUNCTION tenure.check_health(_clock bigint, _cap bigint) RETURNS SETOF tenure.answer LANGUAGE plpgsql AS $$
DECLARE
    now bigint := tenure.time(_clock);
BEGIN
    IF tenure.is_due(now) THEN
        RETURN NEXT tenure.reply('more');
        RETURN;
    END IF;
    RETURN NEXT ROW('server', ARRAY[
        now,
        (SELECT m.version FROM tenure.meta m),
        pg_database_size(current_database()),
        (SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_stat_user_tables s
            WHERE s.relid IN ('tenure.task'::regclass, 'tenure.ended'::regclass)),
        pg_total_relation_size('tenure.task') + pg_total_relation_size('tenure.ended'),
        (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'),
        current_setting('max_connections')::bigint
    ], NULL)::tenure.answer;
    RETURN QUERY SELECT 'snapshot', ARRAY[s._age, s._seconds], ARRAY[convert_to(s._who, 'UTF8')]
        FROM tenure.oldest_snapshot() s WHERE s._age IS NOT NULL;
    RETURN QUERY SELECT 'setting', NULL::bigint[], ARRAY[s.name::bytea, s.setting::bytea] FROM pg_settings s
        WHERE s.name IN ('server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum');
END $$;
