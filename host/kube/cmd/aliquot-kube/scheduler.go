package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcebeta "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/aliquot-dev/aliquot/host/kube/scheduler"
	"github.com/aliquot-dev/aliquot/host/kube/scheduler/filter"
)

// upstream are the filters of the stock scheduler, as the scheduler asks them.
type upstream struct{ *filter.Filters }

// Nodes are those that would take the pod now.
func (u upstream) Nodes(ctx context.Context, pod *corev1.Pod) (scheduler.Feasible, error) {
	said, err := u.Filters.Nodes(ctx, pod)
	return scheduler.Feasible(said), err
}

// MakeRoom is where a pod would run if others of lower priority went.
func (u upstream) MakeRoom(ctx context.Context, pod *corev1.Pod, only []string) (scheduler.Room, error) {
	room, err := u.Filters.MakeRoom(ctx, pod, only)
	return scheduler.Room(room), err
}

// MakeRoomTogether is who is to go so that pods run at once, each on its node.
func (u upstream) MakeRoomTogether(ctx context.Context, pods []*corev1.Pod, nodes []string) (scheduler.Rooms, error) {
	rooms, err := u.Filters.MakeRoomTogether(ctx, pods, nodes)
	return scheduler.Rooms(rooms), err
}

// withoutManagers takes from an object who wrote which of its fields, which is a good part of it and nothing to this program. The API server keeps
// it where an object is written without it.
func withoutManagers(object any) (any, error) {
	if about, err := meta.Accessor(object); err == nil {
		about.SetManagedFields(nil)
	}
	return object, nil
}

// schedule runs the scheduler until it is told to end.
func schedule(ctx context.Context, args []string) error {
	options := flag.NewFlagSet("aliquot-kube scheduler", flag.ContinueOnError)
	kubeconfig := options.String("kubeconfig", "", "how to reach the API server; empty: as a pod does")
	name := options.String("name", scheduler.Name, "places the pods whose schedulerName this is")
	also := options.String("also", "", "other schedulerNames whose pods it places too, with commas between: default-scheduler where no other scheduler runs. Empty: none")
	writers := options.Int("writers", 64, "how many workloads' claims and bindings are written at once")
	grace := options.Duration("eviction-grace", scheduler.Grace, "how long a pod that is evicted for another has to end at most, where its own grace period is longer")
	metrics := options.String("metrics", "", "address at which it serves metrics (/metrics, for Prometheus) and whether it is ready (/readyz) and works (/livez), as :9465; empty: none")
	profiles := options.Bool("profiles", false, "serve Go's profiles, too, where it serves metrics (/debug/pprof/)")
	record := options.String("record", "", "new file that gets every event and decision of the engine, for `aliquot sim replay`; it grows without end. Empty: none")
	elect := options.Bool("leader-elect", true, "schedule only while holding the Lease of its name; of several one does")
	namespace := options.String("namespace", cmp.Or(os.Getenv("NAMESPACE"), "aliquot"), "of the Lease; by default $NAMESPACE, else aliquot")
	identity := options.String("identity", "", "under which it holds the Lease, and goes on with it after it was killed: no two that run may have the same. Empty: the machine's name and a part that is its own, so that the Lease of one that was killed has to run out first")
	if err := parse(options, args); err != nil {
		return err
	}
	names, err := namesOf(*also)
	if err != nil {
		return err
	}
	if *writers < 1 {
		return fmt.Errorf("--writers %d; at least one must write", *writers)
	}
	if *grace < time.Second {
		return fmt.Errorf("--eviction-grace %s; give at least 1s", *grace)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	config, err := connect(*kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // how many are written at once bounds it, and the API server by its own priorities
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	// What it reads and writes by the thousand goes in the API's binary form: in JSON that costs the API server and this program several times as much.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	seen := newMonitor(*profiles, log)
	defer seen.Close()
	if err := seen.serve(*metrics); err != nil {
		return err
	}
	rules, err := taintRules(ctx, client, log)
	if err != nil {
		return err
	}
	if rules {
		if err := filter.FollowTaintRules(); err != nil {
			return fmt.Errorf("follow the DeviceTaintRules that the API server has: %w", err)
		}
		log.Info("rules that taint devices are followed")
	}
	factory := scheduler.Follow(ctx, client, informers.WithTransform(withoutManagers))
	filters, err := filter.New(ctx, client, factory, *name)
	if err != nil {
		return err
	}
	settings := scheduler.Config{
		Client: client, Objects: objects, Informers: factory, Filters: upstream{filters}, Name: *name, Also: names, Writers: *writers, Grace: *grace, Log: log,
	}
	if rules {
		settings.Tainted = filters.Tainted()
	}
	if *record != "" {
		file, err := os.OpenFile(*record, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("record what is decided: %w; give a file that is not there", err)
		}
		defer file.Close()
		settings.Record = file
	}
	one := scheduler.New(settings)
	seen.add(one.Metrics())
	seen.ready.Store(true)
	if !*elect {
		return one.Run(ctx)
	}
	if *identity == "" {
		machine, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find a name for the Lease: %w; give --identity", err)
		}
		*identity = machine + "_" + string(uuid.NewUUID())
	}
	return scheduler.Leadership{Client: client, Namespace: *namespace, Name: *name, Identity: *identity, Log: log, Renews: seen.renews()}.Lead(ctx, func(ctx context.Context) error {
		switch now, err := taintRules(ctx, client, log); {
		case err != nil:
			return nil // it is told to end
		case now != rules:
			return fmt.Errorf("whether the API server has DeviceTaintRules has changed while another scheduler led (it has: %v); start this one anew, as kubelet does", now)
		}
		return one.Run(ctx)
	})
}

// taintRules says whether the API server has DeviceTaintRules, a beta API that is off unless it is turned on. Until it answers it is asked again; an error is
// that the context has ended.
func taintRules(ctx context.Context, client kubernetes.Interface, log *slog.Logger) (has bool, err error) {
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		list, err := client.Discovery().ServerResourcesForGroupVersion(resourcebeta.SchemeGroupVersion.String())
		if err != nil && !apierrors.IsNotFound(err) {
			log.Warn("the API server does not say whether it has DeviceTaintRules, and is asked again", "error", err)
			return false, nil
		}
		has = err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "devicetaintrules" })
		return true, nil
	})
	if err != nil {
		err = fmt.Errorf("ask the API server whether it has DeviceTaintRules: %w", err)
	}
	return has, err
}

// namesOf reads names of schedulers.
func namesOf(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			return nil, fmt.Errorf("--also %q: %q names no scheduler; give names as pods have them, as default-scheduler, with commas between and no spaces", list, name)
		}
	}
	return names, nil
}
