-- What a verdict does to a task: `after_verdict` in engine/_rules.py, for one task and for many in one statement.

-- Whether the verdict ends the task; its state then bears the name of the verdict.
CREATE FUNCTION tenure.is_ending(_verdict text) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN _verdict IN ('done', 'dead', 'discarded', 'cancelled');

-- How many times the task has failed then.
CREATE FUNCTION tenure.attempts_after(_verdict text, _attempts bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _verdict IN ('dead', 'retry') THEN _attempts + 1 ELSE _attempts END;

-- The payload in the record of a task that ended in a state.
CREATE FUNCTION tenure.payload_after(_state text, _keep boolean, _payload bytea) RETURNS bytea LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _keep OR _state = 'dead' THEN _payload ELSE '' END;
