-- Runs one operation, unless there is something to clear up before it.

if something_is_due() then
    return 'more'
end
local answer = operations[ARGV[3]]()
keep_numbers()
return unfinished and 'more' or answer
