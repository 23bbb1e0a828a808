package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
)

// The self test's share: little, but room for a context of a real driver. It needs nobody's compute.
const (
	probeProgram  = "bin/aliquot-probe"
	probeMemory   = 1 << 30
	probeCompute  = 10 // thousandths
	probeLimit    = 30 * time.Second
	probePatience = 3 * time.Second // for room to be free
)

// seen is what the probe prints.
type seen struct {
	Devices int    `json:"devices"`
	Total   uint64 `json:"total"` // bytes of memory
}

// errNoRoom says that the self test would have to wait in line.
var errNoRoom = errors.New("no device has room for it now")

// SelfTest runs the probe as a workload and compares what it saw with its share.
func SelfTest(ctx context.Context, server *client.Client, run string, facts *Facts) {
	program := filepath.Join(run, probeProgram)
	if _, err := os.Stat(program); err != nil {
		facts.ProbeSkipped = fmt.Sprintf("the probe is not installed (%s)", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	says, err := probe(ctx, server, program, &facts.ProbeName)
	if errors.Is(err, errNoRoom) {
		facts.ProbeSkipped = err.Error()
		return
	}
	facts.Probed, facts.Probe, facts.ProbeSays = true, err, says
}

// probe submits the program with pipes for its streams and judges what comes out. It tells the name that the workload got.
func probe(ctx context.Context, server *client.Client, program string, name *string) (string, error) {
	work, err := server.Submit(ctx, api.WorkloadSpec{
		Share: api.Share{
			Compute: api.Compute{Floor: probeCompute, Ceiling: api.WholeDevice},
			Memory:  api.Memory{Floor: api.Amount{Bytes: probeMemory}, Ceiling: api.Amount{Bytes: probeMemory}},
		},
		Class: api.Interactive, TimeLimit: api.Duration(probeLimit), Command: []string{program}, Dir: "/", Attach: true,
		Env: map[string]string{"PATH": os.Getenv("PATH")},
	})
	if err != nil {
		return "", err
	}
	*name = work.Spec.Name
	output, err := attach(ctx, server, work.UID)
	if err != nil {
		return "", err
	}
	short, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if _, err := server.Wait(short, work.UID, api.Waiting); err != nil {
		_, _ = server.Stop(context.WithoutCancel(ctx), work.UID, 0)
		return "", errNoRoom
	}
	ended, err := server.Wait(ctx, work.UID, api.Waiting, api.Starting, api.Running, api.Stopping)
	if err != nil {
		return "", fmt.Errorf("%s did not end: %w", work.Spec.Name, err)
	}
	var text string
	select {
	case text = <-output:
	case <-ctx.Done():
		return "", fmt.Errorf("%s ended, and something holds its output open", work.Spec.Name)
	}
	if ended.Status.Outcome != api.Succeeded {
		return "", fmt.Errorf("%s %s: %s%s", work.Spec.Name, ended.Status.Outcome, ended.Status.Reason, strings.TrimSpace(text))
	}
	return compare(text, ended)
}

// attach gives the workload's streams to this process and returns what it will have printed, all at once when it has ended.
func attach(ctx context.Context, server *client.Client, uid string) (<-chan string, error) {
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = nothing.Close() }()
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = to.Close() }()
	line, err := server.Attach(ctx, uid, nothing, to, to)
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	output := make(chan string, 1)
	go func() {
		var text bytes.Buffer
		_, _ = io.Copy(&text, io.LimitReader(from, 64<<10))
		_, _ = from.Close(), line.Close()
		output <- text.String()
	}()
	return output, nil
}

// compare judges what the probe saw against the share it had.
func compare(text string, work api.Workload) (string, error) {
	var saw seen
	if err := json.Unmarshal([]byte(text), &saw); err != nil {
		return "", fmt.Errorf("the probe printed %q", strings.TrimSpace(text))
	}
	if len(work.Status.Grants) != 1 {
		return "", fmt.Errorf("the probe had %d grants, and asked for 1", len(work.Status.Grants))
	}
	ceiling := uint64(work.Status.Grants[0].MemoryCeiling)
	if saw.Devices != 1 || saw.Total != ceiling {
		return "", fmt.Errorf("the probe saw %d devices with %s of memory, and its share is 1 with %s: it does not find the shim",
			saw.Devices, size(saw.Total), size(ceiling))
	}
	return fmt.Sprintf("1 device with %s", size(saw.Total)), nil
}
