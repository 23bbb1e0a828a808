package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/aliquot-dev/aliquot/api"
)

// eventLimit is the longest line of the stream of events that is taken for one.
const eventLimit = 1 << 20

// Events calls each for every event after since (0: from now on) until ctx ends, each returns an error, or the server closes the
// stream; a stream that the server closes is *Unreachable. Once the server listens, and before the first event, it calls ready,
// if that is not nil: what happens from then on is not missed.
func (c *Client) Events(ctx context.Context, since uint64, ready func(), each func(api.Event) error) error {
	answer, err := c.send(ctx, http.MethodGet, "/v1/events?since="+strconv.FormatUint(since, 10), nil, "text/event-stream")
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if ready != nil {
		ready()
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, eventLimit)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(rest, []byte(" "))...)
			continue
		}
		if len(line) > 0 || len(data) == 0 {
			continue // comments, ids, and blank lines between keep-alives
		}
		var event api.Event
		if err := json.Unmarshal(data, &event); err != nil {
			return fmt.Errorf("read an event of the server at %s: %w", c.Socket(), err)
		}
		data = data[:0]
		if err := each(event); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &Unreachable{Socket: c.Socket(), Err: lines.Err()}
}
