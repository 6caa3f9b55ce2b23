-- Runs the operation ARGV[3] on the object ARGV[4].
-- Reads: is_unfinished, operations, save_numbers

local answer = operations[ARGV[3]](ARGV[4])
save_numbers()
return is_unfinished and 'more' or answer
