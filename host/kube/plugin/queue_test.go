package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// noon is when a test asks about queues.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)

// ruled is a plugin of a cluster with these objects, each a kind, a name, a spec and a status, and what it says at noon.
func ruled(t *testing.T, objects ...[4]string) (Plugin, *bytes.Buffer) {
	t.Helper()
	var all []runtime.Object
	for _, o := range objects {
		object := &unstructured.Unstructured{}
		text := fmt.Appendf(nil, `{"apiVersion":"aliquot.dev/v1alpha1","kind":%q,"metadata":{"name":%q},"spec":%s,"status":%s}`, o[0], o[1], o[2], o[3])
		if err := json.Unmarshal(text, object); err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	var out bytes.Buffer
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.Queues: "QueueList", v1alpha1.Policies: "PolicyList"}, all...)
	return Plugin{Objects: client, Out: &out, Now: func() time.Time { return noon }}, &out
}

// usesAt is what a scheduler says of a queue, so long before noon.
func usesAt(before time.Duration) string {
	return fmt.Sprintf(`{"uses":{"at":%q,"running":3,"waiting":1,"held":{"compute":"2.50","memory":"40Gi","devices":4},"fair":{"compute":"2.00","memory":"40Gi","devices":4},
		"borrowed":{"compute":"0.50","memory":"0","devices":0},"atRisk":{"compute":"0.25","memory":"0","devices":0},"lent":{"compute":"0.00","memory":"0","devices":0},
		"hours":{"used":"37.5","per":"week","begin":"2026-11-23T00:00:00Z","end":"2026-11-30T00:00:00Z"}}}`,
		noon.Add(-before).UTC().Format(metav1.RFC3339Micro))
}

// tenants is a plugin of a cluster with queues of all kinds.
func tenants(t *testing.T) (Plugin, *bytes.Buffer) {
	t.Helper()
	return ruled(t,
		[4]string{"Queue", "vision", `{"quota":{"compute":"2","memory":"320Gi"},"longestRun":"8h","priority":5,"maxPriority":100000,"hours":"100/week"}`, usesAt(10 * time.Second)},
		[4]string{"Queue", "old", `{}`, usesAt(time.Hour)},
		[4]string{"Queue", "fresh", `{"parent":"vision"}`, `{}`},
		[4]string{"Queue", "wrong", `{"parent":"nobody"}`, `{}`},
		[4]string{"Policy", "default", `{"text":"aliquot policy 1\nqueue night quota=1\nqueue vision limit=3\n"}`, `{}`},
	)
}

func TestQueues(t *testing.T) {
	p, out := tenants(t)
	if err := p.Queues(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := `
NAME      PARENT   QUOTA   HELD   RUNNING   WAITING
default   -        none    -      -         -
fresh     vision   none    -      -         -
night     -        1.00    -      -         -
old       -        none    2.50   3         1
vision    -        2.00    2.50   3         1
The queue wrong does not hold: queue wrong: there is no queue nobody to be its parent: make that one, or name another
`
	if "\n"+out.String() != want {
		t.Errorf("it says\n%s\nwant%s", out, want)
	}
}

func TestQueue(t *testing.T) {
	p, out := tenants(t)
	until := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC).Local().Format("2006-01-02 15:04")
	for name, want := range map[string]string{
		"vision": `
QUEUE vision                        DEVICES                   MEMORY   SHARES
quota                                  2.00                    320Gi     none
limit                                  3.00                     none     none
held                                   2.50                     40Gi        4
due now                                2.00                     40Gi        4
borrowed                               0.50                        0        0
could be taken back                    0.25                        0        0
lent                                   0.00                        0        0
device-hours          37.5 of 100 this week   until ` + until + `
longest run                              8h
priority                                  5
highest priority                     100000
Running 3, waiting 1, as of 11:59:50.
`,
		"fresh": `
QUEUE fresh   DEVICES   MEMORY   SHARES
quota            none     none     none
limit            none     none     none
What it has is not known: the scheduler has not said so yet.
`,
		"night": `
QUEUE night   DEVICES   MEMORY   SHARES
quota            1.00     none     none
limit            none     none     none
What it has is not known: there is no object for it where the scheduler could say so; an administrator makes a Queue night, which may say nothing else (spec: {}).
`,
	} {
		out.Reset()
		if err := p.Queue(t.Context(), name); err != nil || "\n"+out.String() != want {
			t.Errorf("of %s it says %v\n%s\nwant%s", name, err, out, want)
		}
	}
	out.Reset()
	if err := p.Queue(t.Context(), "old"); err != nil || !strings.Contains(out.String(), "as of 2026-11-23 11:00:00; the scheduler has not said so since") {
		t.Errorf("of figures of an hour ago it says %v\n%s", err, out)
	}
	for name, want := range map[string]string{
		"wrong": "the queue wrong does not hold: queue wrong: there is no queue nobody to be its parent",
		"gone":  "there is no queue gone; there are default, fresh, night, old, vision",
	} {
		if err := p.Queue(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s it says %v, want %s", name, err, want)
		}
	}
}

// A policy that does not hold is told of, and so is a Queue that does not while the policy names its queue.
func TestQueuesThatDoNotHold(t *testing.T) {
	for _, c := range []struct{ policy, want string }{
		{`aliquot policy 1\nqueue wrong quota=1\n`, "Its Queue does not hold, and nothing of that counts: queue wrong: there is no queue nobody"},
		{`aliquot policy 1\nqueue vision quota=99\n`, "The policy does not hold, and nothing of it counts: policy:2: "},
	} {
		p, out := ruled(t,
			[4]string{"Queue", "vision", `{"parent":"org","quota":{"compute":"2"}}`, `{}`}, [4]string{"Queue", "org", `{"quota":{"compute":"3"}}`, `{}`},
			[4]string{"Queue", "wrong", `{"parent":"nobody"}`, `{}`}, [4]string{"Policy", "default", `{"text":"` + c.policy + `"}`, `{}`},
		)
		name := "vision"
		if strings.HasPrefix(c.want, "Its") {
			name = "wrong"
		}
		if err := p.Queue(t.Context(), name); err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("of %s it says %v\n%s\nwant %s", name, err, out, c.want)
		}
		out.Reset()
		if err := p.Queues(t.Context()); err != nil || strings.HasPrefix(c.want, "The") != strings.Contains(out.String(), c.want) {
			t.Errorf("of all it says %v\n%s\nwant %s", err, out, c.want)
		}
	}
}
