package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
	"github.com/aliquot-dev/aliquot/node/page"
)

// resizes lowers the ceiling of a pod that runs, from 0.80 to 0.60, several times: that is in its page within a second and its device time follows, and the
// container runs on. What cannot be is refused with why.
func (w *world) resizes() {
	w.Helper()
	claim, before := w.claim("quarter"), w.pids("quarter")
	shares := w.sharesAs(w.Kubeconfig())
	w.applied(shares, claim.Name, "0.25..0.80")
	w.resizesSoon(shares, claim)
	w.told("quarter", `"compute":"0.25..0.60","memory":"4Gi..8Gi"`)
	w.shares("alone with another ceiling", map[string]part{"quarter": {600, 600}})
	w.runOn(before, "quarter")
	w.refuses(shares, claim.Name)
}

// resizesSoon lowers a ceiling five times and leaves it so: by their median a second at most. Where something waited for a processor for much of that time the
// five are done again, for a while.
func (w *world) resizesSoon(shares dynamic.ResourceInterface, claim *resourceapi.ResourceClaim) {
	w.Helper()
	const tries = 5
	for begun := time.Now(); ; {
		var took []time.Duration
		var all, waited time.Duration
		for range tries {
			w.no(change(w.ctx, shares, claim.Name, `{"ceiling":{"compute":"0.80"}}`))
			w.applied(shares, claim.Name, "0.25..0.80")
			one, starved := w.lowers(shares, claim)
			w.applied(shares, claim.Name, "0.25..0.60")
			took, all, waited = append(took, one), all+one, waited+starved
		}
		slices.Sort(took)
		switch {
		case took[tries/2] <= time.Second:
			return
		case waited < all/4 || time.Since(begun) > patience:
			w.Errorf("new ceilings were in the page after %v, want a second at most by the median; something waited for a processor for %v", took, waited)
			return
		}
	}
}

// lowers changes a ceiling to 0.60 and says how long it took until the page had it, and for how much of that something on the machine waited for a processor.
func (w *world) lowers(shares dynamic.ResourceInterface, claim *resourceapi.ResourceClaim) (took, waited time.Duration) {
	w.Helper()
	defer still.hurry(w.ctx, w.shared)()
	asked, before := time.Now(), wanting()
	w.no(change(w.ctx, shares, claim.Name, `{"ceiling":{"compute":"0.60"}}`))
	written := time.Since(asked)
	w.untilCeiling(string(claim.UID), 600)
	took, waited = time.Since(asked), wanting()-before
	w.Logf("a ceiling was written in %v and in the page after %v", written, took)
	return took, waited
}

// refuses checks what the API server does not take of a Share.
func (w *world) refuses(shares dynamic.ResourceInterface, name string) {
	w.Helper()
	asAgent := w.sharesAs(w.kubeconfig)
	for _, test := range []struct {
		by         dynamic.ResourceInterface
		spec, want string
	}{
		{shares, `{"floor":{"compute":"0.50"}}`, "fixed for the claim's life"},
		{shares, `{"ceiling":{"compute":"0.20"}}`, "a compute ceiling of 0.20 is below the floor of 0.25"},
		{shares, `{"ceiling":{"memory":"2Gi"}}`, "a memory ceiling of 2Gi is below the floor of 4Gi"},
		{shares, `{"ceiling":{"compute":"1.5"}}`, "should match"},
		{shares, `{"ceiling":{"memory":"50%"}}`, "should match"},
		{asAgent, `{"ceiling":{"compute":"0.90"}}`, "a node agent changes no ceiling"},
		{asAgent, `{"nodeName":"another"}`, "of its own node alone"},
	} {
		// The policies come into force a moment after they were made, which is long ago here.
		if err := change(w.ctx, test.by, name, test.spec); err == nil || !strings.Contains(err.Error(), test.want) {
			w.Errorf("%s: got %v, want it to be refused with %q", test.spec, err, test.want)
		}
	}
}

// sharesAs are the Shares as an account sees them.
func (w *world) sharesAs(kubeconfig string) dynamic.ResourceInterface {
	w.Helper()
	config, err := w.RESTOf(kubeconfig)
	w.no(err)
	client, err := dynamic.NewForConfig(config)
	w.no(err)
	return client.Resource(schema.GroupVersionResource{Group: "aliquot.dev", Version: "v1alpha1", Resource: "shares"}).Namespace("default")
}

// change changes the spec of a Share, as kubectl patch does.
func change(ctx context.Context, shares dynamic.ResourceInterface, name, spec string) error {
	_, err := shares.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":%s}`, spec), metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
	return err
}

// applied waits until a Share says that containers are held to what it asks for, and checks what that is.
func (w *world) applied(shares dynamic.ResourceInterface, name, want string) {
	w.Helper()
	var share v1alpha1.Share
	w.eventually("the Share says that it is applied", func() (bool, string) {
		object, err := shares.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		share = v1alpha1.Share{}
		w.no(parse(object, &share))
		return share.Status.ObservedGeneration == share.Generation && meta.IsStatusConditionTrue(share.Status.Conditions, v1alpha1.ShareApplied), fmt.Sprintf("%+v", share)
	})
	if got := share.Status.Compute.String(); got != want {
		w.Errorf("by its Share it is held to %s, want %s", got, want)
	}
}

func parse(object *unstructured.Unstructured, share *v1alpha1.Share) error {
	raw, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, share)
}

// untilCeiling waits until a task's page has a ceiling, and no longer.
func (w *world) untilCeiling(uid string, want uint32) {
	w.Helper()
	ctl, err := page.Open[page.Ctl](filepath.Join(w.run, "tasks", uid, "ctl"), false)
	w.no(err)
	defer ctl.Close()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	within := time.After(patience)
	for {
		var policy page.Policy
		var whole bool
		w.no(ctl.View(func(c *page.Ctl) error {
			policy, whole = c.Grant[0].Policy()
			return nil
		}))
		if whole && policy.Ceiling == want {
			return
		}
		select {
		case <-within:
			w.Fatalf("waited %v for a ceiling of %d in the page; it has %+v", patience, want, policy)
		case <-look.C:
		}
	}
}
