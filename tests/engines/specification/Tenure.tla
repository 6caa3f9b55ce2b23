------------------------------- MODULE Tenure -------------------------------
(* Sessions, holds and tasks of tenure, in the way in which every engine keeps them. Each action is one atomic      *)
(* operation of an engine, or one moment in the life of a client. The engine's time is left out: a session may       *)
(* expire at any moment, and a try that failed is ready at once. So are priorities and groups: any waiting task may  *)
(* be taken. What is proved holds for every order and every timing.                                                 *)
(*                                                                                                                  *)
(* docs/explanations/specification.md says how it is checked, and how the engines are checked against it.           *)

EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Lockers,     \* the sessions that use the lock
    Workers,     \* the sessions that take tasks
    Capacity,    \* so many hold at once: 1 for a lock, more for a semaphore
    N,           \* the number of tasks that are put
    Depth,       \* so many levels below a root have tasks
    Names,       \* the names of children
    Tries,       \* a task is tried at most so many times
    Losses,      \* after so many deliveries without a verdict a task is dead
    Counted,     \* FALSE leaves out the tokens of tasks: nothing depends on them, and the search is finite
    Most         \* the search ends at this token

VARIABLES
    alive,       \* the sessions that the engine knows
    held,        \* for each locker the token under which it holds, or 0
    line,        \* the lockers that wait, first come first
    token,       \* the last token that was given out
    believed,    \* the tokens of holds that clients believe to have; a client that is frozen goes on believing
    file,        \* the highest token of a write that a fence has let through
    task         \* the tasks, by their numbers

lock == <<held, line, believed, file>>
vars == <<alive, held, line, token, believed, file, task>>

Ids == 1..N
Sessions == Lockers \cup Workers
Unborn == [state |-> "none", by |-> "none", token |-> 0, stop |-> FALSE, tries |-> 0, deliveries |-> 0,
           parent |-> 0, name |-> "none", born |-> 0, listed |-> FALSE, verdict |-> "none", block |-> FALSE,
           sweep |-> FALSE]
(* state:     none, waiting, leased, suspended, ending, done, dead or cancelled                                     *)
(* stop:      the holder of the lease is asked to cancel                                                            *)
(* tries:     so many tries have failed; deliveries: so often it was taken, but for deliveries that were given back *)
(* born:      the number of the try of its parent in which a child was put                                          *)
(* listed:    the parent finds the child under its name                                                            *)
(* verdict:   what happens to a task that is ending when its last child has ended: its end, or "retry"              *)
(* block:     the task is suspended until its children have ended, and one that fails cancels the others            *)
(* sweep:     the children of the task are to be cancelled                                                          *)

Over == {"done", "dead", "cancelled"}
Unfinished(T, i) == {c \in Ids : T[c].parent = i /\ T[c].state \notin Over}
Failed(T, i) == {c \in Ids : T[c].parent = i /\ T[c].listed /\ T[c].state \in Over \ {"done"}}

RECURSIVE Level(_)
Level(i) == IF task[i].parent = 0 THEN 0 ELSE 1 + Level(task[i].parent)

Init ==
    /\ alive = {}
    /\ held = [s \in Lockers |-> 0]
    /\ line = <<>>
    /\ token = 0
    /\ believed = {}
    /\ file = 0
    /\ task = [i \in Ids |-> Unborn]

-----------------------------------------------------------------------------
(* Holds: a line in which the first is served as soon as there is room.                                            *)

Holding(h) == {s \in Lockers : h[s] > 0}

RECURSIVE Serve(_, _, _, _)
Serve(h, l, t, b) ==
    IF l # <<>> /\ Cardinality(Holding(h)) < Capacity
    THEN Serve([h EXCEPT ![Head(l)] = t + 1], Tail(l), t + 1, b \cup {t + 1})
    ELSE held' = h /\ line' = l /\ token' = t /\ believed' = b

Waits(s) == \E n \in 1..Len(line) : line[n] = s
Without(s) == SelectSeq(line, LAMBDA other : other # s)

Acquire(s) ==
    /\ s \in alive /\ held[s] = 0 /\ ~Waits(s)
    /\ Serve(held, Append(line, s), token, believed)
    /\ UNCHANGED <<alive, file, task>>

Release(s) ==
    /\ held[s] > 0 \/ Waits(s)
    /\ Serve([held EXCEPT ![s] = 0], Without(s), token, believed \ {held[s]})
    /\ UNCHANGED <<alive, file, task>>

(* A client hears that its hold is lost, sooner or later or never. *)
Hear(t) ==
    /\ t \in believed /\ \A s \in Lockers : held[s] # t
    /\ believed' = believed \ {t}
    /\ UNCHANGED <<alive, held, line, token, file, task>>

(* A client writes what the lock guards, under its token. The fence refuses a token below one that it has seen. *)
Write(t) ==
    /\ t \in believed /\ t >= file
    /\ file' = t
    /\ UNCHANGED <<alive, held, line, token, believed, task>>

-----------------------------------------------------------------------------
(* Tasks: what an end, a return and a cancellation make of all tasks T.                                            *)

EndTry(T, i) == [c \in Ids |-> IF c \in Failed(T, i) THEN [T[c] EXCEPT !.listed = FALSE] ELSE T[c]]

GoBack(T, i) ==
    [T EXCEPT ![i] = [@ EXCEPT !.state = "waiting", !.by = "none", !.token = 0, !.stop = FALSE,
                               !.verdict = "none", !.block = FALSE, !.sweep = FALSE]]

(* A task has ended, and its parent is told in the same step. *)
RECURSIVE End(_, _, _)
End(T, i, state) ==
    LET U == [T EXCEPT ![i] = [@ EXCEPT !.state = state, !.by = "none", !.token = 0, !.stop = FALSE,
                                        !.verdict = "none", !.block = FALSE, !.sweep = FALSE]]
        p == T[i].parent
    IN CASE p = 0 -> U
         [] p # 0 /\ U[p].state = "ending" /\ Unfinished(U, p) = {} ->
                IF U[p].verdict = "retry" THEN GoBack(EndTry(U, p), p) ELSE End(U, p, U[p].verdict)
         [] p # 0 /\ U[p].state = "suspended" ->
                IF Unfinished(U, p) = {} THEN GoBack(U, p)
                ELSE IF U[p].block /\ state # "done" THEN [U EXCEPT ![p].block = FALSE, ![p].sweep = TRUE]
                ELSE U
         [] OTHER -> U

(* A verdict that ends a task, or its try, is kept until the last child has ended, and the children are cancelled. *)
Finish(T, i, verdict) ==
    IF Unfinished(T, i) # {}
    THEN [T EXCEPT ![i] = [@ EXCEPT !.state = "ending", !.by = "none", !.token = 0, !.stop = FALSE,
                                    !.verdict = verdict, !.block = FALSE, !.sweep = TRUE]]
    ELSE IF verdict = "retry" THEN GoBack(EndTry(T, i), i) ELSE End(T, i, verdict)

Suspend(T, i, block) ==
    LET U == [T EXCEPT ![i].deliveries = T[i].tries]
    IN IF Unfinished(T, i) = {} THEN GoBack(U, i)
       ELSE LET now == block /\ Failed(U, i) # {}
            IN [U EXCEPT ![i] = [@ EXCEPT !.state = "suspended", !.by = "none", !.token = 0,
                                          !.block = block /\ ~now, !.sweep = now]]

Stopping(t) == t.stop \/ (t.state = "ending" /\ t.verdict # "retry")

Cancelled(T, i) ==
    CASE Stopping(T[i]) -> T
      [] T[i].state = "leased" -> [T EXCEPT ![i].stop = TRUE, ![i].sweep = TRUE]
      [] T[i].state = "ending" -> [T EXCEPT ![i].verdict = "cancelled"]
      [] OTHER -> Finish(T, i, "cancelled")

(* The session that had a task has ended without a verdict on it. *)
Dropped(T, i) ==
    IF T[i].stop THEN Finish(T, i, "cancelled")
    ELSE IF T[i].deliveries - T[i].tries >= Losses THEN Finish(T, i, "dead")
    ELSE GoBack(T, i)

RECURSIVE DropAll(_, _)
DropAll(T, s) ==
    LET mine == {i \in Ids : T[i].by = s}
    IN IF mine = {} THEN T
       ELSE DropAll(Dropped(T, CHOOSE i \in mine : \A j \in mine : i <= j), s)

-----------------------------------------------------------------------------
(* Tasks: what can happen.                                                                                         *)

Born(i) == task[i].state = "none" /\ \A j \in 1..(i - 1) : task[j].state # "none"

Put(i) ==
    /\ Born(i)
    /\ task' = [task EXCEPT ![i].state = "waiting"]
    /\ UNCHANGED <<alive, lock, token>>

Take(s, i) ==
    /\ s \in alive /\ task[i].state = "waiting"
    /\ token' = IF Counted THEN token + 1 ELSE token
    /\ task' = [task EXCEPT ![i] = [@ EXCEPT !.state = "leased", !.by = s, !.token = token',
                                             !.deliveries = @ + 1]]
    /\ UNCHANGED <<alive, lock>>

(* Only the delivery in force puts children and gives verdicts: those of an older token are refused, which changes   *)
(* nothing, and so is no step.                                                                                      *)
PutChild(i, name, c) ==
    /\ task[i].state = "leased" /\ ~task[i].stop /\ Level(i) < Depth /\ Born(c)
    /\ ~\E other \in Ids : task[other].parent = i /\ task[other].name = name /\ task[other].listed
    /\ task' = [task EXCEPT ![c] = [@ EXCEPT !.state = "waiting", !.parent = i, !.name = name, !.listed = TRUE,
                                             !.born = task[i].tries]]
    /\ UNCHANGED <<alive, lock, token>>

Settle(i, verdict) ==
    LET failed == [task EXCEPT ![i].tries = @ + 1]
        stop == task[i].stop
    IN /\ task[i].state = "leased"
       /\ task' = CASE verdict = "done" /\ Unfinished(task, i) # {} /\ ~stop -> Suspend(task, i, FALSE)
                    [] verdict = "done" /\ (Unfinished(task, i) = {} \/ stop) ->
                           Finish(task, i, IF Unfinished(task, i) = {} THEN "done" ELSE "cancelled")
                    [] verdict = "dead" -> Finish(failed, i, "dead")
                    [] verdict \notin {"done", "dead"} /\ (stop \/ verdict = "cancel") ->
                           Finish(task, i, "cancelled")
                    [] verdict = "retry" /\ ~stop ->
                           Finish([failed EXCEPT ![i].deliveries = task[i].tries + 1], i, "retry")
                    [] verdict = "give back" /\ ~stop -> GoBack([task EXCEPT ![i].deliveries = @ - 1], i)
                    [] verdict = "wait" /\ ~stop -> Suspend(task, i, TRUE)
       /\ UNCHANGED <<alive, lock, token>>

Cancel(i) ==
    /\ task[i].state \notin Over \cup {"none"}
    /\ task' = Cancelled(task, i)
    /\ UNCHANGED <<alive, lock, token>>

(* A sweep visits one child; an operation makes a few visits, and leaves the others for later ones. *)
Visit(c) ==
    /\ task[c].state \notin Over \cup {"none"} /\ ~Stopping(task[c])
    /\ task[c].parent # 0 /\ task[task[c].parent].sweep
    /\ task' = Cancelled(task, c)
    /\ UNCHANGED <<alive, lock, token>>

-----------------------------------------------------------------------------
(* Sessions: the only way in which an engine learns of a death is that a session is not renewed.                    *)

Open(s) == s \notin alive /\ alive' = alive \cup {s} /\ UNCHANGED <<lock, token, task>>

Expire(s) ==
    /\ s \in alive
    /\ alive' = alive \ {s}
    /\ IF s \in Lockers THEN Serve([held EXCEPT ![s] = 0], Without(s), token, believed)
                        ELSE UNCHANGED <<held, line, token, believed>>
    /\ task' = DropAll(task, s)
    /\ UNCHANGED file

Verdicts(i) == {"done", "dead", "cancel", "give back", "wait"} \cup (IF task[i].tries < Tries - 1 THEN {"retry"} ELSE {})

Next ==
    \/ \E s \in Sessions : Open(s) \/ Expire(s)
    \/ \E s \in Lockers : Acquire(s) \/ Release(s)
    \/ \E t \in believed : Hear(t) \/ Write(t)
    \/ \E i \in Ids : Put(i) \/ Cancel(i) \/ Visit(i)
    \/ \E s \in Workers, i \in Ids : Take(s, i)
    \/ \E i, c \in Ids, name \in Names : PutChild(i, name, c)
    \/ \E i \in Ids : \E verdict \in Verdicts(i) : Settle(i, verdict)

Spec == Init /\ [][Next]_vars

Bound == token <= Most

-----------------------------------------------------------------------------
(* The laws of holds.                                                                                              *)

MutualExclusion == Cardinality(Holding(held)) <= Capacity
OnlyTheLivingHold == Holding(held) \cup {line[n] : n \in 1..Len(line)} \subseteq alive
NobodyWaitsForRoom == line # <<>> => Cardinality(Holding(held)) = Capacity
(* The holder of a lock may write, whatever those before it wrote late; and once it has written, none of them may. *)
TheHolderMayWrite == Capacity = 1 => \A s \in Holding(held) : held[s] >= file
TheStaleMayNot == Capacity = 1 => \A t \in believed, s \in Holding(held) : file = held[s] /\ t # file => t < file
TokensDiffer ==
    /\ \A s, r \in Holding(held) : held[s] = held[r] => s = r
    /\ \A i, j \in Ids : task[i].token # 0 /\ task[i].token = task[j].token => i = j
    /\ \A s \in Lockers, i \in Ids : held[s] # 0 => held[s] # task[i].token
    /\ \A s \in Lockers, i \in Ids : held[s] <= token /\ task[i].token <= token
    /\ \A t \in believed : t <= token

(* The laws of tasks.                                                                                              *)

TheLivingHaveLeases == \A i \in Ids : task[i].state = "leased" <=> task[i].by \in alive
EndsAfterItsChildren == \A i \in Ids : task[i].state \in Over => Unfinished(task, i) = {}
ATryEndsAfterItsChildren ==
    \A c \in Ids : LET p == task[c].parent IN
        p # 0 /\ c \in Unfinished(task, p) /\ task[p].verdict # "retry" /\ task[p].state # "ending"
            => task[c].born = task[p].tries
WhoWaitsHasAChildToWaitFor == \A i \in Ids : task[i].state \in {"suspended", "ending"} => Unfinished(task, i) # {}
FirstWriteWins ==
    \A c, d \in Ids : task[c].listed /\ task[d].listed /\ task[c].parent = task[d].parent /\ task[c].name = task[d].name
        => c = d
WorkThatIsDoneStays ==
    \A c \in Ids : task[c].state = "done" /\ task[c].parent # 0 /\ task[task[c].parent].state \notin Over
        => task[c].listed

EndsOnce == [][\A i \in Ids : task[i].state \in Over => task'[i].state = task[i].state]_vars
WhatIsToStopNeverGoesBack ==
    [][\A i \in Ids : Stopping(task[i]) => task'[i].state \in Over \/ Stopping(task'[i])]_vars
TokensRise ==
    [][/\ token' >= token /\ file' >= file
       /\ \A s \in Lockers : held'[s] \notin {0, held[s]} => held'[s] > token]_vars

(* What is fair: workers come back, take what waits, and reach verdicts. Then every task ends.                      *)

Fairness ==
    /\ \A s \in Workers : WF_vars(Open(s))
    /\ \A i \in Ids : SF_vars(\E s \in Workers : Take(s, i)) /\ SF_vars(Settle(i, "done"))
FairSpec == Spec /\ Fairness
EveryTaskEnds == \A i \in Ids : task[i].state # "none" ~> task[i].state \in Over
=============================================================================
