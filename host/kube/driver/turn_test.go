package driver

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/aliquot-dev/aliquot/node"
)

// slow is an agent whose Prepare of one task waits until it may go on.
type slow struct {
	*agentOf
	task       string
	begun, may chan struct{}
	once       sync.Once
}

func (s *slow) Prepare(ctx context.Context, t node.Task) (node.Launch, error) {
	if t.UID == s.task {
		s.once.Do(func() { close(s.begun) })
		<-s.may
	}
	return s.agentOf.Prepare(ctx, t)
}

// One agent follows another on a node, and kubelet, which calls whom it was told of last, has an answer to every call: the first serves until the
// second is registered, finishes what it was asked and lets go; what the second is asked meanwhile is answered once it has taken over. Who is killed
// does not stand in the way, and its sockets go.
func TestTurns(t *testing.T) {
	n := newHandover(t)
	first := n.agent("first")
	d, err := Open(t.Context(), first)
	n.no(err)
	n.registers("first")
	n.answers(n.asks("first", "a"))

	waits, second := make(chan struct{}), n.agent("second")
	second.Waits = func() { close(waits) }
	took := make(chan *Turn, 1)
	go func() {
		turn, err := AwaitTurn(t.Context(), second)
		if err != nil {
			t.Error(err)
		}
		took <- turn
	}()
	<-waits
	if _, err := os.Stat(n.socket("second")); err == nil {
		t.Error("kubelet finds the second agent while the first one serves")
	}
	n.answers(n.asks("first", "b"))

	slowly := n.asks("first", "slow")
	<-n.slow.begun
	left := make(chan struct{})
	go func() {
		d.Close()
		close(left)
	}()
	n.eventually("kubelet finds the second agent", func() bool { _, err := os.Stat(n.socket("second")); return err == nil })
	late := n.asks("first", "c") // before kubelet knows the second; it waits behind the slow one
	n.eventually("the first agent has both calls", func() bool { return d.turn.door.calls.count() == 2 })
	n.registers("second")
	kept := n.asks("second", "d")
	select {
	case <-left:
		t.Fatal("the first agent has ended and owes an answer")
	case <-kept:
		t.Fatal("the second agent answers while the first one has the run folder")
	default:
	}
	close(n.slow.may)
	n.answers(slowly)
	n.answers(late)
	n.eventually("the first agent has kubelet hang up", func() bool { _, err := os.Stat(n.socket("first")); return err != nil })
	select {
	case <-left:
		t.Fatal("the first agent has ended before kubelet hung up")
	default:
	}
	n.hangsUp("first")
	<-left
	n.no(n.run.Close()) // as node's agent does at its end
	second.Turn = <-took
	d, err = Open(t.Context(), second)
	n.no(err)
	n.answers(kept)
	n.answers(n.asks("second", "e"))

	// One that is killed holds no lock any more, and leaves its sockets.
	stale := filepath.Join(n.kubelet, "plugins_registry", Name+"-killed-reg.sock")
	n.no(os.WriteFile(stale, nil, 0o600))
	d.Close()
	third := n.agent("third")
	third.Waits = func() { t.Error("it waits for nobody") }
	d, err = Open(t.Context(), third)
	n.no(err)
	if _, err := os.Stat(stale); err == nil {
		t.Error("the socket of an agent that was killed is still there")
	}
	d.Close()
}

// An agent that is told to end just before the next one waits serves on until that has come: on their node's network the next one counts as ready from its
// first moment, since probes reach the port of the one that serves.
func TestTurnOfOneThatComesLate(t *testing.T) {
	n := newHandover(t)
	first := n.agent("first")
	first.arrives = time.Minute // longer than a slow machine takes to what follows
	d, err := Open(t.Context(), first)
	n.no(err)
	n.registers("first")
	left := make(chan struct{})
	go func() {
		d.Close()
		close(left)
	}()
	n.eventually("the first agent gives its turn up", func() bool {
		free, err := lock(d.turn.path("serving.lock"))
		n.no(err)
		unlock(free)
		return free != nil
	})
	n.answers(n.asks("first", "a"))
	second, took := n.agent("second"), make(chan *Turn, 1)
	go func() {
		turn, err := AwaitTurn(t.Context(), second)
		if err != nil {
			t.Error(err)
		}
		took <- turn
	}()
	n.eventually("kubelet finds the second agent", func() bool { _, err := os.Stat(n.socket("second")); return err == nil })
	n.answers(n.asks("first", "b"))
	n.registers("second")
	kept := n.asks("second", "c")
	n.eventually("the first agent has kubelet hang up", func() bool { _, err := os.Stat(n.socket("first")); return err != nil })
	n.hangsUp("first")
	<-left
	n.no(n.run.Close())
	second.Turn = <-took
	d, err = Open(t.Context(), second)
	n.no(err)
	n.answers(kept)
	d.Close()
}

// An agent that is told to end while it waits for its turn leaves nothing, and the next one has its place.
func TestTurnGivenUp(t *testing.T) {
	n := newHandover(t)
	d, err := Open(t.Context(), n.agent("first"))
	n.no(err)
	for _, name := range []string{"second", "third"} {
		ctx, cancel := context.WithCancel(t.Context())
		config := n.agent(name)
		config.Waits = cancel
		turn, err := AwaitTurn(ctx, config)
		if err == nil {
			t.Errorf("%s has its turn while first serves", name)
		}
		turn.Leave()
	}
	d.Close()
	if left, err := filepath.Glob(filepath.Join(n.kubelet, "*", "*.sock")); err != nil || len(left) > 0 {
		t.Errorf("sockets are left: %v %v", left, err)
	}
}

// A driver is stuck when a call is not answered for much longer than kubelet waits.
func TestAlive(t *testing.T) {
	d := &Driver{turn: &Turn{door: newDoor(Config{})}}
	end := d.turn.door.calls.begin(time.Now().Add(-time.Hour))
	if err := d.Alive(); err == nil || !strings.Contains(err.Error(), "not been answered for 1h0m0s") {
		t.Errorf("got %v", err)
	}
	end()
	d.turn.door.calls.begin(time.Now())
	if err := d.Alive(); err != nil {
		t.Error(err)
	}
}

// A kubelet that begins removes what its node offers. It is there again before the helper would see to that by itself, half a minute after it has gone.
func TestOffersAnew(t *testing.T) {
	n := newHandover(t)
	_, err := n.config.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: here, UID: here}}, metav1.CreateOptions{})
	n.no(err)
	d, err := Open(t.Context(), n.agent("first"))
	n.no(err)
	defer d.Close()
	client := n.config.Client.ResourceV1().ResourceSlices()
	offered := func() bool {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		n.no(err)
		return len(list.Items) == 1
	}
	n.registers("first")
	n.eventually("the devices are offered", offered)
	n.eventually("what is offered is watched", func() bool { // client-go's fake server tells nobody what is deleted before that
		return slices.ContainsFunc(n.config.Client.(*fake.Clientset).Actions(), func(a ktesting.Action) bool { return a.Matches("watch", "resourceslices") })
	})
	list, err := client.List(t.Context(), metav1.ListOptions{})
	n.no(err)
	n.registers("first") // another kubelet, which
	gone := time.Now()
	n.no(client.Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}))
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n.no(untilSo(within, func() (bool, error) { return offered(), nil }))
	if after := time.Since(gone); after > resourceslice.DefaultSyncDelay {
		t.Errorf("they were offered again %v after they had gone, as by the helper alone", after)
	}
}

// Devices are offered again soon, and once more when the helper cannot take slices to be there any more that it wrote just before and another removed; what
// happens meanwhile has all of that begin anew.
func TestOffersAnewForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		anew, offers := make(chan struct{}), []time.Duration(nil)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var since time.Time
		begin := func() {
			since, offers = time.Now(), nil
			anew <- struct{}{}
		}
		go offerAnewUntil(ctx, anew, func() { offers = append(offers, time.Since(since)) })
		begin()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if len(offers) < 3 || offers[0] > time.Second {
			t.Errorf("in 40 s they are offered after %v", offers)
		}
		begin()
		time.Sleep(time.Hour)
		synctest.Wait()
		if offers[0] > time.Second || offers[len(offers)-1] < resourceslice.DefaultMutationCacheTTL || len(offers) > 10 {
			t.Errorf("they are offered after %v, and the helper remembers what it wrote for %v", offers, resourceslice.DefaultMutationCacheTTL)
		}
	})
}

// handover is a node with kubelet's folder, whose part the test plays, and the lock of node's agent.
type handover struct {
	*site
	kubelet string
	run     *os.File
	slow    *slow
	lines   map[string][]*grpc.ClientConn // by socket
}

func newHandover(t *testing.T) *handover {
	folder := t.TempDir()
	n := &handover{site: newSite(t, folder), kubelet: filepath.Join(folder, "k"), lines: map[string][]*grpc.ClientConn{}}
	n.slow = &slow{agentOf: n.site.agent, task: "slow", begun: make(chan struct{}), may: make(chan struct{})}
	n.no(os.MkdirAll(filepath.Join(n.kubelet, "plugins_registry"), 0o700))
	n.config.Kubelet, n.config.Run, n.config.Agent = n.kubelet, filepath.Join(folder, "run"), n.slow
	n.no(os.Mkdir(n.config.Run, 0o700))
	var err error
	n.run, err = os.Create(filepath.Join(n.config.Run, "agent.lock"))
	n.no(err)
	t.Cleanup(func() { n.run.Close() })
	for _, claim := range claims("a", "b", "c", "d", "e", "slow") {
		_, err := n.config.Client.ResourceV1().ResourceClaims(claim.Namespace).Create(t.Context(), claim, metav1.CreateOptions{})
		n.no(err)
	}
	return n
}

func (n *handover) no(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// agent is the config of a pod's agent; the first one has the run folder. What the test has kubelet and others do takes less than it waits for, on a slow
// machine, too.
func (n *handover) agent(pod string) Config {
	config := n.config
	config.PodUID, config.leaves = pod, time.Minute
	if pod == "second" {
		n.no(unix.Flock(int(n.run.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	}
	return config
}

func (n *handover) socket(pod string) string {
	return filepath.Join(n.kubelet, "plugins_registry", Name+"-"+pod+"-reg.sock")
}

// registers is what kubelet does when it finds an agent's socket.
func (n *handover) registers(pod string) {
	n.Helper()
	conn := n.dial(n.socket(pod))
	client := registration.NewRegistrationClient(conn)
	_, err := client.GetInfo(n.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true)) // its file is there before it is listened on
	n.no(err)
	_, err = client.NotifyRegistrationStatus(n.Context(), &registration.RegistrationStatus{PluginRegistered: true})
	n.no(err)
}

func (n *handover) dial(socket string) *grpc.ClientConn {
	n.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	n.no(err)
	n.Cleanup(func() { conn.Close() })
	n.lines[socket] = append(n.lines[socket], conn)
	return conn
}

// hangsUp closes what kubelet calls an agent by.
func (n *handover) hangsUp(pod string) {
	for _, conn := range n.lines[n.serves(pod)] {
		conn.Close()
	}
}

func (n *handover) serves(pod string) string {
	return filepath.Join(n.kubelet, "plugins", Name, "dra-"+pod+".sock")
}

// asks has kubelet ask an agent for a claim; what comes is what went wrong.
func (n *handover) asks(pod, claim string) <-chan string {
	client, said := dra.NewDRAPluginClient(n.dial(n.serves(pod))), make(chan string, 1)
	go func() {
		answer, err := client.NodePrepareResources(n.Context(), &dra.NodePrepareResourcesRequest{Claims: []*dra.Claim{{Namespace: "default", Name: "claim-" + claim, Uid: claim}}})
		switch {
		case err != nil:
			said <- err.Error()
		default:
			said <- answer.Claims[claim].Error
		}
	}()
	return said
}

func (n *handover) answers(said <-chan string) {
	n.Helper()
	if wrong := <-said; wrong != "" {
		n.Error(wrong)
	}
}

func (n *handover) eventually(what string, is func() bool) {
	n.Helper()
	within, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	if untilSo(within, func() (bool, error) { return is(), nil }) != nil {
		n.Fatalf("waited a minute until %s", what)
	}
}
