// Package sim runs the engine in virtual time: the same engine, the same policies, fed by a trace instead of by machines. What comes
// in are a trace (nodes, and workloads with the time of their coming and how long they run) or a server's event log, an engine's
// configuration and a seed; what goes out are figures: what was allocated when, how long jobs took, and how fair that was. Time is a
// number; nothing waits, and the same trace, configuration and seed give the same figures on any machine, but for those that are the
// machine's own speed.
//
// Where jobs share devices, package divide divides each device's time among them, and what programs were measured to do to each other slows them
// (Sharing).
//
// It answers the engine's proposals as a host does that always succeeds, and ends what has run its time. The engine decides, but
// under the orders that orders.go marks as the simulator's, which are there to be compared with: there the engine only places.
package sim
