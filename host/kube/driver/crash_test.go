package driver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// crashFolder is the environment variable that makes this test binary the process that is killed.
const crashFolder = "ALIQUOT_TEST_CRASH_FOLDER"

// Killed at each named point of preparing and taking back, a driver that starts again has whole claims or none of them, goes on with what
// kubelet asks again, and leaves what runs beside it alone.
func TestKilledAtEachPoint(t *testing.T) {
	if folder := os.Getenv(crashFolder); folder != "" {
		p := newSite(t, folder).open()
		results, err := p.PrepareResourceClaims(t.Context(), claims("a"))
		if err != nil || results["a"].Err != nil {
			t.Fatal(err, results)
		}
		if _, refused, err := p.hold(t.Context(), "a", raised); refused != nil || err != nil {
			t.Fatal(refused, err)
		}
		if err := p.unprepare(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		return // nobody killed it, which the parent finds
	}
	// A driver that starts passes these for each claim that is prepared: later times are for the claim that kubelet asks for, whose files are a
	// checkpoint, the CDI file, the checkpoint again, once more with its new ceiling, and a last one when it is taken back.
	for _, point := range append(points(t), "kube.prepare.granted:2", "kube.file.written:2", "kube.file.written:3", "kube.file.written:4", "kube.file.written:5", "kube.file.written:6") {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			s := newSite(t, folder)
			s.prepare(s.open(), claims("keep")...)
			killedIn(t, "TestKilledAtEachPoint", folder, point)
			a, err := s.config.Client.ResourceV1().ResourceClaims("default").Create(t.Context(), claims("a")[0], metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			p := s.open()
			if half, err := filepath.Glob(filepath.Join(folder, "*", "*"+unfinished)); err != nil || len(half) > 0 {
				t.Errorf("files are left half written: %v, %v", half, err)
			}
			files, err := p.specs.list()
			if err != nil || !slices.Contains(files, "keep") {
				t.Errorf("what ran beside it lost its CDI file: %v, %v", files, err)
			}
			if slices.Contains(files, "a") {
				s.has("a", "keep")
			} else {
				s.has("keep")
			}
			if got := s.prepare(p, a)["a"]; got.Err != nil {
				t.Errorf("asked again: %v", got.Err)
			}
			s.told(p, "claim-a", 250)
			s.has("a", "keep")
			s.unprepare(p, "a")
			s.has("keep")
		})
	}
}

// raised is the ceiling that the claim is held to before it is taken back.
var raised = v1alpha1.ShareSpec{Floor: v1alpha1.Limits{Compute: 250, Memory: 1 << 30}, Ceiling: v1alpha1.Limits{Compute: 600, Memory: 1 << 30}}

func claims(uids ...string) []*resourceapi.ResourceClaim {
	var all []*resourceapi.ResourceClaim
	for _, uid := range uids {
		all = append(all, claimOf(uid, 250, 1<<30, ""))
	}
	return all
}

// killedIn runs a test in another process that is killed at the point, and makes sure that it was.
func killedIn(t *testing.T, test, folder, point string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "killed")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$")
	child.Env = append(os.Environ(), crashFolder+"="+folder, "ALIQUOT_KILL_AT="+point, "ALIQUOT_KILL_LOG="+log)
	said, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the point is never reached: %v\n%s", err, said)
	}
	if hit, err := os.ReadFile(log); err != nil || strings.TrimSpace(string(hit)) != strings.Split(point, ":")[0] {
		t.Fatalf("it was killed elsewhere: %q, %v", hit, err)
	}
}

// points are the named points in this package.
func points(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`point\.Here\("([^"]+)"\)`)
	var found []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range call.FindAllStringSubmatch(string(source), -1) {
			found = append(found, match[1])
		}
	}
	if len(found) < 5 {
		t.Fatalf("found the points %v: is the test where the driver is?", found)
	}
	return found
}
