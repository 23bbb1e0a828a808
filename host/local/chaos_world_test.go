package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/server"
)

// One life of a daemon in the test of chaos: it takes over what the last one left, checks that everything is as it was promised,
// says so on its report, and then has users do things at random until it is killed.

// What a life says on its report, one line each.
const (
	saysChecked = "checked" // what it found is as it should be
	saysActed   = "acted"   // its users have done what they wanted
	saysWrong   = "wrong: " // what is not as it should be follows
)

// reportDescriptor is where a life reports.
const reportDescriptor = 3

// life is one.
type life struct {
	*Host
	agent  realAgent
	root   string
	dice   *rand.Rand
	report *os.File
}

// chaosDevices are the devices of the test of chaos.
const chaosDevices = "h200x2"

// live is a life's process. With last it ends everything in the end and checks that nothing is left.
func live(root string, seed uint64, last bool) int {
	syscall.CloseOnExec(reportDescriptor)
	l := &life{root: root, dice: rand.New(rand.NewPCG(seed, seed)), report: os.NewFile(reportDescriptor, "report")}
	if err := l.lead(last); err != nil {
		l.say(saysWrong + strings.ReplaceAll(err.Error(), "\n", " "))
		return 1
	}
	return 0
}

func (l *life) say(line string) { _, _ = fmt.Fprintln(l.report, line) }

func (l *life) lead(last bool) error {
	ctx := context.Background()
	agent, err := node.Open(ctx, node.Config{Run: filepath.Join(l.root, "run"), Simulate: chaosDevices})
	if err != nil {
		return fmt.Errorf("the agent does not start: %w", err)
	}
	l.agent = realAgent{agent}
	if l.Host, err = Open(ctx, crashConfig(l.root, l.agent)); err != nil {
		return fmt.Errorf("the daemon does not start: %w", err)
	}
	if err := l.check(); err != nil {
		return err
	}
	l.say(saysChecked)
	if last {
		err := l.endAll()
		return errors.Join(err, l.Close(), l.shutDown())
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	for range 4 + l.dice.IntN(12) {
		l.act()
	}
	l.say(saysActed)
	<-asked
	return l.Close()
}

// shutDown ends arbiter and simulated devices, which outlive daemons.
func (l *life) shutDown() error {
	agent, err := node.Open(context.Background(), node.Config{Run: filepath.Join(l.root, "run"), Simulate: chaosDevices})
	if err != nil {
		return err
	}
	return agent.Shutdown(context.Background(), false)
}

// kinds are the programs of the test of chaos; each ends with the status that the name of its workload says. The lines are counted.
var kinds = []struct {
	name, shell string
}{
	{"stays0", "exec sleep 1000"},
	{"family0", "sleep 1000 & sleep 1000 & wait"},
	{"lines3", "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; : > ROOT/done-$ALIQUOT_WORKLOAD; exit 3"},
	{"slow7", "exec 2>/dev/null; i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.005; done; : > ROOT/done-$ALIQUOT_WORKLOAD; exit 7"},
	{"true0", "true"},
	{"trains0", "exec TRAINER --seconds 0 --kernel-us 200 --mem-mib 64"},
	{"trained0", "exec TRAINER --seconds 0.2 --kernel-us 100 --batch 4 --mem-mib 16"},
	{"takes0", "exec MEMORY"},
	{"grows0", "TRAINER --seconds 0.05 --mem-mib 200 && exec TRAINER --seconds 0 --demand 0.1 --mem-mib 900"},
}

// borrowing is the name of programs that take all memory that they are let have and are ended when others want their floors; aimed at what
// becomes of these.
const borrowing = "borrows0"

// doomed is what the name of a workload begins with that may be killed at a point of its own.
const doomed = "doomed-"

// mostLive is how many workloads live at most.
const mostLive = 9

// act has a user do something.
func (l *life) act() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := l.Workloads(ctx, false)
	if err != nil {
		return
	}
	what := l.dice.IntN(12)
	if len(all) == 0 || what < 5 && len(all) < mostLive {
		l.submitOne(ctx)
		return
	}
	work := all[l.dice.IntN(len(all))]
	if strings.HasPrefix(os.Getenv(aimSetting), "local.resize") && l.dice.IntN(2) == 0 {
		what = 8
	}
	switch {
	case what < 6:
		_, _ = l.SetQueue(ctx, me, api.QueueSpec{Name: fmt.Sprintf("q%d", l.dice.IntN(3)), Quota: api.Quota(100 * l.dice.IntN(20))})
	case what < 8:
		l.record("let go", "%s", work.UID)
		_, _ = l.Stop(ctx, me, work.UID, api.Duration(time.Duration(l.dice.IntN(20))*time.Millisecond))
	case what < 10:
		floor := api.Milli(50 + 50*l.dice.IntN(10))
		change := server.ShareChange{Compute: &api.Compute{Floor: floor, Ceiling: floor + api.Milli(50*l.dice.IntN(8))}}
		if l.dice.IntN(2) == 0 {
			change.Memory = &api.Memory{Floor: api.Amount{Bytes: api.Bytes(1+l.dice.IntN(3)) << 30}, Ceiling: api.Amount{Bytes: 4 << 30}}
		}
		_, _ = l.Resize(ctx, me, work.UID, change)
	default:
		l.promise(ctx, work)
	}
}

func (l *life) submitOne(ctx context.Context) {
	kind := kinds[l.dice.IntN(len(kinds))]
	if aim := os.Getenv(aimSetting); (strings.Contains(aim, ".memory.") || strings.HasPrefix(aim, "shim.")) && l.dice.IntN(3) > 0 {
		kind = kinds[len(kinds)-4+l.dice.IntN(4)] // those that use a device
	}
	if aim := os.Getenv(aimSetting); (strings.Contains(aim, ".memory.lent") || strings.Contains(aim, ".floor.")) && l.dice.IntN(2) == 0 {
		kind.name, kind.shell = borrowing, "exec HOG --seconds 0"
	}
	shell := "echo $$ >> ROOT/ran-$ALIQUOT_WORKLOAD; " + kind.shell
	trainer := os.Getenv(trainerSetting)
	shell = strings.NewReplacer("ROOT", l.root, "TRAINER", trainer, "HOG", filepath.Join(filepath.Dir(trainer), "hog"), "MEMORY", filepath.Join(l.root, memoryProgram)).Replace(shell)
	asked := spec([]string{"0.1", "0.1..0.5", "0.25..", "0.5", "1", "0.3..0.8"}[l.dice.IntN(6)], shell)
	asked.Name = fmt.Sprintf("%s-%08x", kind.name, l.dice.Uint32())
	if kind.name == borrowing {
		asked.OnReclaim = api.ReclaimStop
		asked.Share.Memory = api.Memory{Floor: api.Amount{Bytes: 1 << 30}, Ceiling: api.Amount{Part: api.WholeDevice}}
	}
	asked.Env["ALIQUOT_KILL_AT"] = "" // what kills the daemon is not for its programs
	if at := os.Getenv(tenantSetting); at != "" && l.dice.IntN(2) == 0 {
		asked.Env["ALIQUOT_KILL_AT"], asked.Env["ALIQUOT_KILL_LOG"] = at, os.Getenv("ALIQUOT_KILL_LOG")
		asked.Name = doomed + asked.Name
	}
	work, err := l.Submit(ctx, me, asked)
	if err != nil {
		return
	}
	l.record("accepted", "%s %s", asked.Name, work.UID)
	if l.dice.IntN(2) == 0 {
		l.promise(ctx, work)
	}
}

// promise looks at a workload. What is told to run must run until it ends by itself or someone ends it.
func (l *life) promise(ctx context.Context, work api.Workload) {
	ctx, cancel := context.WithTimeout(ctx, 80*time.Millisecond) // it may have to wait in line
	defer cancel()
	work, err := l.Wait(ctx, work.UID, api.Waiting, api.Starting)
	if err == nil && work.Status.Phase == api.Running {
		l.record("promised", "%s %d", work.UID, work.Status.PID)
	}
}

// record writes what a client was told or is about to do.
func (l *life) record(name, format string, args ...any) {
	(&story{l.Host, l.root}).record(name, format, args...)
}

// arbiterKnows asks the arbiter whether it has a task in its books: it is told to read limits again that have not changed.
func arbiterKnows(root, uid string) (bool, error) {
	conn, err := net.Dial("unixpacket", filepath.Join(root, "run", "arbiter.ctl"))
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return false, err
	}
	if _, err := conn.Write([]byte("policy " + uid + "\n")); err != nil {
		return false, err
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	return strings.HasPrefix(string(answer[:n]), "ok"), err
}

// endAll stops everything, from the end of the line, and checks that nothing is left.
func (l *life) endAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	all, err := l.Workloads(ctx, false)
	if err != nil {
		return err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if _, err := l.Stop(ctx, me, all[i].UID, 0); err != nil && !strings.Contains(err.Error(), "has ended") {
			complain("stop %s: %v", all[i].Spec.Name, err)
		}
	}
	for _, work := range all {
		if _, err := l.Wait(ctx, work.UID, api.Waiting, api.Starting, api.Running, api.Stopping); err != nil {
			complain("%s does not end: %v", work.Spec.Name, err)
		}
	}
	if left := l.agent.Prepared(); len(left) != 0 {
		complain("pages left: %+v", left)
	}
	ended, err := l.Workloads(ctx, true)
	if err != nil {
		return err
	}
	for _, work := range ended {
		if left, err := supervise.Leftover(supervise.Task{UID: work.UID, User: work.UserID}); err != nil || len(left) > 0 {
			complain("processes of %s are left: %v, %v", work.Spec.Name, left, err)
		}
	}
	return errors.Join(wrong...)
}
