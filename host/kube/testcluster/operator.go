package testcluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Controllers of others, with kinds of their own, that a cluster may run beside its own.
const (
	JobSet          = "jobset" // jobset.x-k8s.io
	LeaderWorkerSet = "lws"    // leaderworkerset.x-k8s.io
)

// operators say what each of them reads its configuration as.
var operators = map[string]string{JobSet: "config.jobset.x-k8s.io/v1alpha1", LeaderWorkerSet: "config.lws.x-k8s.io/v1alpha1"}

// Operate builds one of the controllers of others, if it is not in the cache, and runs it as a process: with the kinds, the role and the webhooks that its
// module has, an account in a namespace of its name, and a certificate of the cluster's. When it returns, its kinds are known and its webhooks answer.
func (c *Cluster) Operate(ctx context.Context, name string) (*Process, error) {
	kind := operators[name]
	if kind == "" {
		return nil, fmt.Errorf("run the controller %s: give %s or %s", name, JobSet, LeaderWorkerSet)
	}
	built, err := build(ctx, c.cache, name, c.log)
	if err != nil {
		return nil, err
	}
	process, err := c.operate(ctx, name, kind, built[name])
	if err != nil {
		return nil, fmt.Errorf("run the controller %s: %w", name, err)
	}
	return process, nil
}

func (c *Cluster) operate(ctx context.Context, name, configured, program string) (*Process, error) {
	free, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	port := free[0]
	if err := os.MkdirAll(c.state.pki(name), 0o700); err != nil {
		return nil, err
	}
	if err := c.signs.sign(identity{file: name + "/tls", name: name, addresses: local}); err != nil {
		return nil, err
	}
	config := c.state.path("run", name+".json")
	if err := writeJSON(config, map[string]any{
		"apiVersion": configured, "kind": "Configuration", "internalCertManagement": map[string]any{"enable": false},
		"webhook": map[string]any{"host": "127.0.0.1", "port": port, "certDir": c.state.pki(name)},
	}); err != nil {
		return nil, err
	}
	folder := filepath.Dir(program)
	kinds, err := os.ReadFile(filepath.Join(folder, "kinds.yaml"))
	if err != nil {
		return nil, err
	}
	if err := c.Create(ctx, kinds); err != nil {
		return nil, err
	}
	kubeconfig, err := c.accountOf(ctx, name, filepath.Join(folder, "role.yaml"))
	if err != nil {
		return nil, err
	}
	hooks, places, err := c.hooksAt(filepath.Join(folder, "webhooks.yaml"), name, fmt.Sprintf("https://127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	process, err := c.Start(name, nil, program, "--config="+config, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	if err != nil {
		return nil, err
	}
	client, err := c.secured("admin")
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := process.ready(waiting, func(ctx context.Context) error {
		for _, place := range places {
			if err := served(ctx, client, place); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return process, c.Create(ctx, hooks)
}

// accountOf makes a namespace and in it an account with the role in a file, and a kubeconfig of it.
func (c *Cluster) accountOf(ctx context.Context, name, role string) (string, error) {
	roles, err := objectsIn(role)
	if err != nil {
		return "", err
	}
	of := metav1.ObjectMeta{Name: name}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: of}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if _, err := c.client.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: of}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if len(roles) != 1 || roles[0].GetKind() != "ClusterRole" {
		return "", fmt.Errorf("%s is to be one ClusterRole", role)
	}
	roles[0].SetName(name)
	stream, err := streamOf(roles)
	if err != nil {
		return "", err
	}
	if err := c.Create(ctx, stream); err != nil {
		return "", err
	}
	if _, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: of, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	return c.KubeconfigOf(ctx, name, name)
}

// hooksAt are the webhooks in a file, at an address instead of a service, for which somebody would have to forward, and where each is.
func (c *Cluster) hooksAt(file, name, address string) (stream []byte, places []string, err error) {
	all, err := objectsIn(file)
	if err != nil {
		return nil, nil, err
	}
	ca, err := os.ReadFile(c.state.pki("ca.crt"))
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		all[i].SetName(name + "-" + all[i].GetName())
		hooks, _, err := unstructured.NestedSlice(all[i].Object, "webhooks")
		if err != nil {
			return nil, nil, err
		}
		for _, hook := range hooks {
			one, is := hook.(map[string]any)
			if !is {
				return nil, nil, fmt.Errorf("%s: a webhook is no object", file)
			}
			path, there, err := unstructured.NestedString(one, "clientConfig", "service", "path")
			if err != nil || !there {
				return nil, nil, errors.Join(fmt.Errorf("%s: a webhook names no path", file), err)
			}
			places = append(places, address+path)
			one["clientConfig"] = map[string]any{"url": address + path, "caBundle": base64.StdEncoding.EncodeToString(ca)}
		}
		if err := unstructured.SetNestedSlice(all[i].Object, hooks, "webhooks"); err != nil {
			return nil, nil, err
		}
	}
	stream, err = streamOf(all)
	return stream, places, err
}

// served asks a webhook for nothing, which it is to refuse in whatever words; where it is not there yet nothing of its path is.
func served(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// objectsIn are the objects of a YAML file.
func objectsIn(file string) (all []unstructured.Unstructured, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var one unstructured.Unstructured
		if err := documents.Decode(&one.Object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if len(one.Object) > 0 {
			all = append(all, one)
		}
	}
}

// streamOf is a YAML stream of objects.
func streamOf(all []unstructured.Unstructured) ([]byte, error) {
	var stream []byte
	for i := range all {
		text, err := json.Marshal(all[i].Object)
		if err != nil {
			return nil, err
		}
		stream = slices.Concat(stream, []byte("---\n"), text, []byte("\n"))
	}
	return stream, nil
}
