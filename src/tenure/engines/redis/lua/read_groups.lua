-- Read the groups of the next tasks at once.
local names, i = {}, next_argument
for j = 1, count do
    local how = ARGV[i + 1]
    names[j], i = how == '+' and ARGV[i + 8] or sub(how, 2), i + (how == '+' and 9 or 2)
end
rare('groups').read_groups(queue, names)
