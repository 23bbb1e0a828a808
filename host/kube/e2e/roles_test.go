package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
)

// roles has it said what of our roles nobody used, also where some tests ran alone.
var roles = flag.Bool("roles", false, "fail where accounts may do what none of them did in these tests; so it is always where all tests run")

// unseen are rules that no request shows: what the API server asks for by itself, where something else is asked for, and what a cluster of one node
// without certain objects never needs; by account, verb and resource, with why they are there.
var unseen = map[string]string{
	"aliquot-agent associated-node:update resource.k8s.io/resourceclaims/driver": "asked for by the API server when resourceclaims/status is updated",
	"aliquot-scheduler update resource.k8s.io/resourceclaims/binding":            "asked for by the API server when resourceclaims/status is updated",
	"aliquot-agent delete resource.k8s.io/resourceslices":                        "where a node offers fewer slices than before",
	"aliquot-agent get aliquot.dev/shares":                                       "where another made a claim's Share at the same moment",
	"aliquot-agent patch aliquot.dev/shares":                                     "where a Share says another node than its claim's",
	"aliquot-agent patch events":                                                 "where the same happens again",
	"aliquot-controller create events":                                           "where a template of claims cannot be made",
	"aliquot-controller patch events":                                            "where it cannot be made, again",
	"aliquot-scheduler get pods":                                                 "where the answer to a binding or an eviction was lost",
	"aliquot-scheduler get resource.k8s.io/resourceclaims":                       "where the answer to an allocation was lost, or it met another's write",
	"aliquot-scheduler patch events":                                             "where the same happens again",
	"aliquot-scheduler update persistentvolumeclaims":                            "where a volume is made for the node of a pod, by a provisioner",
	"aliquot-scheduler create resource.k8s.io/resourceclaims":                    "where a pod's limits are of another driver's devices: the claim that stands for them",
	"aliquot-scheduler delete resource.k8s.io/resourceclaims":                    "where such a claim was made, and the pod is not bound",
	"aliquot-webhook get resource.k8s.io/deviceclasses":                          "where a claim's request is of another class than ours, which may select our devices",
	"aliquot-webhook get resource.k8s.io/resourceclaims":                         "where a pod names a claim that is there",
	"aliquot-controller get resource.k8s.io/resourceclaimtemplates":              "where there is a template of the name that says something else",
}

// right is something that an account may do.
type right struct{ account, verb, resource string }

func (r right) String() string { return r.account + " " + r.verb + " " + r.resource }

// allUsed says of which rights that the chart gives our accounts nobody made use, in all tests together. A request that was refused is no use.
func allUsed(folder string) error {
	given, err := rights()
	if err != nil {
		return err
	}
	used := map[right]bool{}
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := uses(filepath.Join(folder, file.Name()), used); err != nil {
			return err
		}
	}
	return unused(given, used)
}

// unused are the rights that were given and not used, but for those that cannot be seen.
func unused(given []right, used map[right]bool) error {
	if len(used) == 0 {
		return errors.New("the API servers have noted no request of our accounts")
	}
	var left []string
	known := map[string]bool{}
	for _, one := range given {
		watched := one
		watched.verb = "watch" // which lists, too, where the API server can; where not, informers list
		_, is := unseen[one.String()]
		known[one.String()] = is
		if !used[one] && (one.verb != "list" || !used[watched]) && !is {
			left = append(left, one.String())
		}
	}
	for one := range unseen {
		if !known[one] {
			left = append(left, one+" (which nobody may, and stands among the unseen)")
		}
	}
	if slices.Sort(left); len(left) > 0 {
		return fmt.Errorf("accounts may do what none of them did in all tests: take it from their roles, or say in roles_test.go why it is there:\n%s", strings.Join(left, "\n"))
	}
	return nil
}

// rights are all that the chart gives to accounts of ours.
func rights() (all []right, err error) {
	chart, err := deploy.Read(chartFolder)
	if err != nil {
		return nil, err
	}
	objects, err := chart.Render(map[string]any{"agent": map[string]any{"simulate": "h200x1"}})
	if err != nil {
		return nil, err
	}
	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string][]string{} // by kind and name; roles by account
	for _, one := range objects {
		var object struct {
			Rules    []rbacv1.PolicyRule
			RoleRef  rbacv1.RoleRef
			Subjects []rbacv1.Subject
		}
		switch one.Kind {
		case "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
			if err := yaml.Unmarshal([]byte(one.YAML), &object); err != nil {
				return nil, err
			}
			rules[one.Kind+"/"+one.Name] = object.Rules
			for _, subject := range object.Subjects {
				bound[subject.Name] = append(bound[subject.Name], object.RoleRef.Kind+"/"+object.RoleRef.Name)
			}
		}
	}
	for account, roles := range bound {
		for _, role := range roles {
			for _, rule := range rules[role] {
				for _, verb := range rule.Verbs {
					for _, group := range rule.APIGroups {
						for _, resource := range rule.Resources {
							all = append(all, right{account, verb, strings.TrimPrefix(group+"/"+resource, "/")})
						}
					}
				}
			}
		}
	}
	return all, nil
}

// uses notes what the accounts did that an API server wrote down.
func uses(path string, used map[right]bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // half a line, where the API server was killed
		}
		if event.ObjectRef == nil || event.ResponseStatus == nil || event.ResponseStatus.Code == 403 || event.ResponseStatus.Code == 422 {
			continue
		}
		_, account, _ := strings.Cut(event.User.Username, "system:serviceaccount:"+ours+":")
		resource := strings.TrimPrefix(event.ObjectRef.APIGroup+"/"+event.ObjectRef.Resource, "/")
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}
		used[right{account, event.Verb, resource}] = true
	}
	return lines.Err()
}

// What nobody used is found, with lists for who watches, and what cannot be seen is no longer said of rights that there are not.
func TestUnused(t *testing.T) {
	given, err := rights()
	if err != nil {
		t.Fatal(err)
	}
	used := map[right]bool{}
	for _, one := range given {
		watched := right{one.account, "watch", one.resource}
		used[one] = one.verb != "list" || !slices.Contains(given, watched)
	}
	if err := unused(given, used); err != nil {
		t.Error(err)
	}
	for one, is := range used {
		if is && unseen[one.String()] == "" && one.verb != "watch" {
			used[one] = false
			if err := unused(given, used); err == nil || !strings.Contains(err.Error(), one.String()) {
				t.Errorf("%s is not used: got %v", one, err)
			}
			used[one] = true
		}
	}
	if err := unused(given, nil); err == nil {
		t.Error("nothing was noted, and nothing is said of it")
	}
}
