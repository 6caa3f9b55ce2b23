------------------------------- MODULE Trace -------------------------------
(* Is what was seen of an engine a behaviour of the specification? The module Walks, which tests write, has Seen:    *)
(* the states of walks, one behind the other, with what is compared of each. If there is such a behaviour, TLC finds *)
(* NotAccepted violated. Sweeps visit children unseen, behind the work of their operation.                          *)

EXTENDS Tenure, Walks

VARIABLES
    at,          \* so many states were met
    within       \* an operation has begun, and its sweep goes on

Looks(n) ==
    LET seen == Seen[n] IN
    /\ alive = seen.alive /\ line = seen.line /\ token = seen.token
    /\ \A s \in Lockers : held[s] = seen.held[s]
    /\ \A i \in Ids : IF i <= Len(seen.task)
                      THEN \A field \in DOMAIN seen.task[i] : task[i][field] = seen.task[i][field]
                      ELSE task[i].state = "none"

(* The children are so few that an operation visits all that are to be cancelled. *)
Swept ==
    \A c \in Ids : task[c].parent # 0 /\ task[task[c].parent].sweep
        => task[c].state \in Over \/ Stopping(task[c])

Meets == at' = at + 1 /\ within' = FALSE /\ Looks(at)' /\ Swept'
Sweeps == at' = at /\ within' = TRUE /\ \E i \in Ids : task'[i].sweep

(* The next walk begins: Init, of the next state. *)
Anew ==
    /\ alive' = {} /\ held' = [s \in Lockers |-> 0] /\ line' = <<>> /\ token' = 0 /\ believed' = {} /\ file' = 0
    /\ task' = [i \in Ids |-> Unborn]

TraceInit == Init /\ at = 1 /\ within = FALSE

TraceNext ==
    /\ at < Len(Seen)
    /\ \/ ~within /\ Next /\ file' = file /\ (Meets \/ Sweeps)
       \/ within /\ (\E i \in Ids : Visit(i)) /\ (Meets \/ Sweeps)
       \/ ~within /\ UNCHANGED vars /\ Meets
       \/ ~within /\ Seen[at + 1].new /\ Anew /\ at' = at + 1 /\ within' = FALSE

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, at, within>>
NotAccepted == at < Len(Seen)
=============================================================================
