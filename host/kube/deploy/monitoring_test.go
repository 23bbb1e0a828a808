package deploy

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// rules are alerts as Prometheus reads them.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

var (
	metricUsed    = regexp.MustCompile(`\baliquot_[a-z0-9_]+\b`)
	metricDefined = regexp.MustCompile(`describe\("([a-z0-9_]+)"|"(aliquot_[a-z0-9_]+)"`)
	metricCounted = regexp.MustCompile(`(?:counter\(|by\(|Subsystem: "scheduler", Name: )"([a-z0-9_]+)"`) // of the scheduler
)

// defined are the metrics that the programs for Kubernetes serve, from their sources.
func defined(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(".."), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range metricDefined.FindAllSubmatch(source, -1) {
			if len(found[1]) > 0 {
				names["aliquot_"+string(found[1])] = true
			} else {
				names[string(found[2])] = true
			}
		}
		for _, found := range metricCounted.FindAllSubmatch(source, -1) {
			names["aliquot_scheduler_"+string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Alerts and dashboard ask for metrics that there are.
func TestMetricsExist(t *testing.T) {
	exist := defined(t)
	if len(exist) < 10 {
		t.Fatalf("the sources define %v", exist)
	}
	for _, file := range []string{"rules/agent.yaml", "rules/scheduler.yaml", "rules/webhook.yaml", "rules/controller.yaml", "dashboards/aliquot.json"} {
		raw, err := os.ReadFile(filepath.Join(repository, "deploy", "chart", "files", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, asked := range expressions(t, raw) {
			if _, err := parser.ParseExpr(asked); err != nil {
				t.Errorf("%s: %s: %v", file, asked, err)
			}
		}
		used := metricUsed.FindAllString(string(raw), -1)
		if len(used) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, name := range used {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !exist[name] && !exist[base] {
				t.Errorf("%s asks for %s, which no program serves", file, name)
			}
		}
	}
}

// An alert that nobody works goes by who says that he leads: those that stand by serve metrics, too.
func TestNobodyLeads(t *testing.T) {
	for component, alert := range map[string]string{"scheduler": "AliquotSchedulerDown", "controller": "AliquotControllerDown"} {
		raw, err := os.ReadFile(filepath.Join(repository, "deploy", "chart", "files", "rules", component+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Rules []struct{ Alert, Expr string }
		}
		if err := yaml.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(read.Rules, func(rule struct{ Alert, Expr string }) bool { return rule.Alert == alert })
		if want := "absent(aliquot_" + component + "_leading == 1)"; at < 0 || read.Rules[at].Expr != want {
			t.Errorf("of %s it is %+v, want %s to ask for %s", component, read.Rules, alert, want)
		}
	}
}

// expressions are what a file of alerts or a dashboard asks Prometheus for, with the board's variables filled in.
func expressions(t *testing.T, raw []byte) (all []string) {
	t.Helper()
	var read struct {
		Rules  []struct{ Expr string }
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	for _, rule := range read.Rules {
		all = append(all, rule.Expr)
	}
	for _, panel := range read.Panels {
		for _, target := range panel.Targets {
			all = append(all, strings.NewReplacer("$node", ".*", "$namespace", ".*").Replace(target.Expr))
		}
	}
	if len(all) == 0 || slices.Contains(all, "") {
		t.Errorf("it asks for %q", all)
	}
	return all
}

// Each alert links to a page of its name, which is there, and there is no page without an alert.
func TestRunbooks(t *testing.T) {
	var alerts []string
	for _, one := range render(t, everything+"  runbooks: https://docs.example/books\n") {
		if one.Kind != "PrometheusRule" {
			continue
		}
		var rule struct{ Spec rules }
		if err := yaml.Unmarshal([]byte(one.YAML), &rule); err != nil {
			t.Fatal(err)
		}
		for _, group := range rule.Spec.Groups {
			for _, alert := range group.Rules {
				alerts = append(alerts, alert.Alert)
				if alert.Expr == "" || alert.Labels["severity"] == "" || alert.Annotations["summary"] == "" || alert.Annotations["runbook_url"] != "https://docs.example/books/"+alert.Alert+".md" {
					t.Errorf("alert %s is %+v", alert.Alert, alert)
				}
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "runbooks", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, page := range pages {
		pages[i] = strings.TrimSuffix(filepath.Base(page), ".md")
		if text, err := os.ReadFile(page); err != nil || !strings.HasPrefix(string(text), "# "+pages[i]+"\n") || !strings.Contains(string(text), "## What to do") {
			t.Errorf("%s is no page of %s: %v", page, pages[i], err)
		}
	}
	slices.Sort(alerts)
	if len(alerts) == 0 || !slices.Equal(alerts, pages) {
		t.Errorf("there are the alerts %v and the pages %v", alerts, pages)
	}
}

// The dashboard is one that Grafana reads, and its panels do not lie over each other.
func TestDashboard(t *testing.T) {
	for _, one := range render(t, everything) {
		if one.Kind != "ConfigMap" {
			continue
		}
		var board struct {
			Title, UID string
			Panels     []struct {
				ID      int
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(decoded(t, one).(*corev1.ConfigMap).Data["aliquot.json"]), &board); err != nil {
			t.Fatal(err)
		}
		taken := map[[2]int]int{}
		for _, panel := range board.Panels {
			at := panel.GridPos
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					if other, is := taken[[2]int{x, y}]; is || x >= 24 {
						t.Fatalf("panel %d lies over panel %d or beside the board", panel.ID, other)
					}
					taken[[2]int{x, y}] = panel.ID
				}
			}
			if len(panel.Targets) == 0 {
				t.Errorf("panel %d shows nothing", panel.ID)
			}
		}
		if board.Title == "" || board.UID == "" || len(board.Panels) == 0 {
			t.Errorf("the board is %+v", board)
		}
		return
	}
	t.Error("there is no dashboard")
}
