package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Always is what holds whatever window does, in words, one sentence for each thing that is said. Times are in the zone of the policy; what of dates and
// periods is said is as of a moment.
func (p *Policy) Always(now time.Time) []string { return p.means(&p.Settings, now) }

// In is what holds in a window beside what always does, and before it, in the same way.
func (p *Policy) In(w *Window, now time.Time) []string { return p.means(&w.Settings, now) }

// means are settings in words.
func (p *Policy) means(s *Settings, now time.Time) []string {
	var all []string
	if s.OneLine != nil {
		text := "queues under none go by their fair shares"
		if *s.OneLine {
			text = "queues under none stand in one line"
		}
		all = append(all, text)
	}
	if s.Predicted != nil {
		text := "work starts before the first in line where its time limit is over before that starts"
		if *s.Predicted {
			text += ", or where it is preemptible and predicted to be; it is evicted for the first in line if it then runs on"
		}
		all = append(all, text)
	}
	if s.HalfLife != 0 {
		all = append(all, fmt.Sprintf("what queues used counts half after %s, where they hold the same part of their fair shares", s.HalfLife))
	}
	if s.Placement != nil {
		var weights []string
		for f, weight := range s.Placement.Named() {
			weights = append(weights, fmt.Sprintf("%s=%d", f, weight))
		}
		all = append(all, "places by "+strings.Join(weights, " "))
	}
	if s.Defragment != nil {
		all = append(all, "defragment "+strings.Join(s.Defragment.Says(), " ")+": "+s.Defragment.Means())
	}
	for _, pool := range s.Pools {
		for i, change := range pool.changes {
			var only engine.Pool
			change(&only)
			all = append(all, "pool "+pool.Name+", "+pool.words[i]+": "+poolMeans(pool.words[i], &only))
		}
	}
	for _, q := range s.Queues {
		if len(q.changes) == 0 {
			all = append(all, "queue "+q.Name+": it is made where it is not there, and otherwise stays as it is")
		}
		for _, c := range q.changes {
			only := api.QueueSpec{Name: q.Name, Quota: api.Unlimited}
			c.apply(&only)
			words := strings.Join(append([]string{written(c.key, c.value)}, c.more...), " ")
			all = append(all, "queue "+q.Name+", "+words+": "+queueMeans(c.key, &only, p.location(), now))
		}
	}
	return all
}

// location is the zone of the policy.
func (p *Policy) location() *time.Location {
	zone, err := loadZone(p.Zone)
	if err != nil {
		panic("policy: its zone is gone: " + err.Error()) // it was there when the file was read, and zones are in the program
	}
	return zone
}

// poolMeans is what a word of a pool says, in words; said is a pool of which nothing else is said.
func poolMeans(word string, said *engine.Pool) string {
	key, _, _ := strings.Cut(word, "=")
	switch key {
	case "nodes":
		return "of the devices only those on " + named("node", said.Nodes) + " are in it"
	case "models":
		return "of the devices only those of the " + named("model", said.Models) + " are in it"
	case "devices":
		if *said.First == *said.Last {
			return fmt.Sprintf("of each node only device %d is in it", *said.First)
		}
		return fmt.Sprintf("of each node only devices %d to %d are in it", *said.First, *said.Last)
	case "classes":
		classes := make([]string, 0, len(said.Classes))
		for _, class := range said.Classes {
			classes = append(classes, string(class))
		}
		return "its devices are for work of " + the("class", "classes", classes) + " alone, but for what it lends"
	}
	if said.Lends {
		return "what is free of it is lent to preemptible work of other classes that fits nowhere else, which is evicted once it stands in the way of the first in line whom the pool is for"
	}
	return "it lends nothing to work of other classes"
}

// named are names of things of one kind, in a sentence.
func named(kind string, names []string) string {
	if len(names) > 1 {
		kind += "s"
	}
	return kind + " " + listed(names)
}

// the is the same with its article, where the plural is another.
func the(one, several string, names []string) string {
	if len(names) == 1 {
		return "the " + one + " " + names[0]
	}
	return "the " + several + " " + listed(names)
}

// listed are names in a sentence.
func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
