// Package client speaks the HTTP API of a server over its Unix socket. What comes in are calls with the API's types; what goes out
// are those types or an error: *api.Error where the server refused, *Unreachable where none answers, *Stranger where another
// user's does. It holds no state but the connection and decides nothing.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// SocketName is the name of the API's socket in RUN, AttachName that of the one which takes standard streams over.
const (
	SocketName = "aliquot.sock"
	AttachName = "attach.sock"
)

// errorLimit is how much of a refusal is read: it is one sentence, whatever answers.
const errorLimit = 64 << 10

// Client calls the server of one RUN folder, if that is this user's or root's. It is safe for use by several goroutines.
type Client struct {
	run  string
	user uint32 // whose server it talks to, besides root's
	http *http.Client
}

// New returns a client for the server whose RUN folder is run. It does not connect yet.
func New(run string) *Client {
	c := &Client{run: run, user: uint32(os.Geteuid())}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx, c.Socket()) }
	// No proxy, no compression, no idle limit: the other end is on this machine.
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true}}
	return c
}

// Socket is the path of the API's socket.
func (c *Client) Socket() string { return filepath.Join(c.run, SocketName) }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Unreachable says that no server answers at a socket.
type Unreachable struct {
	Socket string
	Err    error
}

func (e *Unreachable) Error() string {
	if errors.Is(e.Err, errPermission) {
		return fmt.Sprintf("the server at %s belongs to another user: start one of your own with `aliquot up`", e.Socket)
	}
	return fmt.Sprintf("no server answers at %s: start one with `aliquot up`", e.Socket)
}

func (e *Unreachable) Unwrap() error { return e.Err }

// problem is the RFC 9457 form of a refusal.
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Exit   int    `json:"exit_code"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

// call sends in as JSON, if it is not nil, and reads the answer into out, if that is not nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	answer, err := c.send(ctx, method, path, in, "application/json")
	if err != nil {
		return err
	}
	defer drain(answer.Body)
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return c.lost(ctx, err, "read what the server at %s answered to %s %s", c.Socket(), method, path)
	}
	return nil
}

// send makes a request and returns the answer if it is not a refusal; the caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, in any, accept string) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("write the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://aliquot"+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Accept", accept)
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, c.lost(ctx, err, "ask the server at %s", c.Socket())
	}
	if answer.StatusCode >= 300 {
		defer drain(answer.Body)
		return nil, refusal(answer)
	}
	return answer, nil
}

// lost tells a server that is not there, or went away in the middle of an answer, or is a stranger's, from other failures.
func (c *Client) lost(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var stranger *Stranger
	if errors.As(err, &stranger) {
		return stranger
	}
	var op *net.OpError
	if errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Unreachable{Socket: c.Socket(), Err: err}
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// refusal turns an answer that is not 2xx into the sentence the server gave.
func refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, errorLimit))
	refused := &api.Error{Code: codeOf(answer.StatusCode)}
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	var said problem
	if strings.HasSuffix(media, "json") && json.Unmarshal(text, &said) == nil {
		if said.Code != "" {
			refused.Code = said.Code
		}
		refused.Message, refused.ExitCode = said.Detail, said.Exit
		if refused.Message == "" {
			refused.Message = said.Title
		}
		for _, one := range said.Errors {
			if one.Message != "" && !strings.Contains(refused.Message, one.Message) {
				refused.Message += ": " + strings.TrimSpace(one.Location+" "+one.Message)
			}
		}
	}
	if refused.Message == "" {
		refused.Message = fmt.Sprintf("the server refused with status %s and said nothing more", answer.Status)
	}
	return refused
}

// codeOf is the code of a refusal that carries none.
func codeOf(status int) string {
	switch status {
	case http.StatusNotFound:
		return api.CodeNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return api.CodeForbidden
	case http.StatusConflict:
		return api.CodeConflict
	case http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusInsufficientStorage:
		return api.CodeUnavailable
	default:
		return api.CodeInvalid
	}
}

// drain lets the connection be used again.
func drain(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, errorLimit))
	_ = body.Close()
}
