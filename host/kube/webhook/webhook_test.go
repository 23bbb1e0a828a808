package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/host/kube/annotation"
	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// share is the template of gpu 0.25..0.80 and memory 4Gi..8Gi.
const share = "aliquot-bdd03f6cf7fddbaba102"

// world is a webhook before an API server that has these objects.
type world struct {
	*testing.T
	client  *fake.Clientset
	webhook *Webhook
}

func begin(t *testing.T, objects ...runtime.Object) *world {
	client := fake.NewClientset(append([]runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "space", Labels: map[string]string{"aliquot.dev/queue": "vision"}}},
		template("ours", "gpu.aliquot.dev"), template("through-class", "fast"), template("foreign", "tpu.example"), parts("parts"), administering("access"), template("either", "tpu.example", "gpu.aliquot.dev"),
		&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "shared"}, Spec: template("", "gpu.aliquot.dev").Spec.Spec},
		extending(class("gpu.aliquot.dev", `device.driver == "gpu.aliquot.dev"`), "example.com/gpu"), extending(class("tpu", `device.driver == "tpu.example"`), "example.com/tpu"),
		extending(class("fastest", `device.driver == 'gpu.aliquot.dev'`), "example.com/fastest"),
		class("any", "true"), template("whichever", "any"), given("elsewhere", "tpu.example"), given("here", "gpu.aliquot.dev"),
		class("fast", `device.driver == "gpu.aliquot.dev" && device.attributes["gpu.aliquot.dev"].model.contains("H200")`), class("tpu.example", `device.driver == "tpu.example"`),
	}, objects...)...)
	return &world{t, client, New(Config{Client: client, Queues: tree, Scheduler: "aliquot-scheduler", Log: slog.New(slog.DiscardHandler)})}
}

// tree are the queues that there are: vision, night and short under it, wrong, which does not hold, and speech; short is bounded, by the policy, too.
func tree(context.Context) ([]*v1alpha1.Queue, *v1alpha1.Policy, error) {
	var all []*v1alpha1.Queue
	for name, parent := range map[string]string{"vision": "", "night": "vision", "speech": "", "short": "vision", "wrong": "vision"} {
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.QueueSpec{Parent: parent}}
		switch name {
		case "short":
			q.Spec.LongestRun, q.Spec.MaxPriority = api.Duration(8*time.Hour), new(int32(50))
		case "wrong":
			q.Spec.Order = "fastest"
		}
		all = append(all, q)
	}
	return all, &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Text: "aliquot policy 1\nqueue short longest-run=2h\nqueue vision\nqueue evening parent=vision\n"}}, nil
}

func class(name, expression string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
	}}
}

// wholes is Kubernetes' own name for whole devices of our class.
const wholes = corev1.ResourceName("deviceclass.resource.kubernetes.io/gpu.aliquot.dev")

// extending is a class that containers may have a limit of by a name of its own.
func extending(class *resourceapi.DeviceClass, name string) *resourceapi.DeviceClass {
	class.Spec.ExtendedResourceName = &name
	return class
}

// template asks for a device of a class, or of the first of several.
func template(name string, classes ...string) *resourceapi.ResourceClaimTemplate {
	request := resourceapi.DeviceRequest{Name: "gpu"}
	if len(classes) == 1 {
		request.Exactly = &resourceapi.ExactDeviceRequest{DeviceClassName: classes[0]}
	} else {
		for _, c := range classes {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{Name: "x", DeviceClassName: c})
		}
	}
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: name},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}}},
	}
}

// given is a claim for a device of any driver that has one of this.
func given(name, driver string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: name}, Spec: template("", "any").Spec.Spec,
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: driver, Pool: "n", Device: "d"}},
		}}},
	}
}

// parts asks for two devices of ours and one of another's, by a request each.
func parts(name string) *resourceapi.ResourceClaimTemplate {
	made := template(name, "gpu.aliquot.dev")
	second, third := *made.Spec.Spec.Devices.Requests[0].DeepCopy(), *template("", "tpu.example").Spec.Spec.Devices.Requests[0].DeepCopy()
	second.Name, third.Name = "other", "tpu"
	made.Spec.Spec.Devices.Requests = append(made.Spec.Spec.Devices.Requests, second, third)
	return made
}

// naming has the last container have a claim's requests of these names.
func naming(claim string, requests ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		last := &p.Spec.Containers[len(p.Spec.Containers)-1]
		for _, request := range requests {
			last.Resources.Claims = append(last.Resources.Claims, corev1.ResourceClaim{Name: claim, Request: request})
		}
	}
}

// as has the last container run as a user.
func as(user int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[len(p.Spec.Containers)-1].SecurityContext = &corev1.SecurityContext{RunAsUser: &user}
	}
}

func ownUsers(p *corev1.Pod) { p.Spec.HostUsers = new(false) }

// administering asks for access as an administrator to a device of ours.
func administering(name string) *resourceapi.ResourceClaimTemplate {
	made := template(name, "gpu.aliquot.dev")
	made.Spec.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
	return made
}

// pod is one with a container main, changed by these.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "p"}, Spec: corev1.PodSpec{
		SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{Name: "main"}},
	}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func annotated(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations["aliquot.dev/"+pairs[i]] = pairs[i+1]
		}
	}
}

func labelled(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p.Labels["aliquot.dev/"+pairs[i]] = pairs[i+1]
		}
	}
}

var quarter = annotated("gpu", "0.25..0.80", "memory", "4Gi..8Gi")

func claiming(name, template string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &template})
	}
}

func sharing(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "shared", ResourceClaimName: &claim})
	}
}

func with(name string, claims ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: name}
		for _, claim := range claims {
			c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: claim})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
}

func limited(name corev1.ResourceName, number string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		last := &p.Spec.Containers[len(p.Spec.Containers)-1]
		if last.Resources.Limits == nil {
			last.Resources.Limits = corev1.ResourceList{}
		}
		last.Resources.Limits[name] = resource.MustParse(number)
	}
}

func limit(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }
}

func priority(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func by(scheduler string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulerName = scheduler }
}

// ask sends a pod to the webhook as an API server does, and returns its answer and what it makes of the pod.
func (w *world) ask(p *corev1.Pod) (*admissionv1.AdmissionResponse, *corev1.Pod) {
	w.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		w.Fatal(err)
	}
	return w.send(text)
}

func (w *world) send(text []byte) (*admissionv1.AdmissionResponse, *corev1.Pod) {
	w.Helper()
	asked, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "one", Namespace: "space", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: text},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	out := httptest.NewRecorder()
	w.webhook.handler(&Secret{}).ServeHTTP(out, httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(asked)))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(out.Body.Bytes(), &review); err != nil || out.Code != http.StatusOK || review.Kind != "AdmissionReview" || review.Response == nil || review.Response.UID != "one" {
		w.Fatalf("got %d %s, %v", out.Code, out.Body, err)
	}
	for _, action := range w.client.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			w.Errorf("it did %s %s: it is to write nothing", action.GetVerb(), action.GetResource())
		}
	}
	after := text
	if review.Response.Patch != nil {
		patch, err := jsonpatch.DecodePatch(review.Response.Patch)
		if err == nil {
			after, err = patch.Apply(text)
		}
		if err != nil {
			w.Fatalf("patch %s of %s: %v", review.Response.Patch, text, err)
		}
	}
	var made corev1.Pod
	if err := json.Unmarshal(after, &made); err != nil {
		w.Fatal(err)
	}
	return review.Response, &made
}

// What becomes of pods; asked again about what it made of one, the webhook changes nothing.
func TestPods(t *testing.T) {
	ours := by("aliquot-scheduler")
	mainHas := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: "aliquot"})
	}
	one, _ := annotation.Parse(map[string]string{annotation.GPU: "1"})
	both, _ := annotation.Parse(map[string]string{annotation.GPU: "1", annotation.Devices: "2"})
	requested := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits.DeepCopy()
	}
	for name, test := range map[string]struct {
		given, want *corev1.Pod
		warning     string
	}{
		"nothing of ours":          {given: pod(), want: pod()},
		"a queue alone":            {given: pod(annotated("queue", "vision")), want: pod(annotated("queue", "vision"))},
		"annotations":              {given: pod(quarter), want: pod(quarter, claiming("aliquot", share), mainHas, ours)},
		"two containers":           {given: pod(quarter, with("aside")), want: pod(quarter, with("aside", "aliquot"), claiming("aliquot", share), mainHas, ours)},
		"one of them":              {given: pod(quarter, annotated("containers", "main"), with("aside")), want: pod(quarter, annotated("containers", "main"), with("aside"), claiming("aliquot", share), mainHas, ours)},
		"beside a foreign":         {given: pod(quarter, claiming("tpu", "foreign"), with("aside", "tpu")), want: pod(quarter, claiming("tpu", "foreign"), with("aside", "tpu", "aliquot"), claiming("aliquot", share), mainHas, ours)},
		"a container later":        {given: pod(quarter, claiming("aliquot", share), mainHas, ours, with("injected")), want: pod(quarter, claiming("aliquot", share), mainHas, ours, with("injected"))},
		"the claim without use":    {given: pod(quarter, claiming("aliquot", share)), want: pod(quarter, claiming("aliquot", share), mainHas, ours)},
		"a queue under its own":    {given: pod(quarter, annotated("queue", "night")), want: pod(quarter, annotated("queue", "night"), claiming("aliquot", share), mainHas, ours)},
		"a queue of the policy":    {given: pod(quarter, annotated("queue", "evening")), want: pod(quarter, annotated("queue", "evening"), claiming("aliquot", share), mainHas, ours)},
		"one that does not hold":   {given: pod(quarter, annotated("queue", "wrong")), want: pod(quarter, annotated("queue", "wrong"), claiming("aliquot", share), mainHas, ours)},
		"a bounded queue":          {given: pod(quarter, annotated("queue", "short"), priority(50)), want: pod(quarter, annotated("queue", "short"), priority(50), claiming("aliquot", share), mainHas, ours, limit(7200)), warning: "queue short lets work run for 2h at most: the pod ends then (spec.activeDeadlineSeconds: 7200)"},
		"less than its bound":      {given: pod(claiming("share", "ours"), annotated("queue", "short"), limit(60)), want: pod(claiming("share", "ours"), annotated("queue", "short"), limit(60), ours)},
		"the full form":            {given: pod(claiming("share", "ours"), with("aside", "share")), want: pod(claiming("share", "ours"), with("aside", "share"), ours)},
		"of a class of ours":       {given: pod(claiming("share", "through-class")), want: pod(claiming("share", "through-class"), ours)},
		"one of several":           {given: pod(claiming("share", "either")), want: pod(claiming("share", "either"), ours)},
		"any driver's":             {given: pod(claiming("share", "whichever"), by("batch")), want: pod(claiming("share", "whichever"), ours), warning: "not to batch: it may be given devices of Aliquot, which that one alone hands out"},
		"any driver's beside":      {given: pod(quarter, claiming("tpu", "whichever")), want: pod(quarter, claiming("tpu", "whichever"), claiming("aliquot", share), mainHas, ours)},
		"any driver's, queue":      {given: pod(claiming("share", "whichever"), annotated("queue", "speech"), priority(51)), want: pod(claiming("share", "whichever"), annotated("queue", "speech"), priority(51), ours)},
		"any driver's, on node":    {given: pod(claiming("share", "whichever"), on("node1")), want: pod(claiming("share", "whichever"), on("node1"))},
		"a limit of any driver's":  {given: pod(limited("deviceclass.resource.kubernetes.io/any", "1")), want: pod(limited("deviceclass.resource.kubernetes.io/any", "1"), ours)},
		"any, and it has ours":     {given: pod(sharing("here")), want: pod(sharing("here"), ours)},
		"any, and it has others'":  {given: pod(quarter, sharing("elsewhere")), want: pod(quarter, sharing("elsewhere"), claiming("aliquot", share), mainHas, ours)},
		"others', on its node":     {given: pod(sharing("elsewhere"), on("node1"), by("batch")), want: pod(sharing("elsewhere"), on("node1"), by("batch"))},
		"others', shared":          {given: pod(sharing("elsewhere")), want: pod(sharing("elsewhere"), ours)},
		"one claim each":           {given: pod(claiming("share", "ours"), claiming("second", "ours"), with("a", "share"), with("b", "second")), want: pod(claiming("share", "ours"), claiming("second", "ours"), with("a", "share"), with("b", "second"), ours)},
		"one beside what may not":  {given: pod(claiming("share", "ours"), claiming("second", "either"), with("a", "share", "second")), want: pod(claiming("share", "ours"), claiming("second", "either"), with("a", "share", "second"), ours)},
		"all requests of ours":     {given: pod(claiming("share", "parts"), naming("share", "gpu", "other")), want: pod(claiming("share", "parts"), naming("share", "gpu", "other"), ours)},
		"an administrator's users": {given: pod(claiming("all", "access"), ownUsers), want: pod(claiming("all", "access"), ownUsers, ours)},
		"another's users":          {given: pod(claiming("tpu", "foreign"), ownUsers), want: pod(claiming("tpu", "foreign"), ownUsers)},
		"a claim":                  {given: pod(sharing("shared")), want: pod(sharing("shared"), ours)},
		"a limit":                  {given: pod(limited(wholes, "1")), want: pod(annotated("gpu", "1", "devices", "1", "containers", "main"), claiming("aliquot", one.Name()), mainHas, ours)},
		"a limit of two":           {given: pod(limited(wholes, "2"), requested, annotated("queue", "vision"), with("aside")), want: pod(annotated("queue", "vision", "gpu", "1", "devices", "2", "containers", "main"), with("aside"), claiming("aliquot", both.Name()), mainHas, ours)},
		"an administrator's":       {given: pod(claiming("all", "access"), annotated("queue", "short"), priority(51)), want: pod(claiming("all", "access"), annotated("queue", "short"), priority(51), ours)},
		"of another scheduler":     {given: pod(claiming("share", "ours"), by("batch")), want: pod(claiming("share", "ours"), ours), warning: "goes to the scheduler aliquot-scheduler and not to batch"},
		"another's devices":        {given: pod(claiming("tpu", "foreign"), by("batch"), on("node1")), want: pod(claiming("tpu", "foreign"), by("batch"), on("node1"))},
		"another's limit":          {given: pod(limited("deviceclass.resource.kubernetes.io/tpu.example", "1")), want: pod(limited("deviceclass.resource.kubernetes.io/tpu.example", "1"))},
		"no template yet":          {given: pod(claiming("share", "later")), want: pod(claiming("share", "later"), ours), warning: "ResourceClaimTemplate later is not there yet; the pod goes to the scheduler aliquot-scheduler, in case"},
		"no claim yet":             {given: pod(sharing("later")), want: pod(sharing("later"), ours), warning: "ResourceClaim later is not there yet; the pod goes to the scheduler aliquot-scheduler, in case"},
		"no claim yet, ours":       {given: pod(sharing("later"), ours), want: pod(sharing("later"), ours), warning: "ResourceClaim later is not there yet; the pod waits for it"},
		"no claim yet, of batch":   {given: pod(sharing("later"), by("batch")), want: pod(sharing("later"), by("batch")), warning: "make it before the pod"},
		"no claim yet, on node":    {given: pod(sharing("later"), on("node1")), want: pod(sharing("later"), on("node1")), warning: "make it before the pod"},
		"a limit by its own name":  {given: pod(limited("example.com/gpu", "1")), want: pod(annotated("gpu", "1", "devices", "1", "containers", "main"), claiming("aliquot", one.Name()), mainHas, ours)},
		"labels":                   {given: pod(labelled("gpu", "0.25..0.80", "memory", "4Gi..8Gi", "gang", "a")), want: pod(labelled("gpu", "0.25..0.80", "memory", "4Gi..8Gi", "gang", "a"), quarter, claiming("aliquot", share), mainHas, ours)},
		"a label and another":      {given: pod(annotated("gpu", "0.25..0.80"), labelled("gpu", "0.25..0.80", "memory", "4Gi..8Gi")), want: pod(labelled("gpu", "0.25..0.80", "memory", "4Gi..8Gi"), quarter, claiming("aliquot", share), mainHas, ours)},
		"a label beside a limit":   {given: pod(limited(wholes, "1"), labelled("queue", "night")), want: pod(labelled("queue", "night"), annotated("queue", "night", "gpu", "1", "devices", "1", "containers", "main"), claiming("aliquot", one.Name()), mainHas, ours)},
		"a device plugin's":        {given: pod(limited("nvidia.com/gpu", "1")), want: pod(limited("nvidia.com/gpu", "1"))},
	} {
		w := begin(t)
		answer, made := w.ask(test.given)
		if !answer.Allowed {
			t.Errorf("%s: refused: %s", name, answer.Result.Message)
			continue
		}
		for i := range made.Spec.Containers { // an empty list is none
			if r := &made.Spec.Containers[i].Resources; len(r.Limits) == 0 && len(r.Requests) == 0 {
				r.Limits, r.Requests = nil, nil
			}
		}
		if !reflect.DeepEqual(made, test.want) {
			t.Errorf("%s: got %+v\nwant %+v", name, made.Spec, test.want.Spec)
		}
		if told := strings.Join(answer.Warnings, "\n"); !strings.Contains(told, test.warning) || (test.warning == "") != (told == "") {
			t.Errorf("%s: warned %q, want %q", name, told, test.warning)
		}
		if again, _ := w.ask(made); !again.Allowed || again.Patch != nil {
			t.Errorf("%s: asked again it says %s, %v", name, again.Patch, again.Result)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"misspelt":                 {pod(annotated("gpu", "0.25", "mem", "4Gi")), "aliquot.dev/mem is not known"},
		"malformed":                {pod(annotated("gpu", "a quarter", "memory", "4Gi")), `compute "a quarter": a digit is expected`},
		"a malformed label":        {pod(labelled("gpu", "a-quarter", "memory", "4Gi")), `labels of aliquot.dev/ are read as annotations: the annotation aliquot.dev/gpu: compute "a-quarter": a digit is expected`},
		"a label of a queue":       {pod(quarter, labelled("queue", "speech")), "labels of aliquot.dev/ are read as annotations: the annotation aliquot.dev/queue"},
		"a label and a claim":      {pod(labelled("gpu", "0.25", "memory", "4Gi"), claiming("share", "ours")), "labels of aliquot.dev/ are read as annotations: the pod asks for devices by annotations and by its claim share"},
		"a label and a limit":      {pod(labelled("gpu", "0.25", "memory", "4Gi"), limited(wholes, "1")), "labels of aliquot.dev/ are read as annotations: the pod asks for devices by annotations and by a limit"},
		"a misspelt label":         {pod(labelled("gpus", "0.25")), "the label aliquot.dev/gpus is not known, and what is misspelt would not hold; there are aliquot.dev/gpu, aliquot.dev/memory"},
		"a label of what changes":  {pod(quarter, labelled("checkpointed-at", "now")), "the label aliquot.dev/checkpointed-at is not known"},
		"a label that contradicts": {pod(quarter, labelled("gpu", "1")), "the label aliquot.dev/gpu: 1 is not what the annotation of that name says, 0.25..0.80"},
		"two claims":               {pod(claiming("share", "ours"), claiming("second", "ours"), with("a", "share", "second")), "container a has the claims share and second, and a container can be held to one"},
		"a share and access":       {pod(claiming("share", "ours"), claiming("all", "access"), with("a", "share", "all")), "container a has the claims share and all"},
		"a part of a claim":        {pod(claiming("share", "parts"), naming("share", "gpu", "tpu")), "container main has the request gpu, tpu of the claim share and not other"},
		"two users":                {pod(quarter, as(1000), with("aside"), as(1001)), "the containers main and aside, which share what the pod asks for, run as users 1000 and 1001"},
		"two users of a claim":     {pod(claiming("share", "ours"), with("a", "share"), as(7), with("b", "share"), as(0)), "the containers a and b, which share what the pod asks for, run as users 7 and 0"},
		"its own users":            {pod(quarter, ownUsers), "has users of its own (hostUsers: false)"},
		"its own users, a claim":   {pod(claiming("share", "ours"), ownUsers), "leave hostUsers out"},
		"its own users, a limit":   {pod(limited(wholes, "1"), ownUsers), "leave hostUsers out"},
		"both ways":                {pod(quarter, claiming("share", "ours")), "by annotations and by its claim share; ask in one"},
		"any driver's beside":      {pod(quarter, claiming("tpu", "whichever"), with("aside", "tpu")), "container aside has a share, and the claim tpu, which may be given a device of Aliquot, too"},
		"two limits":               {pod(limited(wholes, "1"), limited("example.com/gpu", "1")), "a limit of deviceclass.resource.kubernetes.io/gpu.aliquot.dev and one of example.com/gpu"},
		"a limit of another class": {pod(limited("example.com/fastest", "1")), "a limit of example.com/fastest, which is of the device class fastest"},
		"both ways, a limit":       {pod(quarter, limited(wholes, "1")), "and by a limit of deviceclass.resource.kubernetes.io/gpu.aliquot.dev"},
		"the name is taken":        {pod(quarter, claiming("aliquot", "foreign")), "has a claim named aliquot already"},
		"a forged template":        {pod(quarter, claiming("aliquot", "aliquot-00000000000000000000")), "has a claim named aliquot already"},
		"no such container":        {pod(quarter, annotated("containers", "main,worker"), with("aside")), `names "worker", and the pod has no such container among spec.containers; it has main, aside`},
		"too long":                 {pod(quarter, annotated("queue", "short"), limit(7201)), "a time limit of 2h0m1s was asked for (spec.activeDeadlineSeconds: 7201), and work in queue short may run for 2h at most"},
		"too high":                 {pod(quarter, annotated("queue", "short"), priority(51)), "priority 51 was asked for (PriorityClass of the cluster), and in queue short pods may have at most 50"},
		"its own node":             {pod(quarter, on("node1")), "names its node itself (spec.nodeName: node1)"},
		"its own node, a claim": {
			pod(claiming("share", "ours"), on("node1"), by("aliquot-scheduler")), "leave nodeName out",
		},
	} {
		w := begin(t)
		answer, _ := w.ask(test.pod)
		if answer.Allowed || answer.Patch != nil || !strings.Contains(answer.Result.Message, test.want) || answer.Result.Code != http.StatusForbidden {
			t.Errorf("%s: got %+v, want it refused with %q", name, answer, test.want)
		}
	}
}

// Without a scheduler of ours pods stay where they go, and are refused all the same.
func TestNoSchedulerOfOurs(t *testing.T) {
	w := begin(t)
	w.webhook.config.Scheduler = ""
	if answer, made := w.ask(pod(quarter)); !answer.Allowed || made.Spec.SchedulerName != corev1.DefaultSchedulerName || len(made.Spec.ResourceClaims) != 1 {
		t.Errorf("got %+v, %+v", answer, made.Spec)
	}
	if answer, _ := w.ask(pod(limited(wholes, "1"))); !answer.Allowed || answer.Patch != nil {
		t.Errorf("a limit, which the cluster's own scheduler knows, became %s, %v", answer.Patch, answer.Result)
	}
	if answer, _ := w.ask(pod(quarter, on("node1"))); answer.Allowed {
		t.Error("a pod that names its node was taken")
	}
}

// Fields that are newer than the webhook stay, and so does an empty list.
func TestPatchLeavesTheRest(t *testing.T) {
	w := begin(t)
	text := []byte(`{"metadata":{"annotations":{"aliquot.dev/gpu":"0.25..0.80","aliquot.dev/memory":"4Gi..8Gi"}},` +
		`"spec":{"resourceClaims":null,"containers":[{"name":"main","fromTheFuture":{"a":1}},{"name":"aside","resources":{"claims":[],"alsoNew":2}}]}}`)
	answer, made := w.send(text)
	if !answer.Allowed {
		t.Fatal(answer.Result)
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(text)
	if err != nil || !strings.Contains(string(after), `"fromTheFuture":{"a":1}`) || !strings.Contains(string(after), `"alsoNew":2`) {
		t.Errorf("got %s, %v", after, err)
	}
	if len(made.Spec.ResourceClaims) != 1 || !slices.ContainsFunc(made.Spec.Containers, hasClaim) || !hasClaim(made.Spec.Containers[1]) {
		t.Errorf("got %+v", made.Spec)
	}
}

// What cannot be found out is not taken.
func TestAPIServerDoesNotAnswer(t *testing.T) {
	for _, kind := range []string{"resourceclaimtemplates", "deviceclasses", "namespaces"} {
		w := begin(t)
		w.client.PrependReactor("get", kind, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("out of order") })
		answer, _ := w.ask(pod(claiming("share", "through-class")))
		if answer.Allowed || answer.Result.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Result.Message, "out of order; try again") {
			t.Errorf("without %s: got %+v", kind, answer)
		}
	}
}

// Whatever else is asked is answered, too.
func TestRequests(t *testing.T) {
	w := begin(t)
	handler := w.webhook.handler(&Secret{namespace: "aliquot", name: "tls"})
	for _, test := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{http.MethodGet, "/healthz", "", http.StatusOK, "ok"},
		{http.MethodGet, "/readyz", "", http.StatusServiceUnavailable, "aliquot/tls holds no certificate yet"},
		{http.MethodGet, Path, "", http.StatusMethodNotAllowed, ""},
		{http.MethodPost, Path, "{", http.StatusBadRequest, "no AdmissionReview"},
		{http.MethodPost, Path, `{"apiVersion":"admission.k8s.io/v1"}`, http.StatusBadRequest, "with a request"},
		{http.MethodPost, Path, `{"apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"1"}}`, http.StatusBadRequest, "admission.k8s.io/v1"},
		{http.MethodPost, Path, strings.Repeat(" ", largest+1), http.StatusBadRequest, "too large"},
		{http.MethodPost, Path, `{"apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"DELETE","resource":{"resource":"pods"}}}`, http.StatusOK, `"allowed":true`},
		{http.MethodPost, Path, `{"apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE","subResource":"binding","resource":{"resource":"pods"}}}`, http.StatusOK, `"allowed":true`},
		{http.MethodPost, Path, `{"apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE","object":{"spec":3},"resource":{"resource":"pods"}}}`, http.StatusOK, "cannot be read"},
	} {
		out := httptest.NewRecorder()
		handler.ServeHTTP(out, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
		if out.Code != test.code || !strings.Contains(out.Body.String(), test.want) {
			t.Errorf("%s %s %.80s: got %d %s, want %d with %q", test.method, test.path, test.body, out.Code, out.Body, test.code, test.want)
		}
	}
}

// Whatever an API server could send, the answer is one: it neither panics nor makes a patch that is none.
func FuzzReview(f *testing.F) {
	f.Add([]byte(`{"metadata":{"annotations":{"aliquot.dev/gpu":"0.25"}},"spec":{"containers":[{"name":"main"}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"aliquot.dev/gpu":"0.25","aliquot.dev/memory":"4Gi","aliquot.dev/gang":"a"}},"spec":{"containers":[{"name":"main"}]}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"aliquot.dev/gpu":"1"}},"spec":{"containers":[{"name":"main","resources":{"claims":[{"name":"x"}]}}],"resourceClaims":[{"name":"x","resourceClaimTemplateName":"tpu"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		w := New(Config{Client: fake.NewClientset(template("ours", "gpu.aliquot.dev")), Queues: tree, Scheduler: "aliquot-scheduler", Log: slog.New(slog.DiscardHandler)})
		answer := w.answer(context.Background(), &admissionv1.AdmissionRequest{
			Namespace: "space", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: text}, Resource: metav1.GroupVersionResource{Resource: "pods"},
		})
		if answer.Allowed == (answer.Result != nil) {
			t.Errorf("got %+v", answer)
		}
		if answer.Patch != nil {
			if _, err := jsonpatch.DecodePatch(answer.Patch); err != nil {
				t.Errorf("patch %s: %v", answer.Patch, err)
			}
		}
	})
}
