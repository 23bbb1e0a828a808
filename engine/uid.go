package engine

import (
	"strconv"
	"strings"
)

// uidOf names a grant that the engine makes: by its workload, its task, its place among the grants of that, and the action that made it. So
// such a grant is found by its UID without a list of all grants.
func uidOf(id string, task, n int, action ActionID) string {
	var room [64]byte
	uid := append(append(room[:0], id...), '.')
	uid = append(strconv.AppendInt(uid, int64(task), 10), '.')
	uid = append(strconv.AppendInt(uid, int64(n), 10), '-')
	return string(strconv.AppendUint(uid, uint64(action), 10))
}

// readUID is where the grant is that uidOf named so; false: it names none so.
func readUID(uid string) (id string, task, n int, ok bool) {
	rest, _ := cutLast(uid, '-')
	rest, place := cutLast(rest, '.')
	id, number := cutLast(rest, '.')
	n, isPlace := numberOf(place)
	task, isTask := numberOf(number)
	return id, task, n, isPlace && isTask
}

// numberOf is what a text of digits says.
func numberOf(digits string) (int, bool) {
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// cutLast cuts a text at the last of these bytes: nothing comes after where there is none.
func cutLast(s string, at byte) (before, after string) {
	if i := strings.LastIndexByte(s, at); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// isNamedBy says that a UID is that of the task's grant at i by what it says.
func (t *task) isNamedBy(uid string, i int) bool {
	id, task, n, ok := readUID(uid)
	return ok && id == t.w.ID && task == t.number() && n == i
}

// grantOf finds a grant by its UID; nil: nobody holds it.
func (e *Engine) grantOf(uid string) *grant {
	at, ok := e.foreign[uid]
	if !ok {
		id, number, n, named := readUID(uid)
		w := e.work[id]
		if w == nil || !named {
			return nil
		}
		at = grantAt{w.task(number), n}
	}
	if at.t == nil || at.i >= len(at.t.grants) || at.t.grants[at.i].UID != uid {
		return nil
	}
	return &at.t.grants[at.i]
}
