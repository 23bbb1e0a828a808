package testcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// ChartValues are values by which Aliquot's chart installs all of itself on the node, as it does without any but for what is the cluster's own: simulated
// devices, as h200x2, the folders of kubelet and of the container runtime, the control group in which everything ends with the cluster, and where the API
// server is, for there is no kube-proxy. run and state are the agent's own folders.
func (c *Cluster) ChartValues(devices, run, state string) map[string]any {
	host, port := c.ServerForPods()
	return map[string]any{
		"apiServer": map[string]any{"host": host, "port": port},
		"agent": map[string]any{
			"simulate": devices, "run": run, "state": state, "cdi": c.CDI(), "kubelet": c.Kubelet(), "group": c.Group() + "/aliquot",
		},
	}
}

// HelmProgram is the path of Helm, which is built if it is not in the cache.
func (c *Cluster) HelmProgram(ctx context.Context) (string, error) { return c.built(ctx, theHelm) }

// KubectlProgram is the path of kubectl, which is built if it is not in the cache.
func (c *Cluster) KubectlProgram(ctx context.Context) (string, error) {
	return c.built(ctx, theKubectl)
}

// built is the path of a program that has its part's name.
func (c *Cluster) built(ctx context.Context, name string) (string, error) {
	built, err := build(ctx, c.cache, name, c.log)
	if err != nil {
		return "", err
	}
	return built[name], nil
}

// Helm runs Helm as an administrator of the cluster, and returns what it said. What it keeps is in the cluster's folder; nothing of this user's own Helm is
// read. Where it fails, what it said is in the error.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	program, err := c.HelmProgram(ctx)
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, program, args...)
	command.Env = slices.DeleteFunc(os.Environ(), func(one string) bool { return strings.HasPrefix(one, "HELM_") || strings.HasPrefix(one, "KUBECONFIG=") })
	command.Env = append(command.Env, "KUBECONFIG="+c.Kubeconfig(),
		"HELM_CACHE_HOME="+c.state.path("helm", "cache"), "HELM_CONFIG_HOME="+c.state.path("helm", "config"), "HELM_DATA_HOME="+c.state.path("helm", "data"))
	said, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return string(said), nil
}
