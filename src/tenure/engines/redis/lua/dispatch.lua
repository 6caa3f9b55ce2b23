-- Runs the operation ARGV[3] on the object ARGV[4].

local answer = operations[ARGV[3]](ARGV[4])
save_numbers()
return unfinished and 'more' or answer
