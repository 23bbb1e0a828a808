// Package engine decides who runs where and when. It is pure: no clock, no I/O, no goroutine, no float, no map order. A host
// feeds it events in the order of their time and carries out the actions that come back; the same events give byte-identical
// actions on any machine, so a recorded day can be replayed.
//
// An action is a proposal with an ID. The engine assumes it done until the host answers Done or Refused; a refusal undoes the
// plan it belongs to and bars that node for that feasibility class until either changes.
//
// Time is event → Step → actions. Why and the other queries read the state and change nothing.
//
// The rules, and where they are:
//
//   - What is within a quota of its queue goes first; then priority; then the queue furthest below its fair share, by decayed use
//     where that is the same; then first come (order.go, package queue). Floors decide what fits; ceilings may overlap.
//   - What a queue is guaranteed and others borrowed is taken back when it is wanted: whole plans only (reclaim.go).
//   - The first that has quota and could run but does not fit is the head. What is behind it starts only if it ends before the
//     head's reserved start or fits beside it; where that start is not known, only on what could never serve the head
//     (reserve.go, beside.go).
//   - Preemptible work that comes again may be moved, so many an hour: to make room for the head, or else to leave devices free as a whole
//     (defragment.go, moves.go).
//   - Of the nodes that a feasibility class may use a task goes to those that the class prefers, where one has room (Feasibility, place.go). Classes
//     that no workload uses are forgotten when the host says so (classes.go).
//   - Tasks that are to be in one domain of a level of the topology go to that with the least room that has enough (package place, topology.go).
//   - An elastic workload starts whole with its tasks and grows replica by replica into what is idle and could serve nobody who waits; these replicas
//     are in no quota, and go before anything else is taken from anyone (elastic.go, grow.go).
//   - Work that is not preemptible fits in the quotas of its queue and those above, preemptible work in their limits (quota.go).
//     Who waits for one of these holds back those behind it under the same, and nobody else. What asks for more than its quota, or
//     than any node has, holds nobody back.
//   - A device has free what is under no floor and held by nobody: memory that a grant holds above its floor is taken (usage.go).
//   - A start is assumed until it is answered; a refusal that names a node bars it, one that does not is tried again later
//     (answers.go). A resize holds the larger of old and new until it is over (change.go).
//   - A snapshot is the whole state (snapshot.go); a log of events that begins with one replays (log.go).
package engine
