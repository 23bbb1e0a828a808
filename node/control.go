package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// answerWithin is how long the arbiter may take for an answer before it counts as hung. It answers within a millisecond; this is
// for machines that are out of memory or stopped for a while.
const answerWithin = 5 * time.Second

// refusal is an arbiter that answered, but not with ok.
type refusal struct{ line, answer string }

func (r *refusal) Error() string {
	return fmt.Sprintf("the arbiter refused %q: %s", r.line, strings.TrimSpace(strings.TrimPrefix(r.answer, "error:")))
}

// ask sends one line over the arbiter's control socket and returns what stands behind its `ok`. Any error but a *refusal means
// that nobody answered.
func ask(ctx context.Context, socket, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return askOn(ctx, conn, line)
}

func askOn(ctx context.Context, conn net.Conn, line string) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", err
	}
	if n == 0 {
		return "", errors.New("the connection was closed before an answer came")
	}
	text := strings.TrimSpace(string(answer[:n]))
	if text != "ok" && !strings.HasPrefix(text, "ok ") {
		return "", &refusal{line, text}
	}
	return strings.TrimSpace(strings.TrimPrefix(text, "ok")), nil
}
