from __future__ import annotations

# The columns of a unique index; none for one with expressions (attnum 0) or a condition: these columns do not
# say which rows it covers.
INDEX_COLUMNS = """
    SELECT a.attname
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid
        AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE n.nspname = :schema AND c.relname = :constraint AND i.indpred IS NULL AND i.indexprs IS NULL
        AND i.indisunique
"""
