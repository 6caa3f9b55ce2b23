-- The operations of a family, by name: `dispatch` calls one.

local operations = {}
