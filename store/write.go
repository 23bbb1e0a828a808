package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// Write writes a batch: all of it, on disk when Write returns, or nothing and an error.
func (s *Store) Write(ctx context.Context, batch *Batch) error {
	if batch.Empty() {
		return nil
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return s.explain("write to", err)
	}
	if err := batch.write(ctx, tx); err != nil {
		_ = tx.Rollback()
		return s.explain("write to", err)
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback()
		return s.explain("write to", err)
	}
	return nil
}

func (b *Batch) write(ctx context.Context, tx *sql.Tx) error {
	for _, queue := range b.Queues {
		spec, err := json.Marshal(queue)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO queues (name, parent, quota, spec) VALUES (?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET parent = excluded.parent, quota = excluded.quota, spec = excluded.spec`,
			queue.Name, queue.Parent, int64(queue.Quota), string(spec)); err != nil {
			return err
		}
	}
	for _, name := range b.QueuesGone {
		if _, err := tx.ExecContext(ctx, `DELETE FROM queues WHERE name = ?`, name); err != nil {
			return err
		}
	}
	if err := b.writeWorkloads(ctx, tx); err != nil {
		return err
	}
	if err := b.writeRecords(ctx, tx); err != nil {
		return err
	}
	for key, value := range b.Settings {
		if _, err := tx.ExecContext(ctx, `INSERT INTO settings (key, value) VALUES (?, ?)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, key, value); err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) writeWorkloads(ctx context.Context, tx *sql.Tx) error {
	if len(b.Workloads) == 0 {
		return nil
	}
	statement, err := tx.PrepareContext(ctx, `INSERT INTO workloads
		(uid, seq, name, user, user_id, phase, outcome, submitted, started, ended, spec, status, host)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (uid) DO UPDATE SET phase = excluded.phase, outcome = excluded.outcome, started = excluded.started,
			ended = excluded.ended, spec = excluded.spec, status = excluded.status, host = excluded.host`)
	if err != nil {
		return err
	}
	defer func() { _ = statement.Close() }()
	for i := range b.Workloads {
		work := &b.Workloads[i]
		spec, err := json.Marshal(work.Spec)
		if err != nil {
			return err
		}
		status, err := json.Marshal(work.Status)
		if err != nil {
			return err
		}
		host := work.Host
		if host == nil {
			host = json.RawMessage("null")
		}
		if _, err := statement.ExecContext(ctx, work.UID, work.Seq, work.Spec.Name, work.User, int64(work.UserID),
			string(work.Status.Phase), string(work.Status.Outcome), work.Status.Submitted.UnixMicro(),
			micros(work.Status.Started), micros(work.Status.Ended), string(spec), string(status), string(host)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) writeRecords(ctx context.Context, tx *sql.Tx) error {
	if len(b.Records) == 0 {
		return nil
	}
	statement, err := tx.PrepareContext(ctx, `INSERT INTO history (uid, at, message) VALUES (?, ?, ?)`)
	if err != nil {
		return err
	}
	defer func() { _ = statement.Close() }()
	for _, record := range b.Records {
		if _, err := statement.ExecContext(ctx, record.UID, record.At.UnixMicro(), record.Message); err != nil {
			return err
		}
	}
	return nil
}

// Prune forgets the oldest workloads that have ended, with their history, until at most keep of them are left. It returns the UIDs
// forgotten.
func (s *Store) Prune(ctx context.Context, keep int) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, `DELETE FROM workloads WHERE phase = 'ended' AND seq <=
		(SELECT seq FROM workloads WHERE phase = 'ended' ORDER BY seq DESC LIMIT 1 OFFSET ?) RETURNING uid`, keep)
	if err != nil {
		return nil, s.explain("prune", err)
	}
	defer func() { _ = rows.Close() }()
	var gone []string
	for rows.Next() {
		var uid string
		if err := rows.Scan(&uid); err != nil {
			return nil, s.explain("prune", err)
		}
		gone = append(gone, uid)
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain("prune", err)
	}
	return gone, nil
}

func micros(at *time.Time) any {
	if at == nil {
		return nil
	}
	return at.UnixMicro()
}
