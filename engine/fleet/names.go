package fleet

// Names is how many classes and resources had names at a moment, and how many numbers of forgotten classes were free.
type Names struct{ classes, idle, resources int }

// Names is as many as there are now.
func (f *Fleet) Names() Names {
	return Names{len(f.classes), len(f.idleClasses), len(f.resources)}
}

// HasClass says that a class has a name now: it was not forgotten.
func (f *Fleet) HasClass(id ClassID) bool { return int(id) < len(f.classes) && f.classes[id] != nil }

// ForgetSince forgets the classes and resources that came since. Nothing may use them any more, no class may have been forgotten otherwise since, and
// nothing may have been said of them: then what is remembered under their numbers is as true of the next that get these.
func (f *Fleet) ForgetSince(then Names) {
	for _, c := range f.classes[then.classes:] {
		delete(f.byClass, c.name)
	}
	f.classes = f.classes[:then.classes]
	for _, id := range f.idleClasses[len(f.idleClasses):then.idle] { // taken from the end, where they still are
		delete(f.byClass, f.classes[id].name)
		f.classes[id] = nil
	}
	f.idleClasses = f.idleClasses[:then.idle]
	for _, name := range f.resources[then.resources:] {
		delete(f.byResource, name)
	}
	f.resources = f.resources[:then.resources]
}

// Doubt makes what was found not to fit be looked for again. Whoever gives something back inside a mark and goes on looking there
// calls it, and again when all is taken back.
func (f *Fleet) Doubt() { f.gains++ }
