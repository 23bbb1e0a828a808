package policy

import (
	"slices"
	"strings"
	"testing"
)

// Each word of queues and pools is put in one sentence, always and in windows, with times in the policy's zone.
func TestMeans(t *testing.T) {
	const added = " is added to the priority of its work and of that in the queues under it"
	sentences := map[string]string{
		"parent=none":         "it is under no other queue",
		"parent=org":          "it is under org: what it holds counts against the quota and limits of that too, and what that is due is divided among the queues under it",
		"quota=2":             "it is guaranteed floors of 2 devices of compute: what it leaves of that others may borrow until it wants it, and work that is not preemptible must fit in it",
		"quota=1":             "it is guaranteed floors of 1 device of compute: what it leaves of that others may borrow until it wants it, and work that is not preemptible must fit in it",
		"quota=none":          "no quota of its own guarantees it compute",
		"quota-mem=80Gi":      "it is guaranteed floors of 80Gi of memory: what it leaves of that others may borrow until it wants it, and work that is not preemptible must fit in it",
		"quota-mem=none":      "no quota of its own guarantees it memory",
		"quota-shares=3":      "it is guaranteed floors of 3 shares: what it leaves of that others may borrow until it wants it, and work that is not preemptible must fit in it",
		"quota-shares=none":   "no quota of its own guarantees it shares",
		"quota@H200=0.5":      "it is guaranteed floors of 0.5 devices of compute on H200: what it leaves of that others may borrow until it wants it, and work that is not preemptible must fit in it",
		"limit=none":          "no limit of its own bounds its compute",
		"limit=4":             "the floors of its work, with that of the queues under it, never come to more than 4 devices of compute, whatever is idle",
		"limit-mem@H200=1Gi":  "the floors of its work, with that of the queues under it, never come to more than 1Gi of memory on H200, whatever is idle",
		"limit-shares=9":      "the floors of its work, with that of the queues under it, never come to more than 9 shares, whatever is idle",
		"weight=1":            "of what is over all quotas it is due as much as a queue beside it of weight 1, in each resource that has no weight of its own",
		"weight=2":            "of what is over all quotas it is due twice as much as a queue beside it of weight 1, in each resource that has no weight of its own",
		"weight-gpu=3":        "of what is over all quotas it is due 3 times as much as a queue beside it of weight 1, in compute",
		"weight-mem=3":        "of what is over all quotas it is due 3 times as much as a queue beside it of weight 1, in memory",
		"weight-shares=3":     "of what is over all quotas it is due 3 times as much as a queue beside it of weight 1, in the number of shares",
		"weight@H200=3":       "of the devices of model H200 that are over all quotas there it is due 3 times as much as a queue beside it of weight 1, in each resource that has no weight of its own, and work that asks for that model goes by this",
		"weight-gpu@H200=1":   "of the devices of model H200 that are over all quotas there it is due as much as a queue beside it of weight 1, in compute, and work that asks for that model goes by this",
		"weight-mem@A10=none": "on A10 it has its overall weight, in memory",
		"order=fifo":          "what waits in it and in the queues under it stands in one line: who came first goes first; priorities do not count",
		"order=fair+priority": "among the queues under it those within their quotas go first, then the one furthest below its fair share; within a line: " +
			"a higher priority goes first, whatever came when, and preempts; then who came first goes first",
		"order=priority:1h+served:1m+shortest:2.5": "what waits in it and in the queues under it stands in one line: what was served less, in device-hours held as floors, goes first and preempts, " +
			"in levels of which the first is up to 1m and each next twice as long; then who came first goes first, where each step of priority counts for having come 1h earlier, and preempts nothing, " +
			"and each hour that it is predicted to run shorter counts for having come 2.5 hours earlier",
		"order=held:5m": "what waits in it and in the queues under it stands in one line: what held devices for less long, each counted as a whole, goes first and preempts, " +
			"in levels of which the first is up to 5m and each next twice as long; then who came first goes first; priorities do not count",
		"hours=100/week":    "its work may use 100 device-hours of each week, which begins with Monday, next on Mon 12 Jan 2026 00:00 CET; once they are used up nothing more is started in it until then",
		"hours=1/day":       "its work may use 1 device-hours of each day, which begins at midnight, next on Tue 6 Jan 2026 00:00 CET; once they are used up nothing more is started in it until then",
		"hours=2.5/month":   "its work may use 2.5 device-hours of each month, which begins with its first day, next on Sun 1 Feb 2026 00:00 CET; once they are used up nothing more is started in it until then",
		"hours=none":        "its work may use any number of device-hours",
		"longest-run=8h":    "work submitted to it runs for at most 8h: it may ask for no longer time limit, and gets this one where it asks for none",
		"longest-run=none":  "its work may run for as long as it likes",
		"min-run=15m":       "its work is not evicted for other work, nor moved, before it has run for 15m",
		"min-run=none":      "its work may be evicted for other work as soon as it runs",
		"disruptions=2/24h": "each workload in it is evicted for other work or moved at most twice in any 24h",
		"disruptions=none":  "its work may be evicted for other work and moved however often",
		"max-priority=7":    "users may give their work in it a priority of at most 7",
		"priority=-3":       "-3" + added,
		"priority=50 priority-until=2026-12-01T18:00":            "50" + added + " until Tue 1 Dec 2026 18:00 CET, and 0 from then on",
		"priority=50 priority-until=2026-01-01 priority-after=5": "5" + added + ", since Thu 1 Jan 2026 00:00 CET; before that it was 50",
		"nodes=a":                "of the devices only those on node a are in it",
		"nodes=a,b,c":            "of the devices only those on nodes a, b and c are in it",
		"models=A10,H200":        "of the devices only those of the models A10 and H200 are in it",
		"devices=2":              "of each node only device 2 is in it",
		"devices=0-3":            "of each node only devices 0 to 3 are in it",
		"classes=training":       "its devices are for work of the class training alone, but for what it lends",
		"classes=batch,training": "its devices are for work of the classes batch and training alone, but for what it lends",
		"lends=yes":              "what is free of it is lent to preemptible work of other classes that fits nowhere else, which is evicted once it stands in the way of the first in line whom the pool is for",
		"lends=no":               "it lends nothing to work of other classes",
	}
	for words, sentence := range sentences {
		// What must be named before: the parent of a queue; of a pool, which devices are for whom.
		thing, before, rest := "queue q", "queue org\nqueue q\n", ""
		if key, _, _ := strings.Cut(words, "="); slices.Contains([]string{"nodes", "models", "devices", "classes", "lends"}, key) {
			thing, before = "pool q", "pool q classes=inference devices=7\n"
			for _, word := range []string{"classes=inference", "devices=7"} {
				if !strings.HasPrefix(word, key) {
					rest += " " + word
				}
			}
		}
		want := thing + ", " + words + ": " + sentence
		always := FormatLine + "\nzone Europe/Berlin\nqueue org\n" + thing + " " + words + rest + "\n"
		if got := parsed(t, always).Always(monday); !slices.Contains(got, want) {
			t.Errorf("%s is explained as\n%s\nwithout\n%s", words, strings.Join(got, "\n"), want)
		}
		if strings.HasPrefix(words, "hours=") { // of no window
			continue
		}
		window := FormatLine + "\nzone Europe/Berlin\n" + before + "window w days=sat zone=Asia/Tokyo\n" + thing + " " + words + "\n"
		p := parsed(t, window)
		if got := p.In(p.Windows[0], monday); !slices.Equal(got, []string{want}) {
			t.Errorf("%s in a window is explained as\n%s\nand should be\n%s", words, strings.Join(got, "\n"), want)
		}
	}
	p := parsed(t, FormatLine+"\nqueue a\n")
	if got := p.Always(monday); len(got) != 1 || got[0] != "queue a: it is made where it is not there, and otherwise stays as it is" {
		t.Errorf("of a queue of which nothing is said: %q", got)
	}
}
