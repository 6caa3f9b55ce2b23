-- What is seldom needed is made only when it is: to make a function costs as much as a small command. There are two parts;
-- `rare('groups')` is that of the groups.

local made, made_groups

rare = function(part)
    if part and not made_groups then
        -- include groups
        made_groups = {
            bind = bind, come = come, count_ready = count_ready, enter = enter,
            first_members = first_members, go = go, is_bound = is_bound, known_of = known_of, leave = leave,
            make_group = make_group, prefix_of = prefix_of, priority_of = priority_of, rank_of = rank_of, read_group = read_group,
            read_groups = read_groups, refresh = refresh, refund = refund, rest = rest,
            save_groups = save_groups, save_tags = save_tags, split_member = split_member, take_out =
            take_out, tidy_group = tidy_group, touch = touch, turn_of = turn_of, unknown = UNKNOWN, unlease_in = unlease_in,
            unpack_group = unpack_group, usual = USUAL,
        }
    elseif not part and not made then
        -- include session_items
        -- include group_lines
        -- include producers
        -- include order
        made = {
            new_producer = new_producer, place_of_producer = place_of_producer,
            admit = admit, admit_everywhere = admit_everywhere, admit_in_group = admit_in_group, announce = announce,
            attach = attach, drop_producer = drop_producer, ending_of = ending_of, fire_if = fire_if, first_delayed =
            first_delayed, first_in_group = first_in_group, groups_have_room = groups_have_room, join_group =
            join_group, join_line = join_line, leave_the_dead = leave_the_dead, line_of = line_of, line_up = line_up,
            make_room = make_room, offer_sooner = offer_sooner, producer_item = producer_item, promote = promote,
            purge_dead = purge_dead, read_producer = read_producer, remove_producer = remove_producer, return_task =
            return_task, since_of = since_of, stand_again = stand_again, step_out = step_out, unlist_ending = unlist_ending, write_producer =
            write_producer,
        }
    end
    return part and made_groups or made
end
