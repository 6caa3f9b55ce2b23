-- What is seldom needed is made only when it is: to make a function costs as much as a small command.

local made

rare = function()
    if not made then
        -- include session_items
        -- include queue_rare
        -- include tasks_rare
        made = {
            admit = admit, announce = announce, drop_producer = drop_producer, ending_of = ending_of, fire_if = fire_if,
            first_delayed = first_delayed, attach = attach, leave_the_dead = leave_the_dead, line_up = line_up,
            offer_sooner = offer_sooner, producer_item = producer_item, promote = promote, purge_dead = purge_dead,
            read_producer = read_producer, remove_producer = remove_producer, return_task = return_task,
            stand_again = stand_again, step_out = step_out, unlist_ending = unlist_ending,
        }
    end
    return made
end
