package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/server"
)

// Info says what the server is and whom it takes the caller for.
func (c *Client) Info(ctx context.Context) (api.Info, error) {
	var out api.Info
	return out, c.call(ctx, http.MethodGet, "/v1/info", nil, &out)
}

// Devices lists the devices with their use now.
func (c *Client) Devices(ctx context.Context) ([]api.Device, error) {
	var out []api.Device
	return out, c.call(ctx, http.MethodGet, "/v1/devices", nil, &out)
}

// Workloads lists the live workloads and, with ended, those that are over.
func (c *Client) Workloads(ctx context.Context, ended bool) ([]api.Workload, error) {
	path := "/v1/workloads"
	if ended {
		path += "?ended=true"
	}
	var out []api.Workload
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}

// Submit hands a workload in. It returns as soon as the server has stored it.
func (c *Client) Submit(ctx context.Context, spec api.WorkloadSpec) (api.Workload, error) {
	var out api.Workload
	return out, c.call(ctx, http.MethodPost, "/v1/workloads", spec, &out)
}

// Plan says what would happen if a workload were submitted now.
func (c *Client) Plan(ctx context.Context, spec api.WorkloadSpec) (api.Plan, error) {
	var out api.Plan
	return out, c.call(ctx, http.MethodPost, "/v1/plan", spec, &out)
}

// Workload finds a workload by name or UID.
func (c *Client) Workload(ctx context.Context, name string) (api.Workload, error) {
	var out api.Workload
	return out, c.call(ctx, http.MethodGet, workloadPath(name, ""), nil, &out)
}

// Wait returns the workload once its phase is none of the given ones.
func (c *Client) Wait(ctx context.Context, name string, while ...api.Phase) (api.Workload, error) {
	phases := make([]string, len(while))
	for i, phase := range while {
		phases[i] = string(phase)
	}
	var out api.Workload
	path := workloadPath(name, "") + "?while=" + url.QueryEscape(strings.Join(phases, ","))
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}

// Why says why a workload waits, or what became of it.
func (c *Client) Why(ctx context.Context, name string) (api.Why, error) {
	var out api.Why
	return out, c.call(ctx, http.MethodGet, workloadPath(name, "/why"), nil, &out)
}

// Stop ends a workload: SIGTERM, after grace SIGKILL.
func (c *Client) Stop(ctx context.Context, name string, grace api.Duration) (api.Workload, error) {
	in := struct {
		Grace api.Duration `json:"grace"`
	}{grace}
	var out api.Workload
	return out, c.call(ctx, http.MethodPost, workloadPath(name, "/stop"), in, &out)
}

// Signal sends a signal, by its name (`SIGTERM`), to a workload's processes.
func (c *Client) Signal(ctx context.Context, name, signal string) error {
	in := struct {
		Signal string `json:"signal"`
	}{signal}
	return c.call(ctx, http.MethodPost, workloadPath(name, "/signal"), in, nil)
}

// Checkpoint says that a workload has just saved what it has done.
func (c *Client) Checkpoint(ctx context.Context, name string) (api.Workload, error) {
	var out api.Workload
	return out, c.call(ctx, http.MethodPost, workloadPath(name, "/checkpoint"), nil, &out)
}

// ShareChange is a new share for a workload; nil leaves as it is.
type ShareChange = server.ShareChange

// Resize gives a workload another share, in place.
func (c *Client) Resize(ctx context.Context, name string, change ShareChange) (api.Workload, error) {
	var out api.Workload
	return out, c.call(ctx, http.MethodPost, workloadPath(name, "/resize"), change, &out)
}

// LogPart is what of a log is asked for.
type LogPart = server.LogPart

// Logs copies what the task printed to to, as far as it is asked for.
func (c *Client) Logs(ctx context.Context, name string, part LogPart, to io.Writer) error {
	asked := url.Values{}
	if part.Follow {
		asked.Set("follow", "true")
	}
	if part.Tail != nil {
		asked.Set("tail", strconv.Itoa(*part.Tail))
	}
	path := workloadPath(name, "/logs")
	if len(asked) > 0 {
		path += "?" + asked.Encode()
	}
	answer, err := c.send(ctx, http.MethodGet, path, nil, "text/plain, */*")
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(to, answer.Body); err != nil {
		return c.lost(ctx, err, "copy the log of %s", name)
	}
	return nil
}

// Record copies the engine's event log from now on, until ctx ends: then the error is the context's.
func (c *Client) Record(ctx context.Context, to io.Writer) error {
	answer, err := c.send(ctx, http.MethodGet, "/v1/record", nil, "text/plain, */*")
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(to, answer.Body); err != nil {
		return c.lost(ctx, err, "copy the server's event log")
	}
	return &Unreachable{Socket: c.Socket(), Err: io.ErrUnexpectedEOF} // it has no end
}

// Queues lists the queues.
func (c *Client) Queues(ctx context.Context) ([]api.Queue, error) {
	var out []api.Queue
	return out, c.call(ctx, http.MethodGet, "/v1/queues", nil, &out)
}

// SetQueue makes or changes a queue.
func (c *Client) SetQueue(ctx context.Context, spec api.QueueSpec) (api.Queue, error) {
	var out api.Queue
	return out, c.call(ctx, http.MethodPut, "/v1/queues/"+url.PathEscape(spec.Name), spec, &out)
}

// RemoveQueue removes a queue that holds nothing.
func (c *Client) RemoveQueue(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/v1/queues/"+url.PathEscape(name), nil, nil)
}

func workloadPath(name, rest string) string { return "/v1/workloads/" + url.PathEscape(name) + rest }

// Policy is the policy file that is set; without a name: none is.
func (c *Client) Policy(ctx context.Context) (api.Policy, error) {
	var out api.Policy
	return out, c.call(ctx, http.MethodGet, "/v1/policy", nil, &out)
}

// SetPolicy has a policy file hold.
func (c *Client) SetPolicy(ctx context.Context, file api.Policy) (api.Policy, error) {
	var out api.Policy
	return out, c.call(ctx, http.MethodPut, "/v1/policy", file, &out)
}

// RemovePolicy has no policy file hold any more.
func (c *Client) RemovePolicy(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/v1/policy", nil, nil)
}
