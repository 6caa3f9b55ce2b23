-- What a verdict does to a task: `after_verdict` in engine/_rules.py, for one task and for many in one statement.

-- Whether the verdict ends the task; its state then bears the name of the verdict.
CREATE FUNCTION tenure.is_ending(_verdict text) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN _verdict IN ('done', 'dead', 'discarded', 'cancelled');

-- How many times the task has failed then. `_result` is that of a verdict which does not end the task.
CREATE FUNCTION tenure.attempts_after(_verdict text, _attempts bigint, _result bytea DEFAULT '') RETURNS bigint
LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _verdict IN ('dead', 'retry') THEN _attempts + 1
        WHEN _verdict = 'postpone' AND _result = 'anew' THEN 0 ELSE _attempts END;

-- How many times a task that goes back has been delivered then; `_attempts` are those after the verdict.
CREATE FUNCTION tenure.deliveries_after(_verdict text, _result bytea, _attempts bigint, _deliveries bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _verdict = 'give back' OR _verdict = 'postpone' AND _result NOT IN ('', 'anew')
        THEN _deliveries - 1 ELSE _attempts END;

-- The payload in the record of a task that ended in a state.
CREATE FUNCTION tenure.payload_after(_state text, _keep boolean, _payload bytea) RETURNS bytea LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN _keep OR _state = 'dead' THEN _payload ELSE '' END;
