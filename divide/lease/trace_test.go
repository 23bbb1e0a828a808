package lease

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
)

var (
	traceWorlds  = flag.Int("lease.worlds", 0, "random worlds in which Go is held to C, for fixed seeds and for seeds from the clock each (0: 1500, 60 with -race)")
	traceProgram = flag.String("lease.trace", "", "the program that writes down what the rule in C does, in place of that which is built")
)

// worlds is how many worlds a test is to go through.
func worlds() int {
	switch {
	case *traceWorlds > 0:
		return *traceWorlds
	case raceEnabled:
		return 60
	}
	return 1500
}

// program builds the C program that writes traces, once.
var program = sync.OnceValues(func() (string, error) {
	if *traceProgram != "" {
		return *traceProgram, nil
	}
	out, err := exec.Command("make", "--no-print-directory", "-C", "../../native", "arbiter-trace").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program that traces the rule in C: %w\n%s", err, out)
	}
	return "../../build/native/test/arbiter-trace", nil
})

// The rule in Go and the rule in C, given the same calls, give the same gates, wake-ups and books, and keep the same state after each call.
func TestTraces(t *testing.T) {
	t.Run("fixed seeds", func(t *testing.T) { holdToC(t, 1) })
	t.Run("seeds of the clock", func(t *testing.T) { holdToC(t, uint64(time.Now().UnixNano())>>20<<12) })
}

func holdToC(t *testing.T, seed uint64) {
	t.Parallel()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, "-n", strconv.Itoa(worlds()), "-s", strconv.FormatUint(seed, 10))
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	replay := &replay{in: bufio.NewReaderSize(out, 1<<20)}
	differs := replay.run()
	if differs != nil {
		_ = command.Process.Kill()
	}
	if err := command.Wait(); err != nil && differs == nil {
		t.Errorf("%s -s %d: %v", path, seed, err)
	}
	if differs != nil {
		t.Fatalf("world %d, call %d (%s): %v\n%s", replay.seed, replay.calls, replay.call, differs, replay.compare(path))
	}
	if replay.worlds != worlds() {
		t.Errorf("%d worlds were traced, not %d", replay.worlds, worlds())
	}
	t.Logf("from seed %d: %d worlds, %d calls, %.1f hours of virtual time, %d gates: no difference", seed, replay.worlds, replay.allCalls,
		float64(replay.allTime)/float64(3600*second), replay.gatesSeen)
}

// replay reads a trace (native/arbiter/test/record.h tells the format), does in Go what was done in C and compares.
type replay struct {
	in   *bufio.Reader
	fail error // of reading

	rule   *Rule
	config Config
	seen   []Observation // by grant
	now    NS
	gates  []published // that the rule in Go gives, and that have not been seen in the trace yet

	seed, calls uint64
	call        string // the one that was replayed last, in words

	worlds, gatesSeen int
	allCalls          uint64
	allTime           NS
}

type published struct {
	grant GrantSlot
	gate  Gate
}

// Observe is what the trace says that the grant's processes say.
func (p *replay) Observe(grant GrantSlot, _ NS, seen *Observation) { *seen = p.seen[grant] }

func (p *replay) n() uint64 {
	value, err := binary.ReadUvarint(p.in)
	if err != nil && p.fail == nil {
		p.fail = err
	}
	return value
}

func (p *replay) z() int64 {
	value := p.n()
	return int64(value>>1) ^ -int64(value&1)
}

func (p *replay) time() NS {
	past := p.now
	p.now += NS(p.z())
	if past != 0 && p.now > past {
		p.allTime += p.now - past
	}
	return p.now
}

func (p *replay) policy() Policy {
	floor, ceiling, weight, flags := p.n(), p.n(), p.n(), p.n()
	return Policy{
		Floor: api.Milli(floor), Ceiling: api.Milli(ceiling), Weight: uint32(weight),
		Latency: flags&1 != 0, Stopped: flags&4 != 0, Clock: flags&8 != 0,
	}
}

func (p *replay) rows() Rows {
	return Rows{Own: NS(p.n()), Lent: NS(p.n()), ReservedIdle: NS(p.n()), BurstFree: NS(p.n()), BurstLent: NS(p.n())}
}

// run replays the whole trace and returns the first difference.
func (p *replay) run() error {
	for {
		letter, err := p.in.ReadByte()
		if errors.Is(err, io.EOF) {
			return p.noMoreGates()
		}
		if err != nil {
			return err
		}
		if letter == 'G' {
			if err := p.published(); err != nil {
				return err
			}
			continue
		}
		if err := p.noMoreGates(); err != nil {
			return err
		}
		if strings.IndexByte("WCZO", letter) >= 0 {
			p.prepare(letter)
			continue
		}
		differs := p.replay(letter)
		var want [8]byte
		if _, err := io.ReadFull(p.in, want[:]); err != nil && p.fail == nil {
			p.fail = err
		}
		p.calls++
		p.allCalls++
		if p.fail != nil {
			return fmt.Errorf("read the trace: %w", p.fail)
		}
		if differs != nil {
			return differs
		}
		var got digest
		visitRule(p.rule, &got)
		if uint64(got) != binary.LittleEndian.Uint64(want[:]) {
			return errors.New("what is kept differs")
		}
	}
}

func (p *replay) prepare(letter byte) {
	switch letter {
	case 'W':
		p.seed, p.calls, p.now, p.config = p.n(), 0, 0, Defaults()
		p.worlds++
		p.empty()
	case 'C':
		c := &p.config
		for _, time := range []*NS{
			&c.Lease, &c.IdleCap, &c.LatencyCap, &c.LatencyReach, &c.Burst, &c.Ahead, &c.Early, &c.Idle, &c.Start, &c.Overlap, &c.Patience, &c.Settle,
		} {
			*time = NS(p.n())
		}
		p.rule.config = *c
	case 'Z':
		p.empty()
	case 'O':
		p.hear()
	}
}

func (p *replay) empty() {
	p.rule = New(p.config, p)
	p.seen = p.seen[:0]
}

func (p *replay) hear() {
	o := &p.seen[p.n()]
	bits, which := p.n(), p.n()
	o.Waiting, o.Outstanding, o.Coming, o.Several = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
	for i, number := range []*uint64{
		(*uint64)(&o.WaitSince), &o.Launched, &o.Completed, (*uint64)(&o.LaunchedNS), (*uint64)(&o.OutstandingNS), (*uint64)(&o.BusyUntil),
		(*uint64)(&o.MeasuredNS),
	} {
		if which>>i&1 != 0 {
			*number += uint64(p.z())
		}
	}
}

// replay does one call in Go and compares what it returns.
func (p *replay) replay(letter byte) error {
	p.call = "no call that is known: " + strconv.QuoteRune(rune(letter))
	switch letter {
	case 'D':
		now, state, want := p.time(), p.n(), p.n()
		p.call = fmt.Sprintf("AddDevice at %d", now)
		got, err := p.rule.AddDevice(now, DeviceState(state))
		if err != nil || uint64(got) != want {
			return fmt.Errorf("device %d, %v, where C gives %d", got, err, want)
		}
	case 'T':
		return p.addTask()
	case 'X':
		now, task := p.time(), TaskSlot(p.n())
		p.call = fmt.Sprintf("RemoveTask %d at %d", task, now)
		p.rule.RemoveTask(task, now)
	case 'S':
		now, device, state := p.time(), DeviceSlot(p.n()), DeviceState(p.n())
		p.call = fmt.Sprintf("SetDeviceState of %d to %d at %d", device, state, now)
		p.rule.SetDeviceState(device, now, state)
	case 'P':
		now, grant, policy := p.time(), GrantSlot(p.n()), p.policy()
		p.call = fmt.Sprintf("SetPolicy of %d to %+v at %d", grant, policy, now)
		p.rule.SetPolicy(grant, now, policy)
	case 'U':
		now, task := p.time(), TaskSlot(p.n())
		p.call = "Touch"
		p.rule.Touch(task, now)
	case 'L':
		now, device := p.time(), DeviceSlot(p.n())
		p.call = "Settle"
		p.rule.Settle(device, now)
	case 'N':
		now, want := p.time(), p.z()
		p.call = "Run"
		got := int64(-1)
		if next := p.rule.Run(now); next != Never {
			got = int64(next - now)
		}
		p.rule.Gates(func(grant GrantSlot, gate Gate) { p.gates = append(p.gates, published{grant, gate}) })
		if got != want {
			return fmt.Errorf("the next wake-up is in %d ns, in C in %d (−1: never)", got, want)
		}
	default:
		return p.replayBooks(letter)
	}
	return nil
}

func (p *replay) addTask() error {
	now := p.time()
	shares := make([]Share, p.n())
	for i := range shares {
		shares[i] = Share{Device: DeviceSlot(p.n()), Policy: p.policy()}
	}
	want := p.n()
	p.call = fmt.Sprintf("AddTask %+v at %d", shares, now)
	got, err := p.rule.AddTask(now, shares)
	if err != nil || uint64(got) != want {
		return fmt.Errorf("task %d, %v, where C gives %d", got, err, want)
	}
	for i, grant := range p.rule.TaskGrants(got) {
		if want := p.n(); uint64(grant) != want {
			return fmt.Errorf("grant %d of the task is in slot %d, in C in %d", i, grant, want)
		}
		for len(p.seen) <= int(grant) {
			p.seen = append(p.seen, Observation{})
		}
		p.seen[grant] = Observation{}
	}
	return nil
}

func (p *replay) replayBooks(letter byte) error {
	switch letter {
	case 'R':
		grant := GrantSlot(p.n())
		books := Books{
			Credit: p.z(), Bucket: p.z(), VTime: p.n(), Held: NS(p.n()), Leases: p.n(), Overlapped: p.n(), Revoked: p.n(), Wait: NS(p.n()),
			WakeWorst: NS(p.n()), Wakes: p.n(), Rows: p.rows(),
		}
		p.call = fmt.Sprintf("Restore of %d: %+v", grant, books)
		p.rule.Restore(grant, books)
	case 'B':
		device := DeviceSlot(p.n())
		books := DeviceBooks{
			Since: NS(p.n()), Updated: NS(p.n()), UnreservedIdle: NS(p.n()), Down: NS(p.n()), Switches: p.n(), Ended: p.rows(),
		}
		p.call = fmt.Sprintf("RestoreDevice of %d: %+v", device, books)
		p.rule.RestoreDevice(device, books)
	case 'A':
		now, device := p.time(), DeviceSlot(p.n())
		live := map[GrantSlot]bool{}
		for _, g := range p.rule.devices[device].grants {
			live[g.slot] = p.n() != 0
		}
		p.call = fmt.Sprintf("Away of %d at %d: %v", device, now, live)
		p.rule.Away(device, now, func(grant GrantSlot) bool { return live[grant] })
	default:
		return errors.New("the trace cannot be read")
	}
	return nil
}

// published compares one gate that C publishes with the next of Go.
func (p *replay) published() error {
	want := published{grant: GrantSlot(p.n())}
	bits := p.n()
	want.gate = Gate{Open: bits&1 != 0, Ungated: bits&2 != 0, Extended: bits&4 != 0, Lease: p.n(), Start: p.now + NS(p.z()), End: p.now + NS(p.z())}
	p.gatesSeen++
	if p.fail != nil {
		return fmt.Errorf("read the trace: %w", p.fail)
	}
	if len(p.gates) == 0 {
		return fmt.Errorf("C publishes the gate %+v, Go none", want)
	}
	got := p.gates[0]
	p.gates = p.gates[1:]
	if got != want {
		return fmt.Errorf("C publishes the gate %+v, Go %+v", want, got)
	}
	return nil
}

func (p *replay) noMoreGates() error {
	if len(p.gates) > 0 {
		return fmt.Errorf("the rule in Go publishes the gates %+v, that in C none of them", p.gates)
	}
	p.gates = p.gates[:0]
	return nil
}

// compare says where the states after the last call differ.
func (p *replay) compare(path string) string {
	out, err := exec.Command(path, "-s", strconv.FormatUint(p.seed, 10), "-c", strconv.FormatUint(p.calls, 10)).Output()
	if err != nil {
		return fmt.Sprintf("the state in C cannot be had: %v", err)
	}
	inC := strings.Split(strings.TrimSpace(string(out)), "\n")
	var inGo lines
	visitRule(p.rule, &inGo)
	var differ []string
	for i := range max(len(inC), len(inGo)) {
		c, g := "nothing", "nothing"
		if i < len(inC) {
			c = inC[i]
		}
		if i < len(inGo) {
			g = inGo[i]
		}
		if c != g {
			differ = append(differ, fmt.Sprintf("  C: %-44s Go: %s", c, g))
		}
	}
	if len(differ) == 0 {
		return "the states are the same"
	}
	return fmt.Sprintf("%d of %d numbers differ:\n%s", len(differ), len(inC), strings.Join(differ[:min(len(differ), 40)], "\n"))
}
