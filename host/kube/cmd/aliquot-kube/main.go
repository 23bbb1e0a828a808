// Command aliquot-kube is Aliquot's parts for Kubernetes in one program, a command for each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/driver"
	"github.com/aliquot-dev/aliquot/node"
	"github.com/aliquot-dev/aliquot/node/device"
)

// version is set when it is built, by -ldflags "-X main.version=…".
var version = "unknown"

const usage = `aliquot-kube: Aliquot on Kubernetes

  aliquot-kube agent --node-name NAME                      the node agent: finds devices, prepares claims
  aliquot-kube scheduler                                   places the pods with schedulerName: aliquot-scheduler
  aliquot-kube webhook                                     makes claims of pods' annotations, refuses what cannot be
  aliquot-kube controller                                  makes the claims' templates and the webhook's certificate, checks queues and the policy
  aliquot-kube COMMAND --help                              its options
  aliquot-kube --version                                   the version that it is of
`

// commands are the parts, each running until it is told to end.
var commands = map[string]func(context.Context, []string) error{"agent": agent, "scheduler": schedule, "webhook": answerPods, "controller": control}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var command func(context.Context, []string) error
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("aliquot-kube", version)
		return
	}
	if len(os.Args) > 1 {
		command = commands[os.Args[1]]
	}
	if command == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := command(ctx, os.Args[2:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "aliquot-kube %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// agent runs the node agent until it is told to end. What is prepared, and the processes that hold it, stay.
func agent(ctx context.Context, args []string) error {
	options := flag.NewFlagSet("aliquot-kube agent", flag.ContinueOnError)
	name := options.String("node-name", os.Getenv("NODE_NAME"), "name of the node that it works on, by default $NODE_NAME")
	kubeconfig := options.String("kubeconfig", "", "how to reach the API server; empty: as a pod does")
	simulate := options.String("simulate", "", "simulated devices, as h200x2,a10x4; empty: the node's own")
	root := options.String("driver-root", "/", "where on the node the driver of its devices is installed: / where packages did it, /run/nvidia/driver where a container brings it")
	mounted := options.String("driver-mount", "", "where the agent has that folder, in a container; empty: at the same path, it is a process of the node")
	pod := options.String("pod-uid", os.Getenv("POD_UID"), "UID of the pod that it is, by default $POD_UID: with one it waits while another agent serves the node, and takes over without a gap when that one is told to end; empty: it is no pod, and refused then")
	run := options.String("run", "/run/aliquot-kube", "run folder: pages, sockets, the shim; the same path in containers; not that of a server that `aliquot up` started")
	state := options.String("state", "/var/lib/aliquot-kube", "keeps what is prepared over a reboot")
	cdi := options.String("cdi", "/var/run/cdi", "where the container runtime looks for CDI files")
	kubelet := options.String("kubelet", "/var/lib/kubelet", "kubelet's folder")
	metrics := options.String("metrics", "", "address at which it serves metrics (/metrics, for Prometheus) and whether it is ready (/readyz) and works (/livez), as :9464; empty: none")
	group := options.String("group", "", "control group for the processes that outlive it (arbiter, simulated devices), as a path below each hierarchy's root; give one where the agent is a container, with the machine's /sys/fs/cgroup mounted; empty: its own")
	rule := options.String("unenforced", string(api.ShowUnenforced), "what uses a device and is not held to a share (processes past it, work that does not end): show it, or stop (end) it too")
	classes := options.String("latency-class", "", "the latency class of devices, 1 for those that answer fastest, to 9: of all, 2, or of a model or one device by its UUID, 1@H200,2@A10; empty: none is known")
	if err := options.Parse(args); err != nil {
		return err
	}
	declared, err := api.ParseLatencyClasses(*classes)
	switch {
	case options.NArg() > 0:
		return fmt.Errorf("%q is not understood; it takes options alone, see --help", options.Arg(0))
	case err != nil:
		return fmt.Errorf("--latency-class: %w", err)
	case *name == "":
		return errors.New("nobody said which node this is; give --node-name or set NODE_NAME")
	case *rule != string(api.ShowUnenforced) && *rule != string(api.StopUnenforced):
		return fmt.Errorf("--unenforced %s: write %s or %s", *rule, api.ShowUnenforced, api.StopUnenforced)
	case !filepath.IsAbs(*root):
		return fmt.Errorf("--driver-root %s: write the whole path, from / on", *root)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config.QPS, config.Burst = 50, 100 // two calls a claim that begins, and one for each of its pods; the API server has its own limits
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shares, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program that covers an image's driver, which is beside this one: %w", err)
	}
	works := driver.Config{Node: *name, Cover: filepath.Join(filepath.Dir(program), "aliquot-cover"), PodUID: *pod, Client: client, Shares: shares, Run: *run, State: *state, CDI: *cdi, Kubelet: *kubelet, Log: log, LatencyClasses: declared}
	finds := node.Config{Run: *run, Host: "kube", Simulate: *simulate, DriverRoot: driverRoot(*root, *mounted), Group: *group, Unenforced: api.UnenforcedRule(*rule), Log: log}
	return serveNode(ctx, finds, works, *metrics)
}

// driverRoot is where the driver is: in the file system that the agent has, too, or in another.
func driverRoot(onNode, mounted string) device.Root {
	switch onNode = filepath.Clean(onNode); {
	case mounted != "":
		return device.Root{Here: mounted, Machine: onNode}
	case onNode != "/":
		return device.Root{Here: onNode, Machine: onNode}
	}
	return device.Root{}
}

// serveNode serves a node once no other agent does, until it is told to end and the next one, if there is one, takes over.
func serveNode(ctx context.Context, finds node.Config, works driver.Config, metrics string) error {
	log := works.Log
	seen := newMonitor(false, log)
	defer seen.Close()
	works.Waits = func() { seen.ready.Store(true) } // an agent that another waits for is told to end once this one is ready to take over
	err := seen.serve(metrics)
	taken := works.PodUID != "" && errors.Is(err, syscall.EADDRINUSE) // where agents use their node's network the one before it may have the port
	if err != nil && !taken {
		return err
	}
	if err := awaitDevices(ctx, finds, seen); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if works.Turn, err = driver.AwaitTurn(ctx, works); err != nil {
		works.Turn.Leave()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if taken {
		if err := seen.serve(metrics); err != nil {
			works.Turn.Leave()
			return err
		}
	}
	found, err := node.Open(ctx, finds)
	if err != nil {
		works.Turn.Leave()
		return err
	}
	defer found.Close()
	for _, note := range found.Notes() {
		log.Warn("what cannot be shared or held here", "note", note)
	}
	works.Agent = found
	served, err := driver.Open(ctx, works)
	if err != nil {
		return err
	}
	defer served.Close()
	seen.add(served.Metrics())
	alive := served.Alive
	seen.alive.Store(&alive)
	seen.ready.Store(true)
	log.Info("serving", "node", works.Node, "devices", len(found.Devices()))
	return watch(ctx, found, served)
}

// lookAgain is how long after no driver was found one is looked for again, and how often it is asked whether the one that was found is still there.
const lookAgain = 10 * time.Second

// awaitDevices waits until the node has a device that can be shared: most clusters have nodes without, and a driver that comes in a container is there minutes
// after the node. Meanwhile it is ready, unless another agent serves the node, which then goes on to.
func awaitDevices(ctx context.Context, finds node.Config, seen *monitor) error {
	var said string
	for finds.Simulate == "" {
		err := node.Usable(finds)
		if !errors.Is(err, node.ErrNoDriver) {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			seen.log.Warn("the node offers no devices until it has some", "reason", said)
		}
		served, err := node.Occupied(finds.Run)
		seen.ready.Store(err == nil && !served)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookAgain):
		}
	}
	seen.ready.Store(false)
	return nil
}

// watch hands on what the agent sees, until it is told to end, or another driver is there.
func watch(ctx context.Context, found *node.Agent, served *driver.Driver) error {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if err := found.DriverReplaced(); err != nil {
				return fmt.Errorf("%w; start the agent anew, as kubelet does", err)
			}
		case <-ctx.Done():
			return nil
		case err := <-served.Failed():
			return err
		case notice, open := <-found.Notices():
			if !open {
				return errors.New("the agent has ended")
			}
			served.Notice(ctx, notice)
		}
	}
}
