// Package store keeps what one server must not forget: workloads, queues, the history of each workload, settings. What comes in are
// batches, each written whole or not at all; what goes out is what was written. It is a SQLite database (WAL, synchronous FULL)
// with one writer, and it decides nothing. A database that is damaged is refused, never replaced.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/aliquot-dev/aliquot/api"
)

// ErrFull says that the file system has no room for the database. Nothing of the batch was written.
var ErrFull = errors.New("no space left for the database")

// ErrDamaged says that the database cannot be trusted. It was not changed.
var ErrDamaged = errors.New("the database is damaged")

// Workload is a workload as it is kept.
type Workload struct {
	Seq int64 // order of submission; unique
	api.Workload
	Host json.RawMessage // what the host needs to carry on after a restart
}

// Record is one thing that happened to a workload.
type Record struct {
	UID     string
	At      time.Time
	Message string
}

// Batch is written in one transaction, in the order of its fields.
type Batch struct {
	Queues     []api.QueueSpec // made or changed
	QueuesGone []string
	Workloads  []Workload // made or changed
	Records    []Record
	Settings   map[string]string
}

// Empty says that there is nothing to write.
func (b *Batch) Empty() bool {
	return len(b.Queues)+len(b.QueuesGone)+len(b.Workloads)+len(b.Records)+len(b.Settings) == 0
}

// Store is an open database. Write is called by one goroutine at a time; reads may run beside it.
type Store struct {
	path string
	db   *sql.DB
}

// Open opens the database at path, makes it if there is none, checks that it is whole and brings it to this version's form.
func Open(ctx context.Context, path string) (*Store, error) { return openAt(ctx, path, false) }

// OpenKept does so where the caller sees by other things that a database at path has been written before: one that is there and has
// nothing in it has then lost it, and is refused as damaged. One that is not there was moved away, and is made.
func OpenKept(ctx context.Context, path string) (*Store, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return openAt(ctx, path, false)
	case err == nil && info.Size() == 0: // SQLite would throw its log away
		return nil, (&Store{path: path}).damaged(emptied)
	default:
		return openAt(ctx, path, true)
	}
}

const emptied = "it is empty, though there was something in it"

func openAt(ctx context.Context, path string, kept bool) (*Store, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	options := url.Values{"_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		"secure_delete(1)", // what is forgotten, environments with secrets in them, is overwritten
	}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	db.SetMaxOpenConns(4)
	store := &Store{path, db}
	if err := store.check(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := store.migrate(ctx, kept); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return store, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// check refuses a database that is not whole.
func (s *Store) check(ctx context.Context) error {
	var answer string
	if err := s.db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&answer); err != nil {
		return s.explain("check", err)
	}
	if answer != "ok" {
		return s.damaged(answer)
	}
	return nil
}

func (s *Store) damaged(how string) error {
	how = strings.Join(strings.Fields(strings.TrimPrefix(how, "*** in database main ***")), " ") // one sentence, one line
	return fmt.Errorf("%w: %s: %s; nothing was changed: read what can be saved with `sqlite3 %[2]s .recover`, or move the file away to begin anew",
		ErrDamaged, s.path, how)
}

// explain says what is true and what to do where SQLite's own words do not.
func (s *Store) explain(what string, err error) error {
	var failure *sqlite.Error
	if !errors.As(err, &failure) {
		return fmt.Errorf("%s the database %s: %w", what, s.path, err)
	}
	switch failure.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w %s: free some space on its file system", ErrFull, s.path)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
		sqlite3.SQLITE_ERROR: // what is asked is always the same, so its tables are not those that were made
		return s.damaged(failure.Error())
	default:
		return fmt.Errorf("%s the database %s: %w", what, s.path, err)
	}
}
