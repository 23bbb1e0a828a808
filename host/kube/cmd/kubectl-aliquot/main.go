// Command kubectl-aliquot is `kubectl aliquot`, where it lies in a folder of $PATH.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/plugin"
)

// version is set when it is built, by -ldflags "-X main.version=…".
var version = "development"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commands().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl aliquot:", err)
		os.Exit(1)
	}
}

// cluster is how a cluster is found, by kubectl's own options and files.
type cluster struct {
	agents    string // their namespace
	format    string // that is printed in
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
}

// connect makes a plugin that calls the cluster, and says which namespace is meant.
func (c cluster) connect(command *cobra.Command) (p plugin.Plugin, namespace string, err error) {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, c.overrides)
	if namespace, _, err = config.Namespace(); err != nil {
		return p, "", fmt.Errorf("find the cluster: %w", err)
	}
	calls, err := config.ClientConfig()
	if err != nil {
		return p, "", fmt.Errorf("find the cluster: %w", err)
	}
	p.Out, p.Now, p.Agents, p.Over, p.Format = command.OutOrStdout(), time.Now, c.agents, time.Second, c.format
	if p.Client, err = kubernetes.NewForConfig(calls); err != nil {
		return p, "", err
	}
	p.Objects, err = dynamic.NewForConfig(calls)
	return p, namespace, err
}

func commands() *cobra.Command {
	to := cluster{rules: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: &clientcmd.ConfigOverrides{}}
	root := &cobra.Command{
		Use: "kubectl-aliquot", Short: "Shares of GPUs: who has what, why a pod waits, what a queue has, other ceilings, and what is saved",
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl aliquot"},
		SilenceUsage: true, SilenceErrors: true, Version: version,
	}
	options := root.PersistentFlags()
	options.StringVar(&to.rules.ExplicitPath, "kubeconfig", "", "how to reach the cluster; empty: as kubectl finds it")
	options.StringVar(&to.overrides.CurrentContext, "context", "", "which context of the kubeconfig; empty: its current one")
	options.StringVarP(&to.overrides.Context.Namespace, "namespace", "n", "", "which namespace; empty: the context's")
	root.AddCommand(top(&to), why(&to), queue(&to), resize(to), checkpoint(to))
	return root
}

// prints gives a command -o.
func (c *cluster) prints(command *cobra.Command) *cobra.Command {
	command.Flags().StringVarP(&c.format, "output", "o", plugin.Table, "how to print: table, json or yaml")
	if err := command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(plugin.Formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
	command.PreRunE = func(*cobra.Command, []string) error { return plugin.CheckFormat(c.format) }
	return command
}

func top(to *cluster) *cobra.Command {
	all := false
	command := &cobra.Command{
		Use: "top", Short: "Devices, shares with floor and ceiling, use now, who lends, who borrows, who waits", Args: cobra.NoArgs,
		Long: "Devices, beneath each its shares with floor and ceiling, and what they use over a second: of the device's time (USE), above the floor, which is borrowed, or of\n" +
			"the floor, which others have (FLOW, + and -), and of its memory (HELD); then who waits for a device, and for what. What is used is asked of the nodes' agents,\n" +
			"which takes the role aliquot-use in their namespace; all else what `kubectl get pods` takes.",
		RunE: func(command *cobra.Command, _ []string) error {
			p, namespace, err := to.connect(command)
			if err != nil {
				return err
			}
			if all {
				namespace = metav1.NamespaceAll
			}
			return p.Top(command.Context(), namespace)
		},
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of all namespaces, with devices that nobody uses")
	command.Flags().StringVar(&to.agents, "agents", "aliquot", "the namespace that Aliquot is installed in")
	return to.prints(command)
}

func why(to *cluster) *cobra.Command {
	return to.prints(&cobra.Command{
		Use: "why POD | KIND/NAME", Short: "Say how a pod is and why, or those of a Deployment, a Job or the like", Args: cobra.ExactArgs(1),
		Long: "How a pod is and why: in one line, then its claims, and what was told of it and them. Of a Deployment, a Job or another thing that pods are made by (KIND/NAME):\n" +
			"how each of its pods is, those first that do not run, and why no more could be made.",
		Example: "  kubectl aliquot why train\n  kubectl aliquot why deployment/web",
		RunE: func(command *cobra.Command, args []string) error {
			p, namespace, err := to.connect(command)
			if err != nil {
				return err
			}
			one := pod(args[0])
			if kind, name, is := strings.Cut(one, "/"); is {
				return p.WhyAll(command.Context(), namespace, kind, name)
			}
			return p.Why(command.Context(), namespace, one)
		},
	})
}

func queue(to *cluster) *cobra.Command {
	list := func(command *cobra.Command, _ []string) error {
		p, _, err := to.connect(command)
		if err != nil {
			return err
		}
		return p.Queues(command.Context())
	}
	const long = "The queues with quota, what they hold and who waits, and those that do not hold, with why."
	command := to.prints(&cobra.Command{
		Use: "queue", Aliases: []string{"queues"}, Short: "Who may hold how much: list, show", Long: long, Args: cobra.NoArgs, RunE: list,
	})
	command.AddCommand(to.prints(&cobra.Command{Use: "list", Short: "The queues with quota, what they hold and who waits", Long: long, Args: cobra.NoArgs, RunE: list}))
	command.AddCommand(to.prints(&cobra.Command{
		Use: "show [NAME]", Short: "All about one queue: quota, what it is due now, what it lends and borrows, what could be taken back", Args: cobra.MaximumNArgs(1),
		Long: "All about one queue: quota, what it is due now, what it lends and borrows, what could be taken back. Without a name it lists all queues.",
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return list(command, args)
			}
			p, _, err := to.connect(command)
			if err != nil {
				return err
			}
			return p.Queue(command.Context(), args[0])
		},
	}))
	return command
}

func resize(to cluster) *cobra.Command {
	var change plugin.Change
	var compute, memory string
	patience := 10 * time.Second
	command := &cobra.Command{
		Use: "resize POD --gpu 0.25..0.60", Short: "Change a pod's ceilings while it runs", Args: cobra.ExactArgs(1),
		Example: "  kubectl aliquot resize train --gpu 0.25..0.60 --mem 4Gi..6Gi",
		RunE: func(command *cobra.Command, args []string) (err error) {
			if compute != "" {
				if change.Compute, err = api.ParseCompute(compute); err != nil {
					return in("--gpu", err)
				}
			}
			if memory != "" {
				if change.Memory, err = api.ParseMemory(memory); err != nil {
					return in("--mem", err)
				}
			}
			p, namespace, err := to.connect(command)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), patience)
			defer cancel()
			return p.Resize(ctx, namespace, pod(args[0]), change)
		},
	}
	command.Flags().StringVar(&compute, "gpu", "", "compute floor and ceiling of each device, as 0.25..0.60; the floor is the one that is")
	command.Flags().StringVar(&memory, "mem", "", "memory floor and ceiling of each device, as 4Gi..8Gi; the floor is the one that is")
	command.Flags().StringVar(&change.Claim, "claim", "", "which of the pod's claims, where it has several")
	command.Flags().DurationVar(&patience, "wait", patience, "how long to wait until the node has answered")
	return command
}

func checkpoint(to cluster) *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint POD", Short: "Note that a pod has just saved what it has done", Args: cobra.ExactArgs(1),
		Long: "Note that a pod has just saved what it has done. Where others want what they are guaranteed, pods that would lose less go first: what they did since, and\n" +
			"what starting again takes (the annotation aliquot.dev/restart-time). Nothing is saved by this: that is the program's own. It writes the annotation\n" +
			"aliquot.dev/checkpointed-at, which a program whose account may patch its pod can write by itself.",
		RunE: func(command *cobra.Command, args []string) error {
			p, namespace, err := to.connect(command)
			if err != nil {
				return err
			}
			return p.Checkpoint(command.Context(), namespace, pod(args[0]))
		},
	}
}

// pod is the name of a pod, which may be written as kubectl prints it: pod/NAME.
func pod(arg string) string {
	if name, is := strings.CutPrefix(arg, "pods/"); is {
		return name
	}
	return strings.TrimPrefix(arg, "pod/")
}

// in says in which option a text is wrong. How many devices a pod has none changes.
func in(option string, err error) error {
	var wrong *api.ParseError
	if errors.As(err, &wrong) && strings.Contains(wrong.Advice, "--devices") {
		there := *wrong
		there.Advice = "a share is at most 1.00 of each of the pod's devices"
		err = &there
	}
	return fmt.Errorf("%s: %w", option, err)
}
