-- Connections through a pooler, by name. A pooler may pass on a statement late, when its client has connected anew: it
-- must not be executed behind what that client has sent since.
-- Needs: state

-- Begins each transaction of a connection; the settings last as long as the transaction.
CREATE FUNCTION tenure.of_link(_link bytea, _settings text[], _values text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config(s.name, s.value, true) FROM unnest(_settings, _values) AS s(name, value);
    PERFORM pg_advisory_xact_lock_shared(hashtext('tenure.link'), hashtext(encode(_link, 'hex')));
    IF EXISTS (SELECT FROM tenure.former_link f WHERE f.name = _link) THEN
        RAISE 'this connection was given up' USING ERRCODE = 'connection_does_not_exist';
    END IF;
END $$;

-- Refuse all further transactions of the connection, and wait for those under way. No pooler keeps a statement for a
-- day.
CREATE FUNCTION tenure.end_link(_link bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenure.lock('link', _link);
    INSERT INTO tenure.former_link (name, ended_at) VALUES (_link, tenure.time(NULL)) ON CONFLICT DO NOTHING;
    DELETE FROM tenure.former_link f WHERE f.ended_at < tenure.time(NULL) - 86400000000;
END $$;
