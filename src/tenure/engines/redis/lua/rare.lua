-- What is seldom needed is made only when it is: to make a function costs as much as a small command.

local made

rare = function()
    if not made then
        -- include session_items
        -- include queue_rare
        -- include tasks_rare
        made = {
            admit = admit, drop_producer = drop_producer, fire_if = fire_if,
            first_delayed = first_delayed, attach = attach, line_up = line_up,
            offer_sooner = offer_sooner, producer_item = producer_item, promote = promote,
            read_producer = read_producer, remove_producer = remove_producer,
            return_task = return_task, step_out = step_out,
        }
    end
    return made
end
