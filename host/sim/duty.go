package sim

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
)

// Duty is how busy inference services keep a device over time.
type Duty struct {
	Step     engine.Time // µs between two samples; at least one second
	Services []Service   // by name
	known    map[string]int
}

// Service is what was seen of one service on a device of its own.
type Service struct {
	Name   string
	Busy   []api.Milli // what it kept busy of the device, sample by sample: 0 to 1000. At least enoughSamples
	Memory api.Bytes   // the most that it held
}

// enoughSamples is how many samples a service needs to be taken up: of one that was seen for a short while nothing can be said.
const enoughSamples = 100

// dutyWord in the name of a file of duty cycles is memoryWord in that of the memory beside it.
const (
	dutyWord   = "duty_cycle"
	memoryWord = "memory_used_bytes"
)

// ReadDuty reads the duty cycles of inference services as Alibaba's trace of 2026 has them: a table of value (percent), timestamp_anon (seconds) and
// container_ip, and beside it one of the memory (bytes); each a CSV file or a tar.gz with one in it. A service's samples are taken as if they came one step
// after the other; a step is the shortest time between two of all. Services with fewer than 100 samples are left out.
func ReadDuty(path string) (*Duty, error) {
	name := filepath.Base(path)
	if !strings.Contains(name, dutyWord) {
		return nil, fmt.Errorf("duty cycles %s: the name must have %s in it, for the file of the memory is called the same with %s instead", path, dutyWord, memoryWord)
	}
	r := dutyReader{busy: map[string][]sample{}, memory: map[string]api.Bytes{}}
	if err := readPacked(path, r.cycle); err != nil {
		return nil, err
	}
	if err := readPacked(filepath.Join(filepath.Dir(path), strings.Replace(name, dutyWord, memoryWord, 1)), r.held); err != nil {
		return nil, err
	}
	return r.duty(path)
}

// readPacked is readTable of a file that may be the one file in a tar.gz.
func readPacked(path string, each func(row) error) error {
	if !strings.HasSuffix(path, ".tar.gz") {
		return readTable(path, each)
	}
	file, err := os.Open(path) //nolint:gosec // the path is the user's own word
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	defer func() { _ = file.Close() }()
	return scanPacked(path, file, each)
}

func scanPacked(path string, from io.Reader, each func(row) error) error {
	plain, err := gzip.NewReader(bufio.NewReader(from))
	if err != nil {
		return fmt.Errorf("%s is no tar.gz: %w", path, err)
	}
	packed := tar.NewReader(plain)
	for {
		head, err := packed.Next()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%s has no CSV file in it: it needs one", path)
		case err != nil:
			return fmt.Errorf("%s is no tar.gz: %w", path, err)
		case strings.HasSuffix(head.Name, ".csv") && !strings.HasPrefix(filepath.Base(head.Name), "."):
			return scanTable(path+"/"+filepath.Base(head.Name), packed, each)
		}
	}
}

// sample is what a service kept busy at a time, in seconds.
type sample struct {
	at   int64
	busy api.Milli
}

// dutyReader is duty cycles on their way in.
type dutyReader struct {
	busy   map[string][]sample // by service
	memory map[string]api.Bytes
}

// service is whose line it is, and when, in seconds.
func (d *dutyReader) service(r row) (name string, at int64, err error) {
	seconds, err := r.decimal("timestamp_anon", 0, maxTime)
	if err != nil {
		return "", 0, err
	}
	if name = r.text("container_ip"); name == "" {
		return "", 0, fmt.Errorf("the line names no container_ip: it must say whose value it is")
	}
	return name, int64(seconds), nil
}

func (d *dutyReader) cycle(r row) error {
	name, at, err := d.service(r)
	if err != nil {
		return err
	}
	value, err := r.decimal("value", 0, 100)
	if err != nil {
		return err
	}
	if d.busy[name] == nil {
		name = strings.Clone(name)
	}
	d.busy[name] = append(d.busy[name], sample{at, api.Milli(math.Round(value * 10))})
	return nil
}

func (d *dutyReader) held(r row) error {
	name, _, err := d.service(r)
	if err != nil {
		return err
	}
	value, err := r.decimal("value", 0, 1<<50)
	if err != nil {
		return err
	}
	if _, ok := d.memory[name]; !ok {
		name = strings.Clone(name)
	}
	d.memory[name] = max(d.memory[name], api.Bytes(value))
	return nil
}

// duty puts what was read in order.
func (d *dutyReader) duty(path string) (*Duty, error) {
	out := &Duty{known: map[string]int{}}
	step := int64(math.MaxInt64)
	for _, name := range slices.Sorted(maps.Keys(d.busy)) {
		samples := d.busy[name]
		slices.SortStableFunc(samples, func(a, b sample) int { return int(a.at - b.at) })
		s := Service{Name: name, Memory: d.memory[name]}
		for i, one := range samples {
			if i > 0 && one.at == samples[i-1].at {
				return nil, fmt.Errorf("%s: service %s has two values at %d s: it may have one", path, name, one.at)
			}
			if i > 0 {
				step = min(step, one.at-samples[i-1].at)
			}
			s.Busy = append(s.Busy, one.busy)
		}
		if len(samples) < enoughSamples {
			continue
		}
		if _, ok := d.memory[name]; !ok {
			return nil, fmt.Errorf("%s: of service %s the file of the memory says nothing: it needs a line of it", path, name)
		}
		out.add(s)
	}
	if len(out.Services) == 0 {
		return nil, fmt.Errorf("%s has no service with %d samples: it needs at least one", path, enoughSamples)
	}
	out.Step = engine.Time(step) * 1_000_000
	return out, nil
}

func (d *Duty) add(s Service) {
	d.known[s.Name] = len(d.Services)
	d.Services = append(d.Services, s)
}

// index is which service has a name; -1: none.
func (d *Duty) index(name string) int {
	if i, ok := d.known[name]; ok {
		return i
	}
	return -1
}

// at is what a service keeps busy at a time if it began at a sample of its own; after the last sample the first comes again.
func (d *Duty) at(service, first int, t engine.Time) api.Milli {
	busy := d.Services[service].Busy
	return busy[(int64(first)+int64(t/d.Step))%int64(len(busy))]
}

// Mean is what all services keep busy on average over their samples.
func (d *Duty) Mean() api.Milli {
	var sum, samples int64
	for i := range d.Services {
		for _, busy := range d.Services[i].Busy {
			sum += int64(busy)
		}
		samples += int64(len(d.Services[i].Busy))
	}
	return api.Milli(sum / max(1, samples))
}

// madeServices, madeSamples and madePeriod are of the built-in generator: how many services there are, how many minutes of each, and after
// how many its load swings again.
const (
	madeServices = 24
	madeSamples  = 1440
	madePeriod   = 240
)

// MadeDuty is duty cycles that are made by a seed, for when there is no file of them: a base of a few percent that swings, and now and then minutes
// in which many requests come.
func MadeDuty(seed uint64) *Duty {
	r := newRandom(seed)
	d := &Duty{Step: 60_000_000, known: map[string]int{}}
	for i := range madeServices {
		s := Service{Name: "service-" + strconv.Itoa(100+i), Memory: api.Bytes(16+r.below(32)) << 30}
		base, phase, left := 10+r.below(50), r.below(madePeriod), 0
		for k := range madeSamples {
			swing := (k + phase) % madePeriod
			busy := base + base*min(swing, madePeriod-swing)/madePeriod // up to half more at the middle of a period
			if left == 0 && r.below(100) == 0 {
				left = 1 + r.below(8)
			}
			if left > 0 {
				left--
				busy += 150 + r.below(300)
			}
			s.Busy = append(s.Busy, api.Milli(busy))
		}
		d.add(s)
	}
	return d
}
