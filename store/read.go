package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

const columns = `uid, seq, user, user_id, spec, status, host`

// Live returns the workloads that have not ended, in order of submission.
func (s *Store) Live(ctx context.Context) ([]Workload, error) {
	return s.list(ctx, `SELECT `+columns+` FROM workloads WHERE phase <> 'ended' ORDER BY seq`)
}

// Ended returns the workloads that are over, in order of submission.
func (s *Store) Ended(ctx context.Context) ([]Workload, error) {
	return s.list(ctx, `SELECT `+columns+` FROM workloads WHERE phase = 'ended' ORDER BY seq`)
}

// LastEnded returns at most so many of the workloads that are over, those submitted last, in order of submission.
func (s *Store) LastEnded(ctx context.Context, most int) ([]Workload, error) {
	last, err := s.list(ctx, `SELECT `+columns+` FROM workloads WHERE phase = 'ended' ORDER BY seq DESC LIMIT ?`, most)
	slices.Reverse(last)
	return last, err
}

// Find returns the workload with this UID, else the latest submitted under this name; false if there is none.
func (s *Store) Find(ctx context.Context, name string) (Workload, bool, error) {
	found, err := s.list(ctx, `SELECT `+columns+` FROM workloads WHERE uid = ?1 OR name = ?1 ORDER BY uid = ?1 DESC, seq DESC LIMIT 1`, name)
	if err != nil || len(found) == 0 {
		return Workload{}, false, err
	}
	return found[0], true, nil
}

// LastSeq returns the highest Workload.Seq ever written that is still kept, or 0.
func (s *Store) LastSeq(ctx context.Context) (int64, error) {
	var last sql.NullInt64
	if err := s.db.QueryRowContext(ctx, `SELECT max(seq) FROM workloads`).Scan(&last); err != nil {
		return 0, s.explain("read", err)
	}
	return last.Int64, nil
}

// History returns what happened to a workload, oldest first.
func (s *Store) History(ctx context.Context, uid string) ([]api.WhyRecord, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT at, message FROM history WHERE uid = ? ORDER BY id`, uid)
	if err != nil {
		return nil, s.explain("read", err)
	}
	defer func() { _ = rows.Close() }()
	var history []api.WhyRecord
	for rows.Next() {
		var at int64
		var record api.WhyRecord
		if err := rows.Scan(&at, &record.Message); err != nil {
			return nil, s.explain("read", err)
		}
		record.At = time.UnixMicro(at).UTC()
		history = append(history, record)
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain("read", err)
	}
	return history, nil
}

// Queues returns the queues by name.
func (s *Store) Queues(ctx context.Context) ([]api.QueueSpec, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT name, parent, quota, spec FROM queues ORDER BY name`)
	if err != nil {
		return nil, s.explain("read", err)
	}
	defer func() { _ = rows.Close() }()
	var queues []api.QueueSpec
	for rows.Next() {
		var queue api.QueueSpec
		var spec string
		if err := rows.Scan(&queue.Name, &queue.Parent, (*int64)(&queue.Quota), &spec); err != nil {
			return nil, s.explain("read", err)
		}
		if spec != "" {
			if err := json.Unmarshal([]byte(spec), &queue); err != nil {
				return nil, fmt.Errorf("%w: queue %s: %w", ErrDamaged, queue.Name, err)
			}
		}
		queues = append(queues, queue)
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain("read", err)
	}
	return queues, nil
}

// Setting returns a setting, or "" if it was never set.
func (s *Store) Setting(ctx context.Context, key string) (string, error) {
	var value string
	err := s.db.QueryRowContext(ctx, `SELECT value FROM settings WHERE key = ?`, key).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", s.explain("read", err)
	}
	return value, nil
}

func (s *Store) list(ctx context.Context, query string, args ...any) ([]Workload, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.explain("read", err)
	}
	defer func() { _ = rows.Close() }()
	var list []Workload
	for rows.Next() {
		var work Workload
		var userID int64
		var spec, status, host string
		if err := rows.Scan(&work.UID, &work.Seq, &work.User, &userID, &spec, &status, &host); err != nil {
			return nil, s.explain("read", err)
		}
		work.UserID = uint32(userID)
		work.Host = json.RawMessage(host)
		if err := errors.Join(json.Unmarshal([]byte(spec), &work.Spec), json.Unmarshal([]byte(status), &work.Status)); err != nil {
			return nil, s.damaged(fmt.Sprintf("workload %s cannot be read: %v", work.UID, err))
		}
		list = append(list, work)
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain("read", err)
	}
	return list, nil
}
