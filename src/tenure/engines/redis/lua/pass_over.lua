-- The next tasks are not put.
for _ = 1, count do
    next_argument = next_argument + (ARGV[next_argument + 1] == '+' and 9 or 2)
end
