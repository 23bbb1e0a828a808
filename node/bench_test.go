package node

import (
	"fmt"
	"testing"
)

// BenchmarkPrepare is what a task costs here beside its program: pages made, taken in by the arbiter, and removed.
func BenchmarkPrepare(b *testing.B) {
	folder := shortFolder(b)
	a, err := Open(testContext(b), Config{Run: folder, Simulate: "h200x1"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = a.Close() })
	uuid := a.Devices()[0].UUID
	for n := 0; b.Loop(); n++ {
		task := aTask(fmt.Sprintf("w.%d", n), 100, 1000, uuid)
		if _, err := a.Prepare(testContext(b), task); err != nil {
			b.Fatal(err)
		}
		if err := a.Unprepare(testContext(b), task.UID); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSample is one reading of all meters with 16 tasks on 8 devices.
func BenchmarkSample(b *testing.B) {
	folder := shortFolder(b)
	a, err := Open(testContext(b), Config{Run: folder, Simulate: "h200x8"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = a.Close() })
	for n := range 16 {
		if _, err := a.Prepare(testContext(b), aTask(fmt.Sprintf("w.%d", n), 100, 1000, a.Devices()[n%8].UUID)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := a.Sample(testContext(b)); err != nil {
			b.Fatal(err)
		}
	}
}
