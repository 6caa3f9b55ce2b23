-- The indexes of which `scan` reads a page, by their names.

local indexes = {}

indexes.by_name = {}

return indexes
