package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// TestAnyDamagedByteIsReadOrRefused: whatever byte of a database is not as it was written, what can be read of it is read, or it is
// refused in one sentence that says which file and what to do.
func TestAnyDamagedByteIsReadOrRefused(t *testing.T) {
	ctx, folder := context.Background(), t.TempDir()
	path := filepath.Join(folder, "a.db")
	store := open(t, path)
	batch := &Batch{Queues: []api.QueueSpec{{Name: "vision", Quota: 2000}}, Settings: map[string]string{"node": "box"}}
	for seq := int64(1); seq <= 20; seq++ {
		batch.Workloads = append(batch.Workloads, workload(seq, "w", api.Waiting))
		batch.Records = append(batch.Records, Record{workload(seq, "w", "").UID, noon, "submitted"})
	}
	if err := errors.Join(store.Write(ctx, batch), store.Close()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const header = 100 // bytes, each of which is tried; of the others about as many are
	refused := 0
	for at, step := 0, 1; at < len(good); at += step {
		if at >= header {
			step = len(good) / header
		}
		data := append([]byte(nil), good...)
		data[at] ^= 0xff
		if err := readAll(ctx, filepath.Join(folder, "b.db"), data); err != nil {
			refused++
			words := err.Error()
			if !errors.Is(err, ErrDamaged) && !strings.Contains(words, "newer aliquot") || strings.Contains(words, "\n") || !strings.Contains(words, "b.db") {
				t.Errorf("byte %d of %d: %v", at, len(good), err)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// readAll opens a database of these bytes and reads all that there is in it.
func readAll(ctx context.Context, path string, data []byte) error {
	for _, beside := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + beside)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	store, err := Open(ctx, path)
	if err != nil {
		return err
	}
	live, err := store.Live(ctx)
	_, ended := store.Ended(ctx)
	_, queues := store.Queues(ctx)
	_, setting := store.Setting(ctx, "node")
	for _, one := range []error{err, ended, queues, setting} {
		if one != nil {
			_ = store.Close()
			return one
		}
	}
	for _, work := range live {
		if _, err := store.History(ctx, work.UID); err != nil {
			_ = store.Close()
			return err
		}
	}
	return store.Close()
}
