// Package engine decides who runs where and when. It is pure: no clock, no I/O, no goroutine, no float, no map order. A host
// feeds it events in the order of their time and carries out the actions that come back; the same events give byte-identical
// actions on any machine, so a recorded day can be replayed.
//
// An action is a proposal with an ID. The engine assumes it done until the host answers Done or Refused; a refusal undoes the
// plan it belongs to and bars that node for that feasibility class until either changes.
//
// Time is event → Step → actions. Why and the other queries read the state and change nothing.
package engine
