package store

import (
	"context"
	"fmt"
)

// migrations bring a database from the version that is their index to the next. They are never changed once released.
var migrations = []string{
	`CREATE TABLE settings (
		key   TEXT PRIMARY KEY,
		value TEXT NOT NULL
	) STRICT, WITHOUT ROWID;

	CREATE TABLE queues (
		name   TEXT PRIMARY KEY,
		parent TEXT NOT NULL,
		quota  INTEGER NOT NULL -- thousandths of a device; -1: none set
	) STRICT, WITHOUT ROWID;

	CREATE TABLE workloads (
		uid       TEXT PRIMARY KEY,
		seq       INTEGER NOT NULL UNIQUE,
		name      TEXT NOT NULL,
		user      TEXT NOT NULL,
		user_id   INTEGER NOT NULL,
		phase     TEXT NOT NULL,
		outcome   TEXT NOT NULL,
		submitted INTEGER NOT NULL, -- microseconds since 1970, as all times here
		started   INTEGER,
		ended     INTEGER,
		spec      TEXT NOT NULL, -- api.WorkloadSpec
		status    TEXT NOT NULL, -- api.WorkloadStatus, grants included
		host      TEXT NOT NULL
	) STRICT, WITHOUT ROWID;
	CREATE INDEX workloads_by_name ON workloads (name, seq);
	CREATE INDEX workloads_live ON workloads (seq) WHERE phase <> 'ended';

	CREATE TABLE history (
		id      INTEGER PRIMARY KEY,
		uid     TEXT NOT NULL REFERENCES workloads (uid) ON DELETE CASCADE,
		at      INTEGER NOT NULL,
		message TEXT NOT NULL
	) STRICT;
	CREATE INDEX history_by_workload ON history (uid, id);`,

	// The whole specification as JSON, with all that has no column; empty: it has nothing more.
	`ALTER TABLE queues ADD COLUMN spec TEXT NOT NULL DEFAULT ''`,

	// The environment of what has ended may hold secrets, and nobody needs it. A specification that cannot be read is left as it is:
	// reading it says so.
	`UPDATE workloads SET spec = json_remove(spec, '$.env') WHERE phase = 'ended' AND json_valid(spec)`,
}

// migrate brings the database to this version's form; one that has been kept has some form. Each step is one transaction.
func (s *Store) migrate(ctx context.Context, kept bool) error {
	var version int
	if err := s.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return s.explain("read the version of", err)
	}
	if version < 0 {
		return s.damaged(fmt.Sprintf("it says that it has form %d", version))
	}
	if version == 0 && kept {
		return s.damaged(emptied)
	}
	if version > len(migrations) {
		return fmt.Errorf("the database %s has form %d and this aliquot knows forms up to %d: start the newer aliquot that wrote it",
			s.path, version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return s.explain("begin to change", err)
		}
		_, err = tx.ExecContext(ctx, migrations[version]+fmt.Sprintf(";PRAGMA user_version = %d", version+1))
		if err != nil {
			_ = tx.Rollback()
			return s.explain("bring up to date", err)
		}
		if err := tx.Commit(); err != nil {
			return s.explain("bring up to date", err)
		}
	}
	return nil
}
