package node

import (
	"maps"
	"time"

	"github.com/aliquot-dev/aliquot/internal/proc"
)

// owners says which task a process belongs to that is not held to a share.
type owners struct {
	known registered
	marks map[string]marked // by the variable that Launch puts into the environment of a task
	seen  map[stray]string  // who was asked of before, and what was found

	administers func(pid int) bool
}

// marked is whose a mark is. Anybody may write a mark: it counts for who runs as the task's user alone.
type marked struct {
	task string
	user uint32
}

const (
	ancestors         = 64          // so far up a process' owner is looked for
	environmentWithin = time.Second // so long its memory may take to be read
)

func (a *Agent) owners(known registered) owners {
	a.mu.Lock()
	defer a.mu.Unlock()
	marks := make(map[string]marked, len(a.tasks))
	for uid, t := range a.tasks {
		marks[taskVariable+a.run.task(uid)] = marked{uid, t.user(t.Task)}
	}
	return owners{known, marks, maps.Clone(a.seen), a.administers}
}

// of is the task of a process: its own, or that of its nearest ancestor, or of the first process of its session, that is registered or
// carries the task's mark. Empty when it belongs to none. Marks are looked for once a process.
func (o owners) of(key stray) string {
	task, seen := o.seen[key]
	if task != "" {
		return task
	}
	fact, ok := factsOf(key.pid)
	session := fact.session
	for pid, depth := key.pid, 0; ok && pid > 1 && depth < ancestors; depth++ {
		if task := o.task(pid, fact, !seen); task != "" {
			return task
		}
		pid = fact.parent
		fact, ok = factsOf(pid)
	}
	// Its parent may have ended; the session is one that a task began.
	if fact, ok := factsOf(session); ok {
		return o.task(session, fact, !seen)
	}
	return ""
}

// task is the one that a process itself is known by.
func (o owners) task(pid int, fact facts, byMark bool) string {
	user, err := proc.RealUser(pid)
	if err != nil {
		return ""
	}
	for _, own := range o.known[pid] {
		if own.start == fact.start && own.user == user { // a page is what its owner may write, too
			return own.task
		}
	}
	if !byMark {
		return ""
	}
	environment, err := proc.Environment(pid, environmentWithin)
	if err != nil {
		return ""
	}
	for _, variable := range environment {
		if found, ok := o.marks[variable]; ok && found.user == user {
			return found.task
		}
	}
	return ""
}
