package main

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aliquot-dev/aliquot/bench/judge"
)

// probe asks the driver one thing, with nothing of Aliquot between.
func (s *suite) probe(ctx context.Context, name string) (figures, error) {
	l, err := s.bare(s.program("probe"), name)
	if err != nil {
		return nil, err
	}
	return s.json(ctx, l)
}

// processor tells what the shim adds to calls on this machine's processor where the driver does nothing (native/shim/test/gate_cost.c), for what it adds
// to a real driver's to be held against.
func (s *suite) processor(ctx context.Context) (figures, error) {
	out, err := s.output(ctx, line{[]string{s.program("costs/gate_cost")}, clean(os.Environ())})
	if err != nil {
		return nil, err
	}
	c, err := judge.ParseCalls(out)
	return figures{"launch_more_ns": c.Gated, "launch_among_other_things_more_ns": c.ColdGated, "alloc_and_free_more_ns": c.Counted}, err
}

// switches asks what the driver's own time-slicing does, and keeps what a change of contexts takes.
func (s *suite) switches(ctx context.Context) (figures, error) {
	found, err := s.probe(ctx, "switch")
	if us, ok := found["switch_p50_us"].(float64); ok && err == nil {
		s.change = time.Duration(us * float64(time.Microsecond))
	}
	return found, err
}

// exports holds the functions that the real driver's library exports to the shim's list of them: those that the list lacks pass through.
func (s *suite) exports(ctx context.Context) (found figures, err error) {
	l, err := s.bare(s.program("probe"), "entries")
	if err != nil {
		return nil, err
	}
	out, err := s.output(ctx, l)
	if err != nil {
		return nil, err
	}
	var told struct {
		Library string   `json:"library"`
		Entries []string `json:"entries"`
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		return nil, fmt.Errorf("read the list of functions: %w", err)
	}
	library, err := elf.Open(told.Library)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, library.Close()) }()
	symbols, err := library.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", told.Library, err)
	}
	exported := map[string]bool{}
	for _, symbol := range symbols {
		if symbol.Section != elf.SHN_UNDEF && elf.ST_TYPE(symbol.Info) == elf.STT_FUNC && strings.HasPrefix(symbol.Name, "cu") {
			exported[symbol.Name] = true
		}
	}
	return compareExports(told.Library, exported, told.Entries), nil
}

// compareExports says which names one side has and the other has not.
func compareExports(library string, exported map[string]bool, entries []string) figures {
	var unknown, lacked []string
	for name := range exported {
		if !slices.Contains(entries, name) {
			unknown = append(unknown, name)
		}
	}
	for _, name := range entries {
		if !exported[name] {
			lacked = append(lacked, name)
		}
	}
	slices.Sort(unknown)
	slices.Sort(lacked)
	return figures{
		"library": library, "exported": float64(len(exported)), "entries": float64(len(entries)),
		"exported_without_an_entry": unknown, "without_an_entry": float64(len(unknown)),
		"entries_not_exported": lacked, "not_exported": float64(len(lacked)),
	}
}

// probeShared asks the same under a share: gated, with a neighbour's right to the rest, and alone on the device.
func (s *suite) probeShared(ctx context.Context, name string) (figures, error) {
	l, err := s.shared(share{gpu: "0.5..1", mem: "2Gi"}, s.program("probe"), name)
	if err != nil {
		return nil, err
	}
	found, err := s.json(ctx, l)
	if total := found["total_bytes"]; err == nil && name == "alloc" && total != float64(2<<30) {
		err = fmt.Errorf("a program with a share of 2 GiB was shown %v bytes", total)
	}
	return found, err
}

// costProcesses each tell what a call costs more through the shim than past it, which they ask in turns.
const costProcesses = 3

// cost is what a call costs more through the shim under a gate, and with the whole device as the share, which goes ungated: the median of the processes.
func (s *suite) cost(ctx context.Context, name string) (figures, error) {
	found := figures{}
	rounds := costProcesses
	if s.short {
		rounds = 1
	}
	for way, gpu := range map[string]string{"gated": "0.5..1", "whole_device": "1"} {
		l, err := s.shared(share{gpu: gpu, mem: "2Gi"}, s.program("probe"), name)
		if err != nil {
			return found, err
		}
		all := map[string][]float64{}
		for range rounds {
			told, err := s.json(ctx, l)
			if err != nil {
				return found, err
			}
			if _, ok := told[name+"_more_p50_ns"].(float64); !ok {
				return found, fmt.Errorf("what %s costs past the shim cannot be asked: there is no driver behind it, so the probe did not run in its share: see log.txt", name)
			}
			for key, value := range told {
				if ns, ok := value.(float64); ok && strings.HasSuffix(key, "_ns") {
					all[key] = append(all[key], ns)
				}
			}
		}
		for key, each := range all {
			slices.Sort(each)
			found[way+"_"+key] = quantile(each, 0.5)
		}
	}
	return found, nil
}

// json runs a program that prints one object.
func (s *suite) json(ctx context.Context, l line) (figures, error) {
	out, err := s.output(ctx, l)
	found, parsed := object(out)
	if err != nil {
		return found, err
	}
	if parsed != nil {
		return nil, fmt.Errorf("%s printed %q: %w", strings.Join(l.args, " "), last(out, 200), parsed)
	}
	if why, ok := found["not_run"].(string); ok {
		return nil, notRun("simulated: " + why)
	}
	return found, nil
}

// object reads the last line of a text as a JSON object.
func object(text string) (figures, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var found figures
	err := json.Unmarshal([]byte(lines[len(lines)-1]), &found)
	return found, err
}

const simulatedRuntime = "simulated: libcudart needs tables of the driver that are not documented"

// libcudart compiles a program of the CUDA runtime twice, with the static libcudart and with the shared one, and runs each bare and
// under a share. Both must be shown the share's memory.
func (s *suite) libcudart(ctx context.Context) (figures, error) {
	if s.simulate {
		return nil, notRun(simulatedRuntime)
	}
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		return nil, notRun("there is no nvcc here")
	}
	folder, err := os.MkdirTemp("", "aliquot-gpu-nvcc-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	found := figures{}
	for _, kind := range []string{"static", "shared"} {
		program := filepath.Join(folder, kind)
		if _, err := s.output(ctx, line{[]string{nvcc, "-cudart", kind, "-arch=native", "-o", program, s.program("runtime.cu")}, os.Environ()}); err != nil {
			return found, err
		}
		l, err := s.bare(program)
		if err != nil {
			return found, err
		}
		if found[kind+", bare"], err = s.json(ctx, l); err != nil {
			return found, err
		}
		if l, err = s.shared(share{gpu: "0.5..1", mem: "2Gi"}, program); err != nil {
			return found, err
		}
		under, err := s.json(ctx, l)
		if err != nil {
			return found, err
		}
		found[kind+", under a share of 2 GiB"] = under
		if total, ok := under["total_bytes"].(float64); !ok || total != 2<<30 {
			return found, fmt.Errorf("a program with the %s libcudart and a share of 2 GiB was shown %v bytes", kind, under["total_bytes"])
		}
	}
	return found, nil
}
