package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is written wrongly is refused before any cluster is called, and a cluster that cannot be found is said to be none.
func TestCommands(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(broken, []byte("no: {kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string // in the error; empty: in what it says
		says string
	}{
		{[]string{"--help"}, "", "kubectl aliquot [command]"},
		{[]string{"--version"}, "", "kubectl aliquot version " + version},
		{[]string{"resize", "--help"}, "", "kubectl aliquot resize train --gpu 0.25..0.60"},
		{[]string{"resize", "train", "--gpu", "0.80..0.25"}, "--gpu: compute \"0.80..0.25\": the floor 0.80 is over the ceiling 0.25", ""},
		{[]string{"resize", "train", "--gpu", "0.25..1.5"}, "a share is at most 1.00 of each of the pod's devices", ""},
		{[]string{"resize", "train", "--mem", "lots"}, "--mem: ", ""},
		{[]string{"resize"}, "accepts 1 arg(s), received 0", ""},
		{[]string{"checkpoint", "--help"}, "", "the annotation aliquot.dev/restart-time"},
		{[]string{"checkpoint"}, "accepts 1 arg(s), received 0", ""},
		{[]string{"checkpoint", "train"}, "find the cluster: ", ""},
		{[]string{"why"}, "accepts 1 arg(s), received 0", ""},
		{[]string{"queue"}, "find the cluster: ", ""},
		{[]string{"queue", "--help"}, "", "kubectl aliquot queue [command]"},
		{[]string{"queue", "list"}, "find the cluster: ", ""},
		{[]string{"queue", "show"}, "find the cluster: ", ""},
		{[]string{"queue", "show", "team", "other"}, "accepts at most 1 arg(s), received 2", ""},
		{[]string{"queue", "set"}, "unknown command \"set\"", ""},
		{[]string{"queue", "show", "team"}, "find the cluster: ", ""},
		{[]string{"top", "train"}, "unknown command \"train\"", ""},
		{[]string{"top"}, "find the cluster: ", ""},
		{[]string{"top", "--help"}, "", "how to print: table, json or yaml"},
		{[]string{"top", "-o", "xml"}, "-o xml: there is no such format: use table, json or yaml", ""},
		{[]string{"why", "train", "-o", "wide"}, "-o wide: there is no such format: use table, json or yaml", ""},
		{[]string{"queue", "show", "team", "-o", ""}, "-o : there is no such format", ""},
		{[]string{"queue", "-o", "JSON"}, "-o JSON: there is no such format", ""},
		{[]string{"queue", "list", "-o", "json"}, "find the cluster: ", ""},
		{[]string{"why", "train", "--kubeconfig", broken}, "yaml: ", ""},
	} {
		root := commands()
		var said bytes.Buffer
		root.SetOut(&said)
		root.SetArgs(c.args)
		err := root.ExecuteContext(t.Context())
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && (err != nil || !strings.Contains(said.String(), c.says)) {
			t.Errorf("%v: %v; it says %q; want %q, %q", c.args, err, said.String(), c.want, c.says)
		}
	}
}
