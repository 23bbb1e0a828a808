package api

import (
	"strings"
	"testing"
	"time"
)

func TestParseOrder(t *testing.T) {
	for text, want := range map[string]struct {
		order    QueueOrder
		shortest Milli
	}{
		"fifo":                        {QueueOrder{OneLine: true, NoPriority: true}, 0},
		"fair":                        {QueueOrder{NoPriority: true}, 0},
		"priority":                    {QueueOrder{OneLine: true}, 0},
		"fair+priority":               {QueueOrder{}, 0},
		"shortest:2+fair+priority:1h": {QueueOrder{PriorityWorth: Duration(time.Hour)}, 2000},
		"priority+held:1m":            {QueueOrder{OneLine: true, Served: Duration(time.Minute), Held: true}, 0},
		"priority+served:1m":          {QueueOrder{OneLine: true, Served: Duration(time.Minute)}, 0},
		"fifo+shortest:0.5":           {QueueOrder{OneLine: true, NoPriority: true}, 500},
	} {
		order, shortest, err := ParseOrder(text)
		if err != nil || order != want.order || shortest != want.shortest {
			t.Errorf("%s: %+v %s %v", text, order, shortest, err)
		}
		if again, s, err := ParseOrder(FormatOrder(order, shortest)); err != nil || again != order || s != shortest {
			t.Errorf("%s is written %s, which is read %+v %s %v", text, FormatOrder(order, shortest), again, s, err)
		}
	}
	for text, want := range map[string]string{
		"":                `"" is no word of an order`,
		"shortest":        `"shortest" is no word of an order`,
		"fair:2":          `"fair:2" is no word`,
		"fair+fair":       `"fair" comes twice (character 6)`,
		"priority:0s":     "worth more than nothing",
		"priority:31d":    "at most 720h",
		"priority:soon":   "a digit is expected",
		"shortest:0":      "more than nothing",
		"shortest:1001":   "at most 1000",
		"fair+prio":       `"prio" is no word of an order (character 6)`,
		"fair+shortest:x": "a digit is expected",
	} {
		if _, _, err := ParseOrder(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseOrder(f *testing.F) {
	for _, text := range []string{"fifo", "fair+priority:1h30m+shortest:2.5", "fair++", "priority:-1h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		order, shortest, err := ParseOrder(text)
		if err != nil {
			return
		}
		if err := (QueueSpec{Name: "q", Quota: Unlimited, Order: order, ShortestFirst: shortest}).Validate(); err != nil {
			t.Fatalf("%q is read as an order that is none: %v", text, err)
		}
		if again, s, err := ParseOrder(FormatOrder(order, shortest)); err != nil || again != order || s != shortest {
			t.Fatalf("%q is written %q, which is read %+v %s %v", text, FormatOrder(order, shortest), again, s, err)
		}
	})
}
