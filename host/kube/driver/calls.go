package driver

import (
	"context"
	"net"
	"sync"
	"time"
)

// calls are what has begun and not ended: calls of kubelet's that are not answered, or its connections.
type calls struct {
	mu    sync.Mutex
	last  int
	open  map[int]time.Time // when they began
	ended change
}

// begin counts one that begins now, until what it returns is called.
func (c *calls) begin(now time.Time) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[int]time.Time{}
	}
	c.last++
	number := c.last
	c.open[number] = now
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, number)
		c.ended.now()
	}
}

// count is how many there are.
func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// longest is for how long the oldest has not been answered; 0: there is none.
func (c *calls) longest(now time.Time) (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, begun := range c.open {
		longest = max(longest, now.Sub(begun))
	}
	return longest
}

// idle waits until there is none.
func (c *calls) idle(ctx context.Context) {
	for {
		ended := c.ended.wait()
		if c.count() == 0 {
			return
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// listener counts connections until they are closed, by whichever side.
type listener struct {
	net.Listener
	lines *calls
}

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	one, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &line{Conn: one, ended: sync.OnceFunc(l.lines.begin(time.Now()))}, nil
}

// line is a connection that is counted.
type line struct {
	net.Conn
	ended func()
}

// Close closes it.
func (l *line) Close() error {
	defer l.ended()
	return l.Conn.Close()
}
