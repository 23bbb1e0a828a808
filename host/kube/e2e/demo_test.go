package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// shown is what the example smi prints of a device that one process uses.
var shown = regexp.MustCompile(`  memory (\d+) of (\d+) MiB, compute (\d+)%\n +pid .*\n +(\d+) +(\d+) MiB +(\d+)%  .*\n(?:driver|$)`)

// demo runs deploy/demo.yaml beside others on the device: what NVML shows in it is its own share and its own process.
func (w *world) demo() {
	w.Helper()
	w.admitted(w.demoPod())
	w.trains("demo")
	w.eventually("smi shows the share", func() (bool, string) {
		said, err := w.client.CoreV1().Pods("default").GetLogs("demo", &corev1.PodLogOptions{Container: "smi"}).DoRaw(w.ctx)
		w.no(err)
		all := shown.FindAllSubmatch(said, -1)
		if len(all) == 0 {
			return false, string(said)
		}
		var n [6]int
		for i := range n {
			n[i], err = strconv.Atoi(string(all[len(all)-1][i+1]))
			w.no(err)
		}
		used, total, busy, pid, held, load := n[0], n[1], n[2], n[3], n[4], n[5]
		if total != 8<<10 || busy != load {
			w.Fatalf("in a share with a ceiling of 8 GiB, smi shows\n%s", said)
		}
		pids := w.pids("demo")
		return pids[pid] && used >= 1<<10 && used == held && used < 2<<10 && busy > 0, fmt.Sprintf("%v\n%s", pids, said) // once the worker has its gibibyte
	})
	w.remove("demo")
}

// demoPod is the pod of deploy/demo.yaml.
func (w *world) demoPod() *corev1.Pod {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "demo.yaml"))
	w.no(err)
	var pod corev1.Pod
	w.no(yaml.UnmarshalStrict(text, &pod))
	return &pod
}
