package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 123000, time.UTC)

func open(t *testing.T, path string) *Store {
	t.Helper()
	store, err := Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func workload(seq int64, name string, phase api.Phase) Workload {
	return Workload{
		Seq: seq,
		Workload: api.Workload{
			UID: fmt.Sprintf("u%d", seq), User: "ada", UserID: 4294967294,
			Spec: api.WorkloadSpec{
				Name: name, Queue: "vision", Command: []string{"./train", "--x"}, Dir: "/",
				Share: api.Share{Compute: api.Compute{Floor: 250, Ceiling: 800}, Memory: api.Memory{
					Floor: api.Amount{Bytes: 4 << 30}, Ceiling: api.Amount{Part: 800},
				}},
			},
			Status: api.WorkloadStatus{Phase: phase, Submitted: noon},
		},
		Host: json.RawMessage(`{"place":1}`),
	}
}

func TestWhatIsWrittenIsReadAfterReopening(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "a b?.db")
	store := open(t, path)
	waiting, ended := workload(1, "night", api.Waiting), workload(2, "day", api.Ended)
	limit := api.QueueAmounts{Compute: new(api.Quota(3500)), Memory: new(api.Bytes(80 << 30)), Devices: new(int64(4))}
	batch := &Batch{
		Queues:    []api.QueueSpec{{Name: "vision", Quota: 2000, Limit: limit}, {Name: "gone", Parent: "vision", Quota: api.Unlimited}},
		Workloads: []Workload{waiting, ended},
		Records:   []Record{{"u1", noon, "submitted"}, {"u1", noon.Add(time.Second), "placed"}},
		Settings:  map[string]string{"node": "box"},
	}
	if err := store.Write(ctx, batch); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(ctx, &Batch{QueuesGone: []string{"gone"}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	store = open(t, path)
	live, err := store.Live(ctx)
	if err != nil || !reflect.DeepEqual(live, []Workload{waiting}) {
		t.Errorf("live: %+v, %v; want %+v", live, err, waiting)
	}
	over, err := store.Ended(ctx)
	if err != nil || !reflect.DeepEqual(over, []Workload{ended}) {
		t.Errorf("ended: %+v, %v", over, err)
	}
	queues, err := store.Queues(ctx)
	if err != nil || !reflect.DeepEqual(queues, []api.QueueSpec{{Name: "vision", Quota: 2000, Limit: limit}}) {
		t.Errorf("queues: %+v, %v", queues, err)
	}
	history, err := store.History(ctx, "u1")
	if err != nil || len(history) != 2 || history[0].Message != "submitted" || !history[1].At.Equal(noon.Add(time.Second)) {
		t.Errorf("history: %+v, %v", history, err)
	}
	if value, err := store.Setting(ctx, "node"); err != nil || value != "box" {
		t.Errorf("setting: %q, %v", value, err)
	}
	if value, err := store.Setting(ctx, "never"); err != nil || value != "" {
		t.Errorf("setting never set: %q, %v", value, err)
	}
	if last, err := store.LastSeq(ctx); err != nil || last != 2 {
		t.Errorf("last seq: %d, %v", last, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestFindTakesTheUIDThenTheLatestOfTheName(t *testing.T) {
	ctx, store := context.Background(), open(t, filepath.Join(t.TempDir(), "a.db"))
	named := workload(3, "u1", api.Ended) // named like another's UID
	if err := store.Write(ctx, &Batch{Workloads: []Workload{
		workload(1, "night", api.Ended), workload(2, "night", api.Ended), named,
	}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"night": 2, "u1": 1, "u2": 2} {
		if found, ok, err := store.Find(ctx, name); err != nil || !ok || found.Seq != want {
			t.Errorf("find %s: %d, %v, %v; want %d", name, found.Seq, ok, err, want)
		}
	}
	if _, ok, err := store.Find(ctx, "nobody"); ok || err != nil {
		t.Errorf("find nobody: %v, %v", ok, err)
	}
}

func TestBatchIsWrittenWholeOrNotAtAll(t *testing.T) {
	ctx, store := context.Background(), open(t, filepath.Join(t.TempDir(), "a.db"))
	err := store.Write(ctx, &Batch{
		Workloads: []Workload{workload(1, "night", api.Waiting)},
		Records:   []Record{{"nobody", noon, "has no workload"}},
	})
	if err == nil {
		t.Fatal("a record of no workload was taken")
	}
	if live, err := store.Live(ctx); err != nil || len(live) != 0 {
		t.Errorf("half a batch is there: %+v, %v", live, err)
	}
}

func TestPruneKeepsTheLatestAndAllThatLive(t *testing.T) {
	ctx, store := context.Background(), open(t, filepath.Join(t.TempDir(), "a.db"))
	batch := &Batch{Workloads: []Workload{workload(1, "old", api.Running)}}
	for seq := int64(2); seq <= 6; seq++ {
		batch.Workloads = append(batch.Workloads, workload(seq, "w", api.Ended))
		batch.Records = append(batch.Records, Record{fmt.Sprintf("u%d", seq), noon, "ended"})
	}
	if err := store.Write(ctx, batch); err != nil {
		t.Fatal(err)
	}
	gone, err := store.Prune(ctx, 2)
	if err != nil || len(gone) != 3 {
		t.Fatalf("pruned %v, %v; want 3", gone, err)
	}
	if last, err := store.LastEnded(ctx, 1); err != nil || len(last) != 1 || last[0].UID != "u6" {
		t.Errorf("the last that ended: %+v, %v", last, err)
	}
	ended, _ := store.Ended(ctx)
	live, _ := store.Live(ctx)
	if len(ended) != 2 || ended[0].Seq != 5 || len(live) != 1 {
		t.Errorf("left: %d ended, %d live", len(ended), len(live))
	}
	if history, err := store.History(ctx, "u2"); err != nil || len(history) != 0 {
		t.Errorf("history of a pruned workload: %v, %v", history, err)
	}
	if gone, err := store.Prune(ctx, 2); err != nil || len(gone) != 0 {
		t.Errorf("pruned again: %v, %v", gone, err)
	}
}

func TestDamagedDatabaseIsRefusedAndLeftAsItIs(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"not a database": func([]byte) []byte { return bytes.Repeat([]byte("x"), 8192) },
		"pages overwritten": func(data []byte) []byte {
			for i := 4096; i < len(data); i++ {
				data[i] = 0xa5
			}
			return data
		},
		"truncated": func(data []byte) []byte { return data[:4096+100] },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.db")
			store := open(t, path)
			batch := &Batch{}
			for seq := int64(1); seq <= 100; seq++ {
				batch.Workloads = append(batch.Workloads, workload(seq, "w", api.Waiting))
			}
			if err := errors.Join(store.Write(context.Background(), batch), store.Close()); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			data = damage(data)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Open(context.Background(), path)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "move the file away") || strings.Contains(err.Error(), "\n") {
				t.Fatalf("opened with %v", err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(after, data) {
				t.Error("the damaged file was changed")
			}
		})
	}
}

func TestDatabaseOfANewerVersionIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	store := open(t, path)
	if _, err := store.db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	_ = store.Close()
	if _, err := Open(context.Background(), path); err == nil || !strings.Contains(err.Error(), "form 99") {
		t.Errorf("opened with %v", err)
	}
}

// A database of an earlier version may hold environments of what has ended, with secrets in them: they are overwritten.
func TestEnvironmentsOfAnEarlierVersionAreForgotten(t *testing.T) {
	const secret = "hunter2-and-more"
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "a.db")
	store := open(t, path)
	waiting, ended := workload(1, "night", api.Waiting), workload(2, "day", api.Ended)
	waiting.Spec.Env = map[string]string{"A": "kept"}
	ended.Spec.Env = map[string]string{"TOKEN": strings.Repeat(secret, 1000)} // over several pages, which are freed
	if err := store.Write(ctx, &Batch{Workloads: []Workload{waiting, ended}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.db.Exec("PRAGMA user_version = 2"); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = open(t, path)
	ended.Spec.Env = nil
	if live, err := store.Live(ctx); err != nil || !reflect.DeepEqual(live, []Workload{waiting}) {
		t.Errorf("live: %+v, %v", live, err)
	}
	if over, err := store.Ended(ctx); err != nil || !reflect.DeepEqual(over, []Workload{ended}) {
		t.Errorf("ended: %+v, %v", over, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || bytes.Contains(data, []byte(secret)) {
		t.Errorf("the secret is still in the database (%v)", err)
	}
}

func TestFullDiskIsSaidAndChangesNothing(t *testing.T) {
	ctx, store := context.Background(), open(t, filepath.Join(t.TempDir(), "a.db"))
	store.db.SetMaxOpenConns(1) // the limit below is one connection's
	if err := store.Write(ctx, &Batch{Workloads: []Workload{workload(1, "first", api.Waiting)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.db.Exec("PRAGMA max_page_count = 1"); err != nil { // SQLite takes the pages in use for the least
		t.Fatal(err)
	}
	batch := &Batch{}
	for seq := int64(2); seq <= 200; seq++ {
		batch.Workloads = append(batch.Workloads, workload(seq, "w", api.Waiting))
	}
	if err := store.Write(ctx, batch); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "free some space") {
		t.Fatalf("written to a full disk with %v", err)
	}
	if live, err := store.Live(ctx); err != nil || len(live) != 1 {
		t.Errorf("after a full disk: %d workloads, %v; want the one of before", len(live), err)
	}
	if _, err := store.db.Exec("PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(ctx, batch); err != nil {
		t.Errorf("after space was freed: %v", err)
	}
}

func BenchmarkThousandSubmitsInOneBatch(b *testing.B) {
	store, err := Open(context.Background(), filepath.Join(b.TempDir(), "a.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	var seq int64
	for b.Loop() {
		batch := &Batch{}
		for range 1000 {
			seq++
			batch.Workloads = append(batch.Workloads, workload(seq, "w", api.Waiting))
		}
		if err := store.Write(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
